"""On my prompts? One comparison per prompt of a set, ratios per prompt and over the set, the worst prompt named.

Every prompt is a comparison of its own, so that its records, ratios and exports are those of compare.py.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from kvdemo.errors import InvalidRequest
from kvdemo.experiments.bench import Bench
from kvdemo.experiments.compare import compare
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult
from kvdemo.experiments.prompt_file import PromptRow, bad_rows
from kvdemo.experiments.rounds import Step
from kvdemo.experiments.series import refused_at_first_only, series
from kvdemo.experiments.statistics import median, order_statistic_interval
from kvdemo.experiments.summary import paired
from kvdemo.facts.requests import GenerationRequest
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult, PromptSetSpec, SetComparison

__all__ = ["compare_set", "prompt_set"]


def prompt_set(spec: PromptSetSpec, bench: Bench) -> Iterator[Step | PromptResult | PromptSetResult]:
    """What does the cache do on these prompts? Yields every prompt's result as it is known, then that of the set.

    InvalidRequest at once for strategies that cannot run and, naming every such row, for prompts that are longer than
    spec.longest_tokens or the model's context with their answer. A warm-up runs before the first prompt of each length
    class (powers of two of the prompt and of the whole request, which compiled code belongs to), not before every prompt.
    """
    rows = bench.rows(spec.strategies)
    specs = [_spec_of(spec, row) for row in spec.prompts]
    lengths = _checked_lengths(spec, specs, bench)
    warm: set[tuple[int, int]] = set()
    done: list[PromptResult] = []
    careful = replace(bench, run=refused_at_first_only(bench.run, lambda: done))

    def begin(index: int, left: Bench) -> Iterator[Step | ComparisonResult]:
        needed = lengths[index] + specs[index].max_new_tokens - 1
        length_class = (lengths[index].bit_length(), (needed - 1).bit_length())
        cold = length_class not in warm
        warm.add(length_class)
        return compare(specs[index], left, prompt_tokens=lengths[index], warm_up=cold)

    def steps() -> Generator[Step | PromptResult | PromptSetResult, None, None]:
        def keep(index: int, result: ComparisonResult) -> PromptResult:
            done.append(PromptResult(spec.prompts[index], result))
            return done[-1]

        def name(index: int) -> str:
            return f"Prompt {index + 1} of {len(specs)}"

        early = yield from series(range(len(specs)), begin, keep, name, bench=careful, budget_s=spec.time_budget_s)
        ran = {item.row.id for item in done}
        yield PromptSetResult(
            spec=spec,
            model=bench.model,
            environment=bench.environment,
            prompts=tuple(done),
            comparisons=compare_set(spec.strategies, done),
            not_run=tuple(row.id for row in spec.prompts if row.id not in ran),
            stopped_because=early or "prompts",
            strategies=rows,
        )

    return steps()


def compare_set(strategies: Sequence[str], prompts: Sequence[PromptResult]) -> tuple[SetComparison, ...]:
    """Each further arm beside the first, over all prompts that have a ratio."""
    return tuple(_compare_set(strategies[0], candidate, prompts) for candidate in strategies[1:])


def _compare_set(baseline: str, candidate: str, prompts: Sequence[PromptResult]) -> SetComparison:
    ratios: dict[str, float] = {}
    different: list[str] = []
    whole_s = {baseline: 0.0, candidate: 0.0}
    comparable = True
    for item in prompts:
        comparison = item.result.comparison(candidate)
        if comparison is None or comparison.ratio is None:
            continue
        ratios[item.row.id] = comparison.ratio
        comparable = comparable and not comparison.per_token
        if comparison.verdict.same_output is False:
            different.append(item.row.id)
        pairs = paired(item.result.runs, baseline, candidate)
        for strategy, runs in zip((baseline, candidate), zip(*pairs, strict=True), strict=True):
            whole_s[strategy] += median(run.generation_s for run in runs) or 0.0
    values = list(ratios.values())
    interval = order_statistic_interval(values)
    worst = min(ratios, key=ratios.__getitem__, default=None)
    return SetComparison(
        baseline=baseline,
        candidate=candidate,
        ratio=median(values),
        low=interval.low if interval else min(values) if len(values) > 1 else None,
        high=interval.high if interval else max(values) if len(values) > 1 else None,
        coverage=interval.coverage if interval else None,
        prompts=len(values),
        total_ratio=whole_s[baseline] / whole_s[candidate] if comparable and whole_s[candidate] > 0 else None,
        worst_id=worst,
        worst_ratio=ratios[worst] if worst is not None else None,
        different_ids=tuple(different),
    )


def _spec_of(spec: PromptSetSpec, row: PromptRow) -> CompareSpec:
    return CompareSpec(
        prompt=row.prompt,
        strategies=spec.strategies,
        max_new_tokens=row.max_new_tokens or spec.max_new_tokens,
        rounds=spec.rounds,
        as_chat=spec.as_chat,
        system_prompt=row.system,
        fixed_length=spec.fixed_length,
        sampling=spec.sampling,
    )


def _checked_length(one: CompareSpec, bench: Bench) -> int:
    """Tokens of its prompt; InvalidRequest where an arm could not run it. What is beyond the context is named together
    with the others that are."""
    request, limit = one.prompt_of_run(), bench.model.context_limit
    length = bench.count(GenerationRequest(request, one.max_new_tokens))
    if limit is None or length + one.max_new_tokens <= limit:
        for key in one.strategies:
            bench.check_size(GenerationRequest(request, one.max_new_tokens, key), length)
    return length


def _checked_lengths(spec: PromptSetSpec, specs: Sequence[CompareSpec], bench: Bench) -> list[int]:
    """Tokens of every prompt; InvalidRequest that names all rows which do not fit with their answer."""
    known = [limit for limit in (spec.longest_tokens, bench.model.context_limit) if limit is not None]
    lengths, bad = [], []
    for row, one in zip(spec.prompts, specs, strict=True):
        try:
            length = _checked_length(one, bench)
        except InvalidRequest as error:
            bad.append((row.id, str(error)))
            continue
        lengths.append(length)
        if known and length + one.max_new_tokens > min(known):
            needed = f"{length:,} prompt tokens and {one.max_new_tokens:,} new ones"
            bad.append((row.id, f"needs {needed}; the longest request is {min(known):,} tokens"))
    if bad:
        raise bad_rows(bad)
    return lengths
