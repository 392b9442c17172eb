"""What the first requests of many conversations begin with: kept once, it is processed once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kvdemo.experiments.bench import Tokens
from kvdemo.questions.conversations.reuse import common_tokens
from kvdemo.questions.conversations.spec import SharedBeginning

__all__ = ["shared_beginnings"]

MOST = 5
LEAST_TOKENS = 8  # fewer are what any two prompts of a template begin with
START_CHARS = 200


def shared_beginnings(
    tokens: Tokens, prompts: Sequence[NDArray[np.int32]], pages: Sequence[int]
) -> tuple[SharedBeginning, ...]:
    """The beginnings that save most, each longer than those that more conversations share."""
    ordered = sorted(prompts, key=lambda ids: ids.astype(">i4").tobytes())
    saving = sorted(groups(ordered), key=lambda group: group[0] * (group[1] - 1), reverse=True)
    found = []
    for length, count, at in saving[:MOST]:
        saved = {str(page): length // page * page * (count - 1) for page in pages}
        text = tokens.decode(ordered[at][: min(length, START_CHARS)].tolist())[:START_CHARS]
        found.append(SharedBeginning(length, count, text, saved))
    return tuple(found)


def groups(ordered: Sequence[NDArray[np.int32]]) -> Iterator[tuple[int, int, int]]:
    """(tokens, how many begin with them, the first of these) of sorted prompts, one for each beginning where they part.

    At least one token of each prompt is always processed.
    """
    common = [
        min(common_tokens(one, other), len(one) - 1, len(other) - 1) for one, other in itertools.pairwise(ordered)
    ]
    open_: list[tuple[int, int]] = []  # (tokens, first), shorter ones first
    for at, length in enumerate([*common, 0]):
        first = at
        while open_ and open_[-1][0] > length:
            tokens, first = open_.pop()
            if tokens >= LEAST_TOKENS:
                yield tokens, at - first + 1, first
        if length and (not open_ or open_[-1][0] < length):
            open_.append((length, first))
