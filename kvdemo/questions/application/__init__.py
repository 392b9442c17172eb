"""My application: does it use the cache, is that enough, and does the whole of it get faster?"""
