"""What is alive in this process: caches and threads, for tests that something was freed."""

from __future__ import annotations

import gc
import threading

__all__ = ["live_cache_bytes", "own_threads"]


def live_cache_bytes() -> int:
    """Bytes of all KV caches that are alive in this process."""
    from transformers import Cache

    from kvdemo.caches.footprint import weigh

    gc.collect()
    return sum(weigh(thing).storage_bytes for thing in gc.get_objects() if issubclass(type(thing), Cache))


def own_threads() -> list[str]:
    """Threads, but for those of the web server's pool, which come and go."""
    return sorted(thread.name for thread in threading.enumerate() if "AnyIO" not in thread.name)
