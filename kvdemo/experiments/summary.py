"""What follows from the runs of a comparison: paired ratios, the verdict on the tokens, one row per arm. Pure.

It never runs anything, so that a stopped comparison, an opened file and a finished one are summed up alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kvdemo.experiments.comparison import (
    METRICS,
    ArmSummary,
    CompareSpec,
    Comparison,
    ComparisonResult,
    Noise,
    StopReason,
    Verdict,
)
from kvdemo.experiments.statistics import (
    line_of_runs,
    median,
    paired_ratios,
    ratio_figures,
    spread,
)
from kvdemo.facts.model import ModelFacts, StrategyRow
from kvdemo.facts.records import RunRecord
from kvdemo.facts.results import Environment

__all__ = [
    "Decode",
    "arms",
    "compare_records",
    "first_difference",
    "judge",
    "noise_of",
    "paired",
    "request_size",
    "summarise",
    "summarise_arm",
]

Decode = Callable[[tuple[int, ...]], str]

AROUND_TOKENS = 8
AROUND_CHARS = 32


def summarise(
    spec: CompareSpec,
    runs: Iterable[RunRecord],
    *,
    model: ModelFacts,
    environment: Environment,
    strategies: Mapping[str, StrategyRow],
    stopped_because: StopReason = "rounds",
    gaps: Mapping[str, float | None] | None = None,
    decode: Decode | None = None,
    noise: Noise | None = None,
) -> ComparisonResult:
    """What do these runs say? The first strategy is the baseline of every comparison; `gaps` are by candidate.

    noise: of this machine, as it was measured before; an arm that is the baseline again measures it here.
    """
    rows = spec.arm_rows(strategies)
    kept = tuple(runs)
    comparisons: list[Comparison] = []
    for row in rows[1:]:
        pairs = paired(kept, rows[0].key, row.key)
        expected = rows[0].exact and row.exact and spec.sampling.greedy and model.dtype == "float32"
        verdict = judge(pairs, expected_equal=expected, gap=(gaps or {}).get(row.key), decode=decode)
        comparisons += compare_records(rows[0].key, row.key, pairs, verdict)
    stored = tuple(strategies[key] for key in spec.strategies)
    here = noise_of(spec, comparisons) or noise
    return ComparisonResult(spec, model, environment, kept, tuple(comparisons), stopped_because, stored, here)


def noise_of(spec: CompareSpec, comparisons: Iterable[Comparison]) -> Noise | None:
    """How much did the baseline differ from itself? None where it did not run twice."""
    for item in comparisons:
        if spec.noise and item.candidate == spec.arms[-1] and item.metric == "generation_s" and item.ratio is not None:
            return Noise(item.ratio, item.low, item.high, item.rounds, spec.max_new_tokens)
    return None


def paired(runs: Iterable[RunRecord], baseline: str, candidate: str) -> tuple[tuple[RunRecord, RunRecord], ...]:
    """The two arms' runs of every round in which both count, in the order of the rounds."""
    by_place = {(run.round, run.arm_key): run for run in runs if run.counts}
    rounds = sorted({number for number, _ in by_place if number is not None})
    return tuple(
        (by_place[number, baseline], by_place[number, candidate])
        for number in rounds
        if (number, baseline) in by_place and (number, candidate) in by_place
    )


def compare_records(
    baseline: str, candidate: str, pairs: Sequence[tuple[RunRecord, RunRecord]], verdict: Verdict
) -> list[Comparison]:
    """One comparison per metric. The ratio is taken inside each round; the result is the median of the ratios.

    Where the arms made different numbers of tokens, whole times are not comparable: the time per output token is.
    """
    different = any(first.new_tokens != second.new_tokens for first, second in pairs)
    comparisons = []
    for metric in METRICS:
        per_token = different and metric in ("generation_s", "request_s")
        name = "tpot_s" if per_token else metric
        ratios = paired_ratios((getattr(first, name), getattr(second, name)) for first, second in pairs)
        comparisons.append(
            Comparison(
                baseline=baseline,
                candidate=candidate,
                metric=metric,
                verdict=verdict,
                **ratio_figures(ratios),
                per_token=per_token,
            )
        )
    return comparisons


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """Index of the first item that differs; where one is a prefix of the other, its length; None when equal."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def judge(
    pairs: Sequence[tuple[RunRecord, RunRecord]],
    *,
    expected_equal: bool,
    gap: float | None = None,
    decode: Decode | None = None,
) -> Verdict:
    """Are the tokens the same in every round? Shows the first round in which they are not."""
    known = [(one, other) for one, other in pairs if one.token_ids is not None and other.token_ids is not None]
    if not known:
        return Verdict(None, None, expected_equal)
    for one, other in known:
        index = first_difference(one.token_ids or (), other.token_ids or ())
        if index is not None:
            texts = _texts_around(one, other, index, decode)
            return Verdict(False, index, expected_equal, *texts, largest_gap=gap)
    return Verdict(True, None, expected_equal, largest_gap=gap)


def arms(result: ComparisonResult) -> tuple[ArmSummary, ...]:
    """The table of a comparison: one row per arm, in the order of the spec."""
    return result.arm_summaries


def summarise_arm(result: ComparisonResult, key: str) -> ArmSummary:
    """What do the counted runs of this arm come to?"""
    row, counted = result.row(key), result.counted(key)
    warmup = next((run for run in result.runs if run.arm_key == key and run.warmup), None)
    last = counted[-1] if counted else None
    compiling = [run.compile_s for run in result.runs if run.arm_key == key and run.compile_s is not None]
    tokens = [run.new_tokens for run in counted]
    steps_of_runs = [run.step_s for run in counted]
    steps = tuple(median(times) or 0.0 for times in zip(*steps_of_runs, strict=False))
    return ArmSummary(
        strategy=key,
        label=row.label,
        exact=row.exact,
        n=len(counted),
        generation_s=spread(run.generation_s for run in counted),
        request_s=spread(run.request_s for run in counted),
        ttft_s=spread(run.ttft_s for run in counted),
        tpot_s=spread(run.tpot_s for run in counted),
        decode_s=spread(run.decode_s for run in counted),
        queue_s=spread(run.queue_s for run in counted),
        prepare_s=spread(run.prepare_s for run in counted),
        tokens=(min(tokens), max(tokens)) if tokens else None,
        prompt_tokens=last.prompt_tokens if last else None,
        cache_bytes=last.cache_bytes if last else None,
        cache_storage_bytes=last.cache_storage_bytes if last else None,
        cache_bytes_by_device=dict(last.cache_bytes_by_device) if last else {},
        peak_bytes=spread(run.peak_bytes for run in counted),
        peak_kind=last.peak_kind if last else None,
        positions_computed=last.total_computed if last else None,
        compile_s=sum(compiling) if compiling else None,
        warmup_s=warmup.generation_s if warmup else None,
        step_s=steps,
        step_line=line_of_runs(steps_of_runs, steps),
        finish_reasons=tuple(sorted({run.finish_reason for run in counted if run.finish_reason})),
        left_out=sum(run.arm_key == key and run.status != "ok" for run in result.runs),
    )


def _texts_around(one: RunRecord, other: RunRecord, index: int, decode: Decode | None) -> tuple[str, str]:
    """Both texts from a little before the first difference to a little after it."""
    if decode is not None:
        begin, end = max(0, index - AROUND_TOKENS), index + AROUND_TOKENS
        return decode((one.token_ids or ())[begin:end]), decode((other.token_ids or ())[begin:end])
    split = first_difference(one.text, other.text)
    at = split if split is not None else len(one.text)
    begin, end = max(0, at - AROUND_CHARS), at + AROUND_CHARS
    return one.text[begin:end], other.text[begin:end]


def request_size(result: ComparisonResult) -> tuple[int, int]:
    """(tokens of prompt and answer, new tokens) of its longest run."""
    return max((((run.prompt_tokens or 0) + run.new_tokens, run.new_tokens) for run in result.runs), default=(0, 0))
