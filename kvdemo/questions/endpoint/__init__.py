"""Is my endpoint caching? Judged from outside, by timing requests to it."""
