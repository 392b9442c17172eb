"""At which length caches reach a size, and what fits in a budget. Arithmetic on footprints, windows respected."""

from __future__ import annotations

from collections.abc import Callable

from kvdemo.facts.plans import MAX_LENGTH, Capacity, LayerFootprint, MemoryRequest
from kvdemo.planner.sizes import Sizes

__all__ = ["Groups", "capacity_of", "crossing"]

GIB = 2**30
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Groups = list[tuple[LayerFootprint, int]]  # equal layers once, with their number


def crossing(groups: Groups, sizes: Sizes, batch: int, target_bytes: int) -> int | None:
    """The smallest whole length at which the caches of the batch reach target_bytes; None when they never do."""

    def reached(length: int) -> bool:
        return batch * sum(count * sizes.reserved(layer, length) for layer, count in groups) >= target_bytes

    windows = max((layer.window or 0 for layer, _ in groups), default=0) + 1
    slope = sum(count * sizes.per_token(layer, windows) for layer, count in groups)
    if slope == 0 and not reached(windows):
        return None
    far = windows if slope == 0 else windows + max(0, target_bytes) // (batch * slope) + 2
    # entries that close every few tokens make the slope an average: go a little further until it is reached
    while not reached(far):
        far *= 2
    return _smallest(reached, far)


def capacity_of(
    groups: Groups, sizes: Sizes, request: MemoryRequest, weights: int, one: int, limit: int | None
) -> Capacity:
    """What fits beside the weights in the budget less the share that is kept free?

    one      bytes that one sequence of the asked length reserves
    limit    tokens that the model itself allows, None when it names no limit
    """
    budget = int((request.budget_gib or 0) * GIB)
    usable = budget - int(budget * request.keep_free) - weights

    def longest(batch: int) -> tuple[int, int, bool]:
        past = crossing(groups, sizes, batch, usable + 1) if usable > 0 else 1
        fitting = MAX_LENGTH if past is None else past - 1
        return batch, min(fitting, limit or MAX_LENGTH), fitting > (limit or MAX_LENGTH)

    batches = sorted({*BATCHES, request.batch_size})
    found = [longest(batch) for batch in batches]
    most = max(0, usable // one) if one else 0
    return Capacity(
        budget_bytes=budget,
        usable_bytes=usable,
        longest_by_batch=tuple(row for row in found if row[1] > 0 or row[0] == request.batch_size),
        most_at_once=most,
        fits=most >= request.batch_size,
    )


def _smallest(holds: Callable[[int], bool], far: int) -> int:
    """The smallest length from 1 to far at which `holds`, which stays true once it is."""
    low, high = 1, far
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
