"""What every forward of a model is given: positions to compute, and positions in a cache to read. Seen by a pre-hook.

It works beside the stream as well, on whatever a program of one's own does with a transformers model:

    with watched(model) as forwards:
        model.generate(...)
    forwards.positions_computed, forwards.positions_read
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvdemo.caches.footprint import cached_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Forward", "Forwards", "forward_of", "watched"]

# As forwards call them now, and called them in earlier versions of transformers.
CACHES = ("cache", "past_key_values", "cache_params")
# What the decoder of an encoder-decoder is given comes before what its encoder was.
GIVEN = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward, as it begins.

    rows       sequences of the batch
    computed   positions of each row whose keys and values it computes, padding included; None: not known
    read       positions of each row that it finds in the cache; 0 without one, None for one that cannot be asked
    """

    rows: int
    computed: int | None
    read: int | None


def forward_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Forward:
    """What a model's forward is given with these arguments; ids are [rows, positions], embeddings have a third dimension."""
    given = next((kwargs[name] for name in GIVEN if kwargs.get(name) is not None), args[0] if args else None)
    rows, computed = (int(size) for size in given.shape[:2]) if given is not None else (1, None)
    cache = next((kwargs[name] for name in CACHES if kwargs.get(name) is not None), None)
    try:
        read = cached_tokens(cache)
    except (AttributeError, TypeError):  # a cache of the model's own
        read = None
    return Forward(rows, computed, read)


class Forwards:
    """The forwards seen so far, in their order."""

    def __init__(self) -> None:
        self._seen: list[Forward] = []

    def add(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note a forward that is about to begin with these arguments."""
        self._seen.append(forward_of(args, kwargs))

    def __iter__(self) -> Iterator[Forward]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def positions_computed(self) -> tuple[int, ...] | None:
        """One number per forward, all rows of its batch together; None where one of them is not known."""
        return _together((one.rows, one.computed) for one in self._seen)

    @property
    def positions_read(self) -> tuple[int, ...] | None:
        """The same for positions that were taken from a cache."""
        return _together((one.rows, one.read) for one in self._seen)


def _together(seen: Iterator[tuple[int, int | None]]) -> tuple[int, ...] | None:
    numbers = [None if each is None else rows * each for rows, each in seen]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) else None


@contextlib.contextmanager
def watched(model: PreTrainedModel) -> Iterator[Forwards]:
    """The forwards of this model inside the block, from whatever thread. What is compiled already is compiled again."""
    import torch

    forwards = Forwards()
    # Dynamo must not look inside: it would make the numbers of the first forward part of the graph.
    hook = torch.compiler.disable(lambda _module, args, kwargs: forwards.add(args, kwargs))
    handle = model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield forwards
    finally:
        handle.remove()
