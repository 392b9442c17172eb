"""How does it grow? One comparison per request size, from the cheapest to the dearest, until the time is up.

Every point is a comparison of its own, so that its records, ratios and exports are those of compare.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.attempt import Run, Stop, never
from kvdemo.experiments.compare import chosen_rows, compare
from kvdemo.experiments.rounds import CacheSlots, Step
from kvdemo.experiments.series import refused_at_first_only, series
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.questions import GrowthPoint, GrowthResult, GrowthSpec
from kvdemo.facts.requests import MAX_NEW_TOKENS, CompareSpec
from kvdemo.facts.results import ComparisonResult, Environment

__all__ = ["chosen_points", "growth"]

PromptOf = Callable[[int], tuple[str, int]]
"""number of tokens -> a prompt of that many, or a few less where none can be cut; and how many tokens it has"""

GRID = (0.0625, 0.125, 0.25, 0.5)  # shares of the longest request for a chosen grid


def growth(
    spec: GrowthSpec,
    run: Run,
    *,
    prompt_of: PromptOf,
    model: ModelFacts,
    environment: Environment,
    strategies: Mapping[str, StrategyRow],
    clock: Callable[[], float] = time.monotonic,
    cache_slots: CacheSlots | None = None,
    stop: Stop = never,
    limit_s: float | None = None,
) -> Iterator[Step | GrowthPoint | GrowthResult]:
    """What happens to ratio, step time, bytes kept and peak as prompt and answer get longer?

    Yields every point as it is measured. When spec.time_budget_s or limit_s is over, the points that are left are
    named in the result instead. InvalidRequest at once where the model or the machine cannot do what is asked.
    """
    rows = chosen_rows(spec.strategies, strategies)
    if model.context_limit is not None and spec.longest_tokens > model.context_limit:
        raise InvalidRequest("longest_tokens", f"{spec.longest_tokens:,} is beyond the model's {model.context_limit:,}")
    sizes = chosen_points(spec)

    prompts: dict[int, tuple[str, int]] = {}
    done: dict[tuple[int, int], GrowthPoint] = {}
    run = refused_at_first_only(run, lambda: done)

    def begin(size: tuple[int, int], left_s: float | None) -> Iterator[Step | ComparisonResult]:
        asked_tokens, new_tokens = size
        prompt, prompt_tokens = prompts[asked_tokens]
        return compare(
            CompareSpec(prompt, spec.strategies, new_tokens, rounds=spec.rounds),
            run,
            model=model,
            environment=environment,
            strategies=strategies,
            clock=clock,
            prompt_tokens=prompt_tokens,
            cache_slots=cache_slots,
            stop=stop,
            limit_s=left_s,
        )

    def steps() -> Generator[Step | GrowthPoint | GrowthResult, None, None]:
        # All of them before the first run: a text from which one cannot be cut is refused before anything is measured.
        prompts.update({tokens: prompt_of(tokens) for tokens in sorted({size[0] for size in sizes})})

        def keep(size: tuple[int, int], result: ComparisonResult) -> GrowthPoint:
            done[size] = GrowthPoint(prompts[size[0]][1], size[1], result)
            return done[size]

        early = yield from series(
            sizes,
            begin,
            keep,
            lambda size: f"{prompts[size[0]][1]:,} prompt and {size[1]:,} new tokens",
            clock=clock,
            stop=stop,
            budget_s=spec.time_budget_s,
            limit_s=limit_s,
        )
        left_out = tuple(size for size in sizes if size not in done)
        yield GrowthResult(spec, model, environment, tuple(done.values()), left_out, early or "points", rows)

    return steps()


def chosen_points(spec: GrowthSpec) -> tuple[tuple[int, int], ...]:
    """(prompt tokens, new tokens) of every point, cheapest first by the positions an uncached run computes.

    A grid that is not given is a row of doubling lengths up to the longest request; with neither given, two rows
    (answers that grow on a short prompt, prompts that grow before a short answer). InvalidRequest where nothing fits.
    """
    longest = spec.longest_tokens
    chosen = tuple(sorted({max(1, int(longest * share)) for share in GRID}))
    if spec.prompt_tokens or spec.new_tokens:
        prompts = spec.prompt_tokens or chosen
        news = spec.new_tokens or chosen
        sizes = {(prompt, new) for prompt in prompts for new in news}
    else:
        short = chosen[0]
        ends = (*chosen, longest - short)
        sizes = {(short, new) for new in ends} | {(prompt, short) for prompt in ends}
    fitting = [(prompt, new) for prompt, new in sizes if prompt + new <= longest and 1 <= new <= MAX_NEW_TOKENS]
    if not fitting:
        raise InvalidRequest("longest_tokens", f"no point of the grid fits into {longest:,} tokens")
    return tuple(sorted(fitting, key=lambda size: (size[1] * size[0] + size[1] * (size[1] - 1) // 2, size)))
