"""Which cache is in force."""

from __future__ import annotations

from kvdemo.facts.decision import CacheDecision

__all__ = ["print_decision"]


def print_decision(decision: CacheDecision) -> None:
    """Which cache is in force, and every conflict on its own line."""
    print(f"In force: {decision.sentence()}")
    if decision.cache_implementation is not None:
        print(f"cache_implementation: {decision.cache_implementation}")
    for conflict in decision.conflicts:
        print(f"Note: {conflict}")
