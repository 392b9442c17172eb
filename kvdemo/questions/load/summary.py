"""What the rounds of a mode come to: medians over rounds, quantiles over requests, goodput, the largest load that is met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvdemo.experiments.comparison import Comparison
from kvdemo.experiments.statistics import median, paired_ratios, ratio_figures
from kvdemo.experiments.summary import Decode, first_difference, judge
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.questions.load.spec import LOAD_METRIC, LoadComparison, LoadPoint, LoadSpec, ModeRun, mode_of

__all__ = [
    "Difference",
    "ModeSummary",
    "Quantiles",
    "compared",
    "difference_of",
    "largest_that_meets",
    "summarise_mode",
]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Over requests: nearest rank, so that each is a value that was measured."""

    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """One mode at one number of requests, over its counted rounds. None is "not known".

    requests            of one round; failed, preempted: of all rounds together, warm-ups left out
    ttft_s              accepted to first token; first_token_s: the same from the request's arrival, its queue included
    positions_computed  of one round; forwards: how many there were
    same_output         every request's tokens equal the first mode's
    """

    mode: str
    requests: int
    rounds: int
    failed: int
    preempted: int
    output_tokens: int | None
    wall_s: float | None
    throughput_tokens_per_s: float | None
    goodput_requests_per_s: float | None
    ttft_s: Quantiles | None
    first_token_s: Quantiles | None
    tpot_s: Quantiles | None
    request_s: Quantiles | None
    queue_s: Quantiles | None
    forwards: int | None
    positions_computed: int | None
    positions_read: int | None
    padding_positions: int | None
    reserved_cache_bytes: int | None
    peak_cache_bytes: int | None
    num_pages: int | None
    peak_pages: int | None
    reused_tokens: int | None
    same_output: bool | None = None


def summarise_mode(spec: LoadSpec, point: LoadPoint, mode: str) -> ModeSummary:
    """What do the counted rounds of this mode come to?"""
    counted = point.of(mode)
    timed = [run for run in point.runs if run.mode == mode and run.round > 0]
    requests = [run for one in counted for run in one.record.runs]
    last = counted[-1].record if counted else None
    pages = [forward.pages for forward in (last.forwards or () if last else ()) if forward.pages is not None]
    baseline = spec.modes[0]
    same = judge(_pairs(point, baseline, mode), expected_equal=False).same_output if mode != baseline else None
    return ModeSummary(
        mode=mode,
        requests=point.requests,
        rounds=len(counted),
        failed=sum(run.status == "failed" for one in timed for run in one.record.runs),
        preempted=sum(_preempted(run) for run in requests),
        output_tokens=last.output_tokens if last else None,
        wall_s=median(one.record.wall_s for one in counted),
        throughput_tokens_per_s=median(one.record.throughput_tokens_per_s for one in counted),
        goodput_requests_per_s=median(_goodput(spec, one) for one in timed),
        ttft_s=_quantiles(run.ttft_s for run in requests),
        first_token_s=_quantiles(None if run.ttft_s is None else run.queue_s + run.ttft_s for run in requests),
        tpot_s=_quantiles(run.tpot_s for run in requests),
        request_s=_quantiles(run.request_s for run in requests),
        queue_s=_quantiles(None if _preempted(run) else run.queue_s for run in requests),
        forwards=len(last.forwards) if last and last.forwards is not None else None,
        positions_computed=last.positions_computed if last else None,
        positions_read=last.positions_read if last else None,
        padding_positions=last.padding_positions if last else None,
        reserved_cache_bytes=last.reserved_cache_bytes if last else None,
        peak_cache_bytes=last.peak_cache_bytes if last else None,
        num_pages=last.num_pages if last else None,
        peak_pages=max(pages, default=None),
        reused_tokens=last.reused_tokens if last else None,
        same_output=same,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two modes part: the request, the tokens that both made before, and the one that each made then."""

    request: int
    made: tuple[int, ...]
    one: int | None
    other: int | None


def difference_of(point: LoadPoint, baseline: str, mode: str) -> Difference | None:
    """The first request of the first round whose tokens differ; None where none does."""
    for one, other in point.both(baseline, mode):
        for index, (left, right) in enumerate(zip(one.record.runs, other.record.runs, strict=False)):
            ids, others = left.token_ids, right.token_ids
            at = None if ids is None or others is None else first_difference(ids, others)
            if ids is not None and others is not None and at is not None:
                return Difference(
                    index, ids[:at], ids[at] if at < len(ids) else None, others[at] if at < len(others) else None
                )
    return None


def _pairs(point: LoadPoint, baseline: str, mode: str) -> list[tuple[RunRecord, RunRecord]]:
    """Each request in both modes, round by round."""
    both = point.both(baseline, mode)
    return [pair for one, other in both for pair in zip(one.record.runs, other.record.runs, strict=False)]


def compared(
    spec: LoadSpec, point: LoadPoint, model: ModelFacts, gaps: dict[str, float | None], decode: Decode | None = None
) -> tuple[LoadComparison, ...]:
    """Every further mode beside the first: throughput inside each round, and the tokens of each request."""
    return tuple(_compared(spec.modes[0], mode, point, model, gaps.get(mode), decode) for mode in spec.modes[1:])


def _compared(
    baseline: str, mode: str, point: LoadPoint, model: ModelFacts, gap: float | None, decode: Decode | None
) -> LoadComparison:
    both = point.both(baseline, mode)
    # Throughput grows where times shrink: the candidate's stands above.
    ratios = paired_ratios(
        (other.record.throughput_tokens_per_s, one.record.throughput_tokens_per_s) for one, other in both
    )
    pairs = _pairs(point, baseline, mode)
    paged = "continuous" in (mode_of(baseline).serving, mode_of(mode).serving)
    verdict = judge(pairs, expected_equal=model.dtype == "float32" and not paged, decode=decode)
    differs = difference_of(point, baseline, mode)
    comparison = Comparison(
        baseline=baseline,
        candidate=mode,
        metric=LOAD_METRIC,
        verdict=verdict,
        **ratio_figures(ratios),
    )
    return LoadComparison(comparison, None if differs is None else differs.request, gap)


def largest_that_meets(spec: LoadSpec, points: Iterable[LoadPoint], mode: str) -> tuple[int | None, int | None]:
    """(the largest number of requests of which every one meets the target, the next larger one of which one does not)."""
    meets: list[tuple[int, bool]] = []
    for point in sorted(points, key=lambda one: one.requests):
        timed = [run for run in point.runs if run.mode == mode and run.round > 0 and run.status in ("ok", "failed")]
        judged = [met for run in timed for one in run.record.runs if (met := spec.met(one)) is not None]
        # What failed as a whole, the warm-up too, has no requests to judge, and has missed it.
        judged += [False for run in point.runs if run.mode == mode and run.status == "failed" and not run.record.runs]
        if judged:
            meets.append((point.requests, all(judged)))
    missing = next((number for number, met in meets if not met), None)
    held = [number for number, met in meets if met and (missing is None or number < missing)]
    return max(held, default=None), missing


def _goodput(spec: LoadSpec, one: ModeRun) -> float | None:
    """Requests that met every target, per second; None without a target, or where the run was cut short."""
    if not spec.has_target or one.status not in ("ok", "failed"):
        return None
    if one.status == "failed":
        return 0.0
    judged = [met for run in one.record.runs if (met := spec.met(run)) is not None]
    return sum(judged) / one.record.wall_s if judged and one.record.wall_s else None


def _preempted(run: RunRecord) -> bool:
    """Its tokens are there, and its times are not."""
    return run.status == "ok" and bool(run.new_tokens) and not run.token_times_s


def _quantiles(values: Iterable[float | None]) -> Quantiles | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    rank: Callable[[float], float] = lambda share: known[max(0, math.ceil(share * len(known)) - 1)]  # noqa: E731
    return Quantiles(rank(0.5), rank(0.95), known[-1])
