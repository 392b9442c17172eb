"""What a person sets on the tab Memory: how long, how many, stored how, within which budget; unchecked as it comes in.

`request` checks it and names the field on the form. Which model it is about, memory_models.py knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import (
    CACHE_DTYPES,
    MAX_BATCH,
    MAX_LENGTH,
    MOST_PAGE_TOKENS,
    USUAL_BUDGET,
    Architecture,
    Budget,
    MemoryRequest,
)
from kvdemo.facts.requests import checked_choice, checked_int, checked_number

__all__ = ["AS_MODEL", "GROWS", "KEEPINGS", "LONGEST_LOG2", "SHORTEST_LOG2", "WEIGHTS", "MemoryForm", "slider_place"]

AS_MODEL = "as the model"
WEIGHTS = (AS_MODEL, *CACHE_DTYPES, "int4")
KEEPINGS = {
    "dynamic": "Dynamic: grows",
    "static": "Static: reserved at once",
    "uniform": "One page size (engines)",
}
"""How the cache is kept; the last one: every layer at full length, as an engine with one page size for all layers does."""
GROWS = {"length": "length", "users": "users", "layers": "layers", "heads": "KV heads"}
SHORTEST_LOG2, LONGEST_LOG2 = 7, 20


@dataclass(frozen=True, slots=True)
class MemoryForm:
    """The settings of a plan as they come from the form, in its order."""

    seq_len: Any = 4096
    batch_size: Any = 1
    keeping: Any = "dynamic"
    cache_dtype: Any = AS_MODEL
    budget_gib: Any = USUAL_BUDGET.gib
    keep_free_percent: Any = 10
    weights_dtype: Any = AS_MODEL
    tensor_parallel: Any = 1
    encoder_len: Any = None
    page_tokens: Any = 16

    def request(self, architecture: Architecture, usual: Budget | None = None) -> MemoryRequest:
        """Checked; InvalidRequest names the field as the form does. usual: the budget where nobody says another."""
        checked_choice("cache", self.keeping, (*KEEPINGS,))
        own = architecture.dtype if architecture.dtype in CACHE_DTYPES else "bfloat16"
        dtype = checked_choice("cache dtype", self.cache_dtype, (AS_MODEL, *CACHE_DTYPES))
        weights = checked_choice("weights dtype", self.weights_dtype, WEIGHTS)
        return MemoryRequest(
            seq_len=checked_int("sequence length", self.seq_len, 1, MAX_LENGTH),
            batch_size=checked_int("requests at once", self.batch_size, 1, MAX_BATCH),
            cache_dtype=own if dtype == AS_MODEL else dtype,
            weights_dtype=None if weights == AS_MODEL else weights,
            budget_gib=_budget(self.budget_gib),
            budget_source=usual.source if usual is not None and self.budget_gib == usual.gib else "given",
            keep_free=checked_number("keep free", self.keep_free_percent, 0, 99) / 100,
            tensor_parallel=checked_int("devices", self.tensor_parallel, 1, 1024),
            encoder_len=None
            if self.encoder_len is None
            else checked_int("encoder length", self.encoder_len, 1, MAX_LENGTH),
            page_tokens=checked_int("page size", self.page_tokens, 1, MOST_PAGE_TOKENS),
        )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


def slider_place(seq_len: object) -> float | None:
    """Where a length stands on the logarithmic slider, None for what is no length."""
    if isinstance(seq_len, bool) or not isinstance(seq_len, int | float) or not 1 <= seq_len <= MAX_LENGTH:
        return None
    return min(LONGEST_LOG2, max(SHORTEST_LOG2, round(math.log2(seq_len), 2)))


def _budget(value: object) -> float | None:
    """None without one. A budget of nothing is refused: it would say that nothing ever fits."""
    if value is None:
        return None
    if not isinstance(value, bool) and value == 0:
        raise InvalidRequest("budget", "must be above 0 GiB; leave it empty to plan without one")
    return checked_number("budget", value, 0.001, 1_000_000)
