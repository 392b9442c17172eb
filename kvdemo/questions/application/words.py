"""My application in words: which cache its calls use, what another one does to generation and to the whole of it."""

from __future__ import annotations

from kvdemo.experiments.pieces import ENOUGH, Pieces, capital, factor, machine_words
from kvdemo.experiments.statistics import median
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_count, format_seconds
from kvdemo.questions.application.spec import NO_MODEL, PYTHON, ApplicationResult, Ratio, RatioMetric
from kvdemo.watching.record import Call
from kvdemo.watching.words import cache_words, ended_words, heading, places, proof_words, times_words, verdict_sentence

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
    "The program ran unchanged in a process that watched every call of generate and every forward of its models from outside: "
    "positions are counted from what each forward was given. A comparison runs it again and again with only the cache setting "
    "overridden, each way as a process of its own, in rounds whose order rotates, after a warm-up of each; a ratio is taken "
    "inside each round, and the result is the median of the ratios."
)
CAPTION = "One row per place that generates, or per way of running it"
WHOLE: tuple[tuple[RatioMetric, str], ...] = (("generation_s", "generation"), ("wall_s", "the whole application"))


def headline(result: ApplicationResult) -> Pieces:
    """Is the cache on, and what is it worth here?"""
    if not result.spec.compare:
        return _seen(result)
    pieces: Pieces = []
    for candidate in result.spec.compare[1:]:
        pieces += _compared(result, candidate, first=not pieces)
    failed = [run for run in result.runs if run.status == "failed"]
    if failed and failed[0].error:
        pieces.append((f" {capital(result.label(failed[0].arm))} failed: {failed[0].error.rstrip('.')}.", False))
    if result.stopped_because == "stopped":
        pieces.append((" Stopped before all rounds were done.", False))
    return pieces


def _seen(result: ApplicationResult) -> Pieces:
    groups = places(result.watched)
    if not groups:
        return [(capital(verdict_sentence(result.watched)), True)]
    generated = len(result.watched.calls) + result.watched.calls_left_out
    several = f"it generated {times_words(generated)}, in different ways"
    script = result.watched.script
    begins = heading(groups[0]) if len(groups) == 1 else several
    return [
        (f"{begins if begins.startswith('generate_batch') else capital(begins)}. ", False),
        (verdict_sentence(result.watched), True),
        (
            f" {format_seconds(script.wall_s)} in all: {format_seconds(script.generation_s)} generation, "
            f"{format_seconds(script.other_s)} other.",
            False,
        ),
    ]


def _compared(result: ApplicationResult, candidate: str, *, first: bool) -> Pieces:
    generation, whole = (result.compared(candidate, metric) for metric, _ in WHOLE)
    label, baseline = result.label(candidate), result.label(result.spec.compare[0])
    lead = "" if first else " "
    if generation is None or whole is None or (generation.ratio is None and whole.ratio is None):
        return [(f"{lead}{capital(label)}: no round in which both ended, so there is nothing to compare.", True)]
    said = [
        f"{name} {factor(one.ratio)}{_between(one)}"
        for one, (_, name) in zip((generation, whole), WHOLE, strict=True)
        if one.ratio is not None
    ]
    pieces: Pieces = [(f"{lead}{capital(label)}, compared with {baseline}: {', '.join(said)}.", True)]
    other_s = median(
        run.wall_s - run.generation_s
        for run in result.runs
        if run.arm == candidate and run.counts and run.wall_s is not None and run.generation_s is not None
    )
    if other_s is not None and generation.ratio is not None and whole.ratio is not None and generation.ratio > 1.05:
        pieces.append((f" {format_seconds(other_s)} are spent elsewhere.", False))
    if generation.rounds < ENOUGH:
        rounds = "one round" if generation.rounds == 1 else f"{generation.rounds} rounds"
        pieces.append((f" A first look: {rounds}. Enough to go on, not enough to decide.", False))
    environments = f" {_environments(result, candidate)}" if PYTHON in candidate + result.spec.compare[0] else ""
    return [*pieces, (f" {_same(generation)}{environments}", False)]


def _environments(result: ApplicationResult, candidate: str) -> str:
    """Did one of two environments lose the cache?"""
    arms = [next(arm for arm in result.arms if arm.key == key) for key in (result.spec.compare[0], candidate)]
    named = [f"{arm.label} (transformers {arm.transformers})" for arm in arms]
    if None in (arms[0].cached, arms[1].cached):
        return "Whether the cache is in use in both cannot be told."
    if arms[0].cached is arms[1].cached:
        both = "in both, so none was lost" if arms[0].cached else "in neither"
        return f"The cache is in use {both}: {' and '.join(named)}."
    on, off = named if arms[0].cached else named[::-1]
    return f"The cache is lost in one: in use with {on}, and every position computed again with {off}."


def _between(one: Ratio) -> str:
    """ " (4.0 to 4.5 in 6 paired rounds)"; turned over with `factor` where the ratio is below 1."""
    if one.low is None or one.high is None or one.ratio is None:
        return ""
    low, high = (1 / one.high, 1 / one.low) if one.ratio < 1 and one.low > 0 else (one.low, one.high)
    return f" ({low:.2f} to {high:.2f} in {one.rounds} paired rounds)"


def _same(one: Ratio) -> str:
    if one.same_output:
        return "The same tokens in every call."
    if one.same_output is None:
        return "Whether the tokens are the same is not known."
    why = " Some calls choose their tokens at random, so that they differ by themselves." if one.sampled else ""
    return f"Other tokens from call {one.differing_call} on.{why}"


def scope(result: ApplicationResult) -> str:
    """What was it measured on?"""
    there, model = result.environment, result.model
    named = [] if model == NO_MODEL else [model.name.rsplit("/", 1)[-1], model.dtype]
    versions = f"transformers {there.transformers}, torch {there.torch}"
    machine = machine_words(model, there) if model != NO_MODEL else f"{there.cpu_cores} CPU cores"
    words = ", ".join([result.spec.program, *named, machine, versions])
    return f"{words}. Other inputs, machines and lengths give other numbers."


def so_far(step: object) -> str:
    """Nothing is told before the end: the program's own output stands there."""
    return ""


def verdicts(result: ApplicationResult) -> list[str]:
    """The cache and its proof, place by place."""
    return [f"{_place(calls)}: {cache_words(calls[0])}; {proof_words(calls[0])}." for calls in places(result.watched)]


def _place(calls: list[Call]) -> str:
    times = "" if len(calls) == 1 else f", {format_count(len(calls))} times"
    return f"{calls[0].how} at {calls[0].where}{times}"


def open_points(result: ApplicationResult, decision: CacheDecision | None) -> list[str]:
    """What it does not tell."""
    said = ["Other inputs: this is what the program did with the ones it had in this run."]
    if result.watched.cached is False and not any(arm.cached for arm in result.arms):
        said.append("What a cache would be worth here: kvdemo watch --compare as-is,dynamic --rounds 6 tells.")
    elif not result.spec.compare and result.watched.calls:
        said.append("What the cache is worth here: kvdemo watch --compare none,as-is --rounds 6 tells.")
    if any(call.how == "own loop" for call in result.watched.calls):
        said.append("Loops over model(...) hand the cache over themselves: a comparison cannot override that.")
    said.append("What other processes did: only the one that was watched is seen.")
    return said


def request(result: ApplicationResult) -> list[tuple[str, str]]:
    """What was asked; arguments and folders are nobody else's business."""
    spec = result.spec
    asked = [("program", f"-m {spec.program}" if spec.module else spec.program)]
    if spec.compare:
        asked += [("run with", ", ".join(map(result.label, spec.compare))), ("rounds", str(spec.rounds))]
    return asked


def remarks(result: ApplicationResult) -> list[str]:
    """What no column shows."""
    watched = result.watched
    said = list(watched.notes)
    if watched.calls_left_out:
        said.append(f"{format_count(watched.calls_left_out)} further calls were seen and not kept.")
    if result.spec.compare:
        said.append(verdict_sentence(watched))
    if watched.script.exit_code and watched.calls:
        said.append(f"The program {ended_words(watched.script.exit_code)}.")
    return said


def command(result: ApplicationResult) -> list[str]:
    """The program's arguments were not kept, so no line repeats it as it was."""
    return []
