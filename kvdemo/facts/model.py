"""What is known about the model and the strategies, without touching either."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "NOT_LOADED",
    "Failed",
    "Keeping",
    "Loading",
    "ModelFacts",
    "ModelStatus",
    "Ready",
    "StrategyRow",
    "named_for_a_shell",
]

Keeping = Literal["crop", "copy", "append", "no"]
"""What a cache that is kept between requests allows: to be shortened, only copied, only continued, nothing."""

NOT_LOADED = "not loaded"
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The loaded model, for the chip on the page and the reports.

    Where only its tokenizer was loaded, what the weights would tell is None, and dtype and device are NOT_LOADED.

    source               a sentence: where the weights came from
    context_limit        the model's own limit in tokens, None when it names none
    cache_bytes_per_token   of one sequence, in the model's dtype, below any window
    revision             commit of a hub snapshot, None otherwise
    hub_id               owner/name on the hub; None for a folder or file of this machine, and in results before it was kept
    """

    name: str
    source: str
    model_type: str
    num_parameters: int | None
    weight_bytes: int | None
    dtype: str
    device: str
    context_limit: int | None
    cache_bytes_per_token: int | None
    vocab_size: int | None
    has_chat_template: bool
    attention: str
    revision: str | None = None
    hub_id: str | None = None


def named_for_a_shell(hub_id: str | None) -> str:
    """A model as an engine asks a hub for it; MODEL where that is not known.

    A name may come out of anybody's config.json or result, and somebody pastes the command into a shell.
    """
    return hub_id if hub_id is not None and HUB_ID.fullmatch(hub_id) else "MODEL"


@dataclass(frozen=True, slots=True)
class Loading:
    """`step` in words ("weights, 2 of 3"), `name` of the model as far as it is known."""

    name: str
    step: str


@dataclass(frozen=True, slots=True)
class Ready:
    facts: ModelFacts


@dataclass(frozen=True, slots=True)
class Failed:
    """`reason` is one line: what went wrong and what to do."""

    name: str
    reason: str


ModelStatus = Loading | Ready | Failed


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A row of the strategies table as everybody above the caches sees it.

    exact               greedy output must equal the uncached run's in float32; else the strategy is lossy
    fixed_size          reserves its slots before the run
    unavailable_reason  a sentence, None where the strategy can be used on this machine with this model
    code                the Python expression that makes its cache for the loaded model, "{slots}" standing for the number of
                        slots; "" for no cache
    settings            the keys of generation_config.json that ask for it, as JSON; "null" where a file cannot
    """

    key: str
    label: str
    trade: str
    exact: bool
    keeping: Keeping
    fixed_size: bool = False
    compiles: bool = False
    unavailable_reason: str | None = None
    code: str = ""
    settings: str = ""
