"""A load in words: how much more is served, whether the tokens are the same, what it held, and whether a target is met. Pure."""

from __future__ import annotations

from kvdemo.experiments.pieces import (
    ENOUGH,
    Pieces,
    asked_rows,
    decision_open,
    in_sentence,
    scope_words,
)
from kvdemo.experiments.statistics import median
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds, format_speed
from kvdemo.questions.load.spec import LoadComparison, LoadResult, LoadRound, mode_of
from kvdemo.questions.load.summary import largest_that_meets, summarise_mode

__all__ = [
    "CAPTION",
    "METHOD",
    "command",
    "headline",
    "open_points",
    "remarks",
    "request",
    "scope",
    "so_far",
    "verdicts",
]

METHOD = (
    "The modes served the same requests one after the other in rounds whose order rotates, after a short warm-up of each; "
    "nobody else used the model meanwhile. Throughput is all new tokens over the time from the first arrival to the last "
    "token; its ratio is taken inside each round. A target counts from a request's arrival, so its queue is part of it. Where "
    "requests arrive one after the other, a padded batch takes all that wait when the model is free."
)
CAPTION = "One row per number of requests and mode: times as p50 / p95 / max over requests"
NO_DIFFERENCE = 0.05


def headline(result: LoadResult) -> Pieces:
    """Which mode serves most, by how much, with the same tokens or not, and does it meet the target?"""
    known = [item for item in result.comparisons if item.comparison.ratio is not None]
    if not known:
        return [*_alone(result), *_target(result), *_ending(result)]
    best = max(known, key=lambda item: item.comparison.ratio or 0.0)
    pieces = [*_ratio(result, best), *_others(known, best), *_tokens(result), *_held(result, best)]
    return [*pieces, *_target(result), *_ending(result)]


def _alone(result: LoadResult) -> Pieces:
    found = [summarise_mode(result.spec, result.main, key) for key in result.spec.modes]
    served = [one for one in found if one.throughput_tokens_per_s is not None]
    if not served:
        return [("No mode answered all requests, so there is nothing to compare.", True)]
    one = served[0]
    label, speed = mode_of(one.mode).label, format_speed(one.throughput_tokens_per_s)
    return [(f"{label}: {_requests(one.requests)} at {speed} together.", True)]


def _ratio(result: LoadResult, best: LoadComparison) -> Pieces:
    item = best.comparison
    ratio, label = item.ratio or 0.0, mode_of(item.candidate).label
    first = in_sentence(mode_of(item.baseline).label)
    speeds = [
        format_speed(summarise_mode(result.spec, result.main, key).throughput_tokens_per_s)
        for key in (item.candidate, item.baseline)
    ]
    unclear = (
        item.low <= 1 <= item.high
        if item.low is not None and item.high is not None and not item.range_only
        else abs(ratio - 1) <= NO_DIFFERENCE
    )
    if unclear:
        said = f"No difference we can see in throughput: {format_ratio(ratio)} times with {in_sentence(label)}"
    elif ratio > 1:
        said = f"{label} served {_requests(result.spec.requests)} at {speeds[0]}, {first} at {speeds[1]}: "
        said += f"{format_ratio(ratio)} times the throughput"
    else:
        said = f"{label} served less: {speeds[0]}, {first} {speeds[1]}, {format_ratio(ratio)} times the throughput"
    if item.rounds < ENOUGH:
        rounds = "one round" if item.rounds == 1 else f"{item.rounds} rounds{_between(best)}"
        return [("First look: ", False), (said, True), (f" in {rounds}. Run 6 rounds to decide.", False)]
    return [(said, True), (f" ({_between(best).removeprefix(', ')} in {item.rounds} paired rounds).", False)]


def _between(found: LoadComparison) -> str:
    item = found.comparison
    if item.low is None or item.high is None:
        return ""
    return f", {format_ratio(item.low)} to {format_ratio(item.high)}"


def _others(known: list[LoadComparison], best: LoadComparison) -> Pieces:
    said = [
        f"{mode_of(item.comparison.candidate).label}: {format_ratio(item.comparison.ratio)} times"
        for item in known
        if item is not best
    ]
    return [(f" {'; '.join(said)}.", False)] if said else []


def _tokens(result: LoadResult) -> Pieces:
    judged = [item for item in result.comparisons if item.comparison.verdict.same_output is not None]
    faults = [item for item in judged if item.comparison.verdict.same_output is False]
    if judged and not faults:
        return [(" Same tokens for every request.", False)]
    return [
        (f" {sentence}", item.comparison.verdict.expected_equal)
        for item, sentence in ((item, _difference(item)) for item in faults)
    ]


def _difference(item: LoadComparison) -> str:
    verdict, label = item.comparison.verdict, mode_of(item.comparison.candidate).label
    where = f"request {(item.request or 0) + 1}, at token {(verdict.first_difference or 0) + 1}"
    gap = "" if item.gap_there is None else f"; there the two tokens' logits are {item.gap_there:.2g} apart"
    if verdict.expected_equal:
        return f"{label}: the tokens differ first in {where}{gap}. In greedy float32 this is a fault."
    return f"{label}: the tokens differ first in {where}{gap}. This is no test of quality."


def _held(result: LoadResult, best: LoadComparison) -> Pieces:
    found = summarise_mode(result.spec, result.main, best.comparison.candidate)
    if found.peak_cache_bytes is None or found.reserved_cache_bytes is None:
        return []
    held, reserved = format_bytes(found.peak_cache_bytes), format_bytes(found.reserved_cache_bytes)
    return [(f" It used {held} of cache at the most, of {reserved} reserved.", False)]


def _target(result: LoadResult) -> Pieces:
    spec = result.spec
    if not spec.has_target:
        return []
    pieces: Pieces = []
    for key in spec.modes:
        most, missing = largest_that_meets(spec, result.points, key)
        if most is None and missing is None:
            continue
        label = mode_of(key).label
        held = "none meets the target" if most is None else f"{format_count(most)} at once meet the target"
        miss = "" if missing is None else f", {format_count(missing)} miss it"
        said = f"{held}{miss}" if most is not None else f"{format_count(missing)} at once miss the target"
        pieces.append((f" {label}: {said}.", False))
    return pieces


def _ending(result: LoadResult) -> Pieces:
    if result.stopped_because in ("rounds", "failed"):
        failed = [
            key
            for key in result.spec.modes
            if any(run.mode == key and run.status == "failed" for run in result.main.runs)
        ]
        return [(f" Failed: {', '.join(mode_of(key).label for key in failed)}.", True)] if failed else []
    why = {"budget": "The time budget", "limit": "The time limit", "stopped": "Stop"}.get(result.stopped_because, "It")
    return [(f" {why} ended it early.", False)]


def _requests(count: int) -> str:
    return "one request" if count == 1 else f"{format_count(count)} requests"


def scope(result: LoadResult) -> str:
    """What was it measured on?"""
    spec = result.spec
    prompts = [run.prompt_tokens for one in result.main.runs for run in one.record.runs if run.prompt_tokens]
    between = " to ".join(dict.fromkeys(format_count(one) for one in (min(prompts), max(prompts)))) if prompts else ""
    lengths = [f"prompts of {between} tokens"] if between else []
    come = "all together" if spec.rate_per_s is None else f"{spec.rate_per_s:g} a second, Poisson gaps"
    return scope_words(result.model, result.environment, *lengths, f"{_requests(spec.requests)}, {come}")


def so_far(step: object) -> str:
    """A round that is over."""
    if not isinstance(step, LoadRound):
        return ""
    said = [
        f"{mode_of(run.mode).label} {format_speed(run.record.throughput_tokens_per_s) if run.status == 'ok' else run.status}"
        for run in step.runs
    ]
    return f"{_requests(step.requests)}, round {step.number}: {', '.join(said)}"


def verdicts(result: LoadResult) -> list[str]:
    """Where the tokens part; the table says the rest."""
    return [_difference(item) for item in result.comparisons if item.comparison.verdict.same_output is False]


def open_points(result: LoadResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    enough = any(item.comparison.rounds >= ENOUGH for item in result.comparisons)
    return [
        *([] if enough else ["How much the ratio varies: six rounds or more would tell."]),
        *decision_open(decision is not None),
        *(
            []
            if result.spec.has_target
            else ["Whether people wait too long: give a target for the first token or the request."]
        ),
        *(
            []
            if result.spec.rate_per_s is not None
            else ["Requests that arrive one after the other: these came all together."]
        ),
        "A serving engine in a process of its own, which --url asks the same: this one ran beside the program that measured it.",
    ]


def request(result: LoadResult) -> list[tuple[str, str]]:
    """What was asked."""
    spec = result.spec
    return asked_rows(
        {
            "modes": tuple(mode_of(key).label for key in spec.modes),
            "requests": spec.requests,
            "prompts": len(spec.prompts),
            "arrivals": "together"
            if spec.rate_per_s is None
            else f"{spec.rate_per_s:g} a second, seed {spec.arrival_seed}",
            "new tokens": spec.max_new_tokens,
            "rounds": spec.rounds,
            "fixed length": spec.fixed_length,
            "as chat": spec.as_chat,
            "page size": spec.page_size,
            "pages": spec.num_pages,
            "target, first token": None if spec.target_ttft_s is None else format_seconds(spec.target_ttft_s),
            "target, request": None if spec.target_request_s is None else format_seconds(spec.target_request_s),
            "sweep": spec.sweep,
        }
    )


def remarks(result: LoadResult) -> list[str]:
    """Work explains the gain."""
    said = []
    for key in result.spec.modes:
        found = summarise_mode(result.spec, result.main, key)
        if found.positions_computed is None or not found.forwards or not found.positions_computed:
            continue
        waste = f", {100 * (found.padding_positions or 0) / found.positions_computed:.0f} % of them padding"
        said.append(
            f"{mode_of(key).label}: {format_count(found.forwards)} forwards computed {format_count(found.positions_computed)} "
            f"positions{waste if found.padding_positions else ''}, and read {format_count(found.positions_read)}."
        )
    walls = median(run.record.wall_s for key in result.spec.modes for run in result.main.of(key))
    return said if walls is not None else []


def command(result: LoadResult) -> list[str]:
    """One prompt can be said with switches; a set is in a file of one's own."""
    spec = result.spec
    if len(spec.prompts) != 1 or spec.prompts[0].system or spec.prompts[0].max_new_tokens:
        return []
    switches = ["--prompt", spec.prompts[0].prompt, "--requests", str(spec.requests)]
    for key in spec.modes:
        switches += ["--mode", key]
    switches += ["--max-new-tokens", str(spec.max_new_tokens), "--rounds", str(spec.rounds)]
    switches += ["--chat"] if spec.as_chat else []
    switches += [] if spec.fixed_length else ["--stop-at-end"]
    given = {
        "--rate": spec.rate_per_s,
        "--arrival-seed": spec.arrival_seed or None,
        "--pages": spec.num_pages,
        "--page-size": spec.page_size if spec.page_size != 128 else None,
        "--target-ttft": spec.target_ttft_s,
        "--target-request": spec.target_request_s,
        "--sweep": ",".join(map(str, spec.sweep)) or None,
        "--time-budget": spec.time_budget_s,
    }
    return [*switches, *(word for name, value in given.items() if value is not None for word in (name, f"{value}"))]
