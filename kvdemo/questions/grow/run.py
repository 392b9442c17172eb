"""How does it grow? One comparison per request size, from the cheapest to the dearest, until the time is up.

Every point is a comparison of its own, so that its records, ratios and exports are those of compare.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.compare import compare
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.rounds import Step
from kvdemo.experiments.series import refused_at_first_only, series
from kvdemo.facts.requests import MAX_NEW_TOKENS, GenerationRequest
from kvdemo.questions.grow.spec import GrowthPoint, GrowthResult, GrowthSpec

__all__ = ["chosen_points", "grow"]

GRID = (0.0625, 0.125, 0.25, 0.5)  # shares of the longest request for a chosen grid


def grow(spec: GrowthSpec, bench: Bench) -> Iterator[Step | GrowthPoint | GrowthResult]:
    """What happens to ratio, step time, bytes kept and peak as prompt and answer get longer?

    Yields every point as it is measured. When spec.time_budget_s or the bench's limit is over, the points that are left
    are named in the result instead. InvalidRequest at once where the model or the machine cannot do what is asked.
    """
    rows = bench.rows(spec.strategies)
    limit = bench.model.context_limit
    if limit is not None and spec.longest_tokens > limit:
        raise InvalidRequest("longest_tokens", f"{spec.longest_tokens:,} is beyond the model's {limit:,}")
    sizes = chosen_points(spec)
    for prompt_tokens, new_tokens in sizes:
        for key in spec.strategies:
            bench.check_size(GenerationRequest(spec.prompt, new_tokens, key), prompt_tokens)

    prompts: dict[int, tuple[str, int]] = {}
    done: dict[tuple[int, int], GrowthPoint] = {}
    careful = replace(bench, run=refused_at_first_only(bench.run, lambda: done))

    def begin(size: tuple[int, int], left: Bench) -> Iterator[Step | ComparisonResult]:
        text, prompt_tokens = prompts[size[0]]
        one = CompareSpec(text, spec.strategies, size[1], rounds=spec.rounds)
        return compare(one, left, prompt_tokens=prompt_tokens)

    def steps() -> Generator[Step | GrowthPoint | GrowthResult, None, None]:
        # All of them before the first run: a text from which one cannot be cut is refused before anything is measured.
        prompts.update({tokens: bench.text_of(spec.prompt, tokens) for tokens in sorted({size[0] for size in sizes})})

        def keep(size: tuple[int, int], result: ComparisonResult) -> GrowthPoint:
            done[size] = GrowthPoint(prompts[size[0]][1], size[1], result)
            return done[size]

        def name(size: tuple[int, int]) -> str:
            return f"{prompts[size[0]][1]:,} prompt and {size[1]:,} new tokens"

        early = yield from series(sizes, begin, keep, name, bench=careful, budget_s=spec.time_budget_s)
        left_out = tuple(size for size in sizes if size not in done)
        points = tuple(done.values())
        yield GrowthResult(spec, bench.model, bench.environment, points, left_out, early or "points", rows)

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
