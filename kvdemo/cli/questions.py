"""The switches of compare as one of its questions: the spec it asks, the experiment that answers it, the runs inside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from kvdemo.cli.files import read_bytes, read_text
from kvdemo.cli.options import lengths
from kvdemo.cli.session import MEASURING
from kvdemo.errors import InvalidRequest
from kvdemo.experiments.prompt_file import kind_of, read_prompt_file, representative
from kvdemo.facts.questions import GrowthResult, GrowthSpec, PrefixSpec, PromptRow, PromptSetResult, PromptSetSpec
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import CompareSpec
from kvdemo.facts.results import ComparisonResult
from kvdemo.questions.documents import AnyResult

__all__ = ["PROMPT", "Asked", "asked", "fastest", "runs_of", "steps", "strategies_of"]

Asked = CompareSpec | GrowthSpec | PromptSetSpec | PrefixSpec

PROMPT = "The red cat was"
TWO = ("none", "dynamic")
LONGEST = 512
GROWTH_BUDGET_S = 300.0


def asked(
    *,
    prompt: str,
    as_chat: bool | None,
    system: str,
    max_new_tokens: int,
    strategies: tuple[str, ...],
    rounds: int,
    time_budget_s: float | None,
    fixed_length: bool,
    grow: bool,
    longest: int | None,
    prompt_lengths: str | None,
    answer_lengths: str | None,
    prompts: str | None,
    shared_prefix: Path | None,
    questions: tuple[str, ...],
) -> Asked:
    """Which question do these switches ask? InvalidRequest for one that belongs to another question."""
    chosen = [name for name, given in (("grow", grow), ("prompts", prompts), ("shared_prefix", shared_prefix)) if given]
    if len(chosen) > 1:
        raise InvalidRequest(chosen[1], f"cannot go with {chosen[0]}: one question at a time")
    question = chosen[0] if chosen else "prompt"
    for field, given, of in (
        ("prompt", prompt != PROMPT, ("prompt", "grow")),
        ("chat", as_chat is not None, ("prompt", "prompts")),
        ("system", system, ("prompt",)),
        ("longest", longest is not None, ("grow", "prompts")),
        ("prompt_lengths", prompt_lengths is not None, ("grow",)),
        ("answer_lengths", answer_lengths is not None, ("grow",)),
        ("stop_at_end", not fixed_length, ("prompt", "prompts", "shared_prefix")),
        ("question", questions, ("shared_prefix",)),
    ):
        if given and question not in of:
            raise InvalidRequest(field, f"does not belong to {question}, but to {' or '.join(of)}")
    if question == "grow":
        return GrowthSpec(
            prompt=prompt,
            strategies=strategies or TWO,
            prompt_tokens=lengths("prompt_lengths", prompt_lengths or ""),
            new_tokens=lengths("answer_lengths", answer_lengths or ""),
            rounds=rounds,
            longest_tokens=LONGEST if longest is None else longest,
            time_budget_s=GROWTH_BUDGET_S if time_budget_s is None else time_budget_s,
        )
    if question == "prompts":
        return PromptSetSpec(
            prompts=_rows(prompts or ""),
            strategies=strategies or TWO,
            max_new_tokens=max_new_tokens,
            rounds=rounds,
            as_chat=as_chat is not False,
            fixed_length=fixed_length,
            longest_tokens=longest,
            time_budget_s=time_budget_s,
        )
    if shared_prefix is not None:
        if not questions:
            raise InvalidRequest("question", "ask at least one: --question TEXT")
        if len(strategies) > 1:
            raise InvalidRequest("strategies", "shared_prefix takes one: the cache that is kept")
        if rounds < 1:
            raise InvalidRequest("rounds", "must be at least 1")
        return PrefixSpec(
            system_prompt=read_text("shared_prefix", shared_prefix),
            questions=questions * min(rounds, 1000),
            strategy=(*strategies, "dynamic")[0],
            max_new_tokens=max_new_tokens,
            fixed_length=fixed_length,
            time_budget_s=time_budget_s,
        )
    return CompareSpec(
        prompt=prompt,
        strategies=strategies or TWO,
        max_new_tokens=max_new_tokens,
        rounds=rounds,
        as_chat=bool(as_chat),
        system_prompt=system,
        fixed_length=fixed_length,
        time_budget_s=time_budget_s,
    )


def strategies_of(spec: Asked) -> tuple[str, ...]:
    return (spec.strategy,) if isinstance(spec, PrefixSpec) else spec.strategies


def steps(backend: Any, spec: Asked, owner: str) -> Iterator[Any]:
    """The experiment that answers this question."""
    experiments = {
        CompareSpec: backend.compare,
        GrowthSpec: backend.growth,
        PromptSetSpec: backend.prompt_set,
        PrefixSpec: backend.prefix_reuse,
    }
    answering: Iterator[Any] = experiments[type(spec)](spec, owner=owner, reader=MEASURING)
    return answering


def runs_of(result: AnyResult) -> tuple[RunRecord, ...]:
    """Every run that a result is made of."""
    if isinstance(result, ComparisonResult):
        return result.runs
    if isinstance(result, GrowthResult):
        return tuple(chain.from_iterable(point.result.runs for point in result.points))
    if isinstance(result, PromptSetResult):
        return tuple(chain.from_iterable(item.result.runs for item in result.prompts))
    return (*result.warmups, *chain.from_iterable((pair.fresh, pair.kept) for pair in result.pairs))


def fastest(result: AnyResult) -> str | None:
    """The strategy with the shortest generation in a comparison on one prompt; None where nothing was compared."""
    if not isinstance(result, ComparisonResult):
        return None
    ratios = {item.candidate: item.ratio for item in result.comparisons if item.metric == "generation_s" and item.ratio}
    if not ratios:
        return None
    best = max(ratios, key=lambda key: ratios[key] or 0.0)
    return best if (ratios[best] or 0.0) > 1 else result.spec.strategies[0]


def _rows(named: str) -> tuple[PromptRow, ...]:
    if named == "representative":
        return representative()
    kind = kind_of(named)
    found = read_prompt_file(read_bytes("prompts", Path(named)), kind)
    if found.unused:
        print(f"Note: {Path(named).name} holds what is not used: {', '.join(found.unused)}", file=sys.stderr)
    return found.rows
