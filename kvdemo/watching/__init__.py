"""Somebody else's program, observed in its own process: what its calls of generate, and its own loops, do with a cache.

Light to import, and to run beside torch and transformers of any environment with Python 3.11 or newer: beside these two it
needs the standard library only. It hands over a record; repeating, comparing and reporting are not done here.
"""
