"""One token at a time: what a single step of an answer did, and what the cache that is kept after it holds."""

from __future__ import annotations

from dataclasses import dataclass

from kvdemo.facts.records import LayerBytes, RunRecord

__all__ = ["CacheLook", "CacheNorms", "Stepped"]


@dataclass(frozen=True, slots=True)
class CacheLook:
    """A look into a kept cache.

    tokens        positions of the text that it stands for
    layers        what each layer weighs, and the shape of its keys
    held          positions that each layer holds: fewer than tokens where it keeps only recent ones; None: not known
    layer, head   the ones looked at closely
    heads         KV heads of that layer
    first         the position of the first norm in the text, from 0
    key_norms, value_norms   length (L2 norm) of the key and of the value of each position; () where they cannot be read
    """

    tokens: int
    layers: tuple[LayerBytes, ...]
    held: tuple[int | None, ...]
    layer: int = 0
    head: int = 0
    heads: int = 0
    first: int = 0
    key_norms: tuple[float, ...] = ()
    value_norms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheNorms:
    """The length (L2 norm) of each key and each value vector of one KV head that a cache holds, by position in the text.

    first          the position of the first one in the text, from 0: a window has forgotten those before it
    keys, values   one per position, to four digits
    """

    layer: int
    head: int
    first: int
    keys: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stepped:
    """One step of an answer: its run, the answer's ids and text until now, and whether it ended with it.

    look   into the cache afterwards; None: nothing is kept
    """

    record: RunRecord
    made: tuple[int, ...]
    text: str
    ended: bool
    look: CacheLook | None
