"""What was seen of a program, in words: for each place that generates the cache, the proof, times and memory; a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from statistics import median

from kvdemo.facts.units import format_bytes, format_count, format_seconds
from kvdemo.watching.record import INTERRUPTED, Call, Watched

__all__ = [
    "NEVER",
    "cache_words",
    "ended_words",
    "heading",
    "lines_of",
    "places",
    "proof_words",
    "rest_words",
    "times_words",
    "verdict_sentence",
]

NEVER = "generate was never called: this text comes from elsewhere; use the endpoint check"
SHOWN = 4  # forwards, and reuses: enough to see how it goes on
MOST_PLACES = 12

OFF = {
    "call": "the call says use_cache=False",
    "code": "a line of the program switched it off on the model in memory (model.generation_config.use_cache)",
    "generation_config.json": "generation_config.json says use_cache: false",
    "model": "this model's own code keeps none",
    "watch": "switched off for this run",
    "library default": "generate was left at the library's default",
}
ON = {
    "call": "switched on in the call",
    "code": "switched on by a line of the program, on the model in memory",
    "generation_config.json": "as generation_config.json says",
    "config.json": "as config.json says",
    "library default": "left at the library's default",
    "model": "the model insists",
    "watch": "put there for this run",
}


def lines_of(watched: Watched) -> list[str]:
    """The whole answer, for a terminal."""
    groups = places(watched)
    lines: list[str] = []
    for calls in groups[:MOST_PLACES]:
        lines.append(heading(calls))
        lines += [f"  {name:<13} {words}" for name, words in _rows(calls, watched, whole=len(groups) == 1)]
        lines += [""] if len(groups) > 1 else []
    if len(groups) > MOST_PLACES:
        lines.append(f"and calls of {len(groups) - MOST_PLACES} further kinds")
    if len(groups) > 1:
        lines.append(f"Your script took {_time_words(watched)}.")
    if watched.calls_left_out:
        lines.append(f"{format_count(watched.calls_left_out)} further calls were seen and not kept.")
    lines += [f"Note: {note}" for note in watched.notes]
    status = watched.script.exit_code
    if status and groups:
        lines.append(f"Your script {ended_words(status)}; this is what it did until then.")
    return [*lines, verdict_sentence(watched)]


def places(watched: Watched) -> list[list[Call]]:
    """The calls by where they come from and what they did with a cache, in the order in which the first of each came."""
    groups = [list(calls) for _, calls in groupby(sorted(watched.calls, key=_kind), key=_kind)]
    return sorted(groups, key=lambda calls: calls[0].began_s)


def _kind(call: Call) -> tuple[object, ...]:
    """Calls of one kind are told together."""
    setting = (call.use_cache.value or False, call.use_cache.source, call.cache_class or "", call.cache_origin)
    return call.where, call.how, call.model, setting, str(call.cached), call.error or "", call.beams, call.rows


def heading(calls: Sequence[Call]) -> str:
    first, times = calls[0], times_words(len(calls))
    failed = f", and ended with {first.error}" if first.error else ""
    if first.how == "own loop":
        return f"your own loop over model(...) ran {times} at {first.where}{failed}"
    if first.how == "continuous batching":
        return f"continuous batching ran {times}, started from {first.where}{failed}"
    return f"{first.how} was called {times} from {first.where}{failed}"


def times_words(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number) or f"{format_count(number)} times"


def _rows(calls: Sequence[Call], watched: Watched, *, whole: bool) -> Iterator[tuple[str, str]]:
    first = calls[0]
    yield "cache", cache_words(first)
    yield "proof", proof_words(first)
    if len(watched.models) > 1:
        yield "model", f"{first.model} ({first.model_type})"
    if any(call.reused_tokens for call in calls):
        yield "reused", _reused_words(calls)
    if first.how in ("generate_batch", "continuous batching"):
        yield "requests", f"{format_count(first.batch_size)} together"
    elif first.rows > 1:
        yield "batch", _batch_words(first)
    if first.assistant is not None:
        yield "assistant", _assistant_words(first)
    yield "lengths", f"{_range(calls, 'prompt_tokens')} prompt tokens, {_range(calls, 'new_tokens')} new{_ends(calls)}"
    if any(call.ttft_s is not None for call in calls):
        after = _middle(call.tpot_s for call in calls)
        then = f", then {format_seconds(after)} per token" if after is not None else ""
        yield "times", f"first token after {format_seconds(_middle(call.ttft_s for call in calls))}{then}"
    if whole:
        yield "your script", _time_words(watched)
    yield "memory", _memory_words(calls)


def cache_words(call: Call) -> str:
    """ "in use: DynamicCache, left at the library's default"."""
    if call.how in ("generate_batch", "continuous batching"):
        return f"in use: {call.cache_class}, as continuous batching has it"
    if call.cached is False or call.use_cache.value is False:
        return f"off: {off_words(call)}"
    if call.cache_class is None:
        return "cannot be told: no forward was seen" if not call.positions_computed else "in use: the model's own"
    if call.use_cache.source == "watch":
        return f"in use: {call.cache_class}, {ON['watch']}"
    if call.cache_origin == "handed over":
        return f"in use: {call.cache_class}, handed over by your code"
    if call.cache_origin not in ("generate", "handed over"):
        return f'in use: {call.cache_class}, asked for as cache_implementation="{call.cache_origin}"'
    return f"in use: {call.cache_class}, {ON[call.use_cache.source]}"


def off_words(call: Call) -> str:
    """Who switched it off."""
    if call.how == "own loop":
        return "your loop hands none over"
    if call.use_cache.value:
        return "one is asked for, and positions are computed again all the same"
    if call.use_cache.source == "config.json":
        missing = " and there is no generation_config.json" if call.has_generation_config is False else ""
        return f"config.json says use_cache: false{missing}"
    return OFF[call.use_cache.source]


def proof_words(call: Call) -> str:
    """ "forwards saw 2,013, 1, 1, 1 ... tokens"."""
    computed = call.positions_computed
    if not computed:
        return "no forward was seen"
    seen = ", ".join(format_count(number) for number in computed[:SHOWN])
    more = " ..." if len(computed) > SHOWN else ""
    if call.how == "own loop" and call.cached is False:
        return f"your own loop computed {seen}{more} positions: no cache"
    rows = f" in {format_count(call.rows)} rows" if call.rows > 1 else ""
    what = "token" if computed == (1,) else "tokens"
    return f"forwards saw {seen}{more} {what}{rows}"


def _reused_words(calls: Sequence[Call]) -> str:
    shown = [f"{format_count(call.reused_tokens)} of {format_count(call.prompt_tokens)}" for call in calls[: 2 * SHOWN]]
    more = " ..." if len(calls) > 2 * SHOWN else ""
    return f"{', '.join(shown)}{more} prompt tokens, from the cache you kept"


def _batch_words(call: Call) -> str:
    prompts = f"{format_count(call.batch_size)} {'prompt' if call.batch_size == 1 else 'prompts'}"
    beams = f", {call.beams} beams each" if call.beams > 1 else ""
    return f"{prompts}{beams}: {format_count(call.rows)} rows in every forward"


def _assistant_words(call: Call) -> str:
    other = call.assistant
    assert other is not None
    computed = f", {format_count(other.positions_computed)} positions" if other.positions_computed is not None else ""
    return f"{other.model}: {format_count(other.forwards)} forwards{computed}"


def _range(calls: Sequence[Call], name: str) -> str:
    known = [value for value in (getattr(call, name) for call in calls) if value is not None]
    if not known:
        return "n/a"
    low, high = min(known), max(known)
    return format_count(low) if low == high else f"{format_count(low)} to {format_count(high)}"


def _ends(calls: Sequence[Call]) -> str:
    reasons = sorted({call.finish_reason.replace("_", " ") for call in calls if call.finish_reason})
    return f", ended by {' and '.join(reasons)}" if reasons else ""


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _time_words(watched: Watched) -> str:
    script = watched.script
    percent = 100 * script.generation_s / script.wall_s if script.wall_s > 0 else 0.0
    share = " (under 1 %)" if 0 < percent < 1 else f" ({percent:.0f} %)"
    return (
        f"{format_seconds(script.wall_s)} in all: {format_seconds(script.generation_s)} generation{share}, "
        f"{format_seconds(script.other_s)} other"
    )


def _memory_words(calls: Sequence[Call]) -> str:
    most = max(calls, key=lambda call: call.peak_cache_bytes or 0)
    if most.peak_cache_bytes is None:
        return "what the cache held cannot be told"
    if most.peak_cache_bytes == 0:
        return "no cache was held"
    at = f", at {format_count(most.peak_cache_tokens)} tokens" if most.peak_cache_tokens else ""
    return f"peak cache {format_bytes(most.peak_cache_bytes)}{at}"


def verdict_sentence(watched: Watched) -> str:
    """Is there something to change?"""
    calls = [call for call in watched.calls if call.error is None]
    if not watched.calls:
        return _never(watched)
    if not calls:
        return "No call of generate came to its end, so nothing can be said about it."
    without = [call for call in calls if call.cached is False]
    if without:
        return _advice(without, calls)
    if not any(call.cached for call in calls):
        return "Whether a cache was used cannot be told: every call ended with its first forward."
    return f"Nothing to change for speed: the cache is on. {rest_words(watched)}"


def _never(watched: Watched) -> str:
    """Nothing was generated here: it ended before, other processes do it, or it comes from elsewhere."""
    single = watched.single_forwards
    seen = f" ({format_count(single)} forwards of a model were seen; no answer was made of them.)" if single else ""
    if watched.script.exit_code:
        return f"generate was never called: your script {ended_words(watched.script.exit_code)}.{seen}"
    if watched.processes:
        others = "another process, which" if watched.processes == 1 else f"{watched.processes} other processes, which"
        are = "is" if watched.processes == 1 else "are"
        return (
            f"generate was never called in this process. It started {others} {are} not watched: put with kvdemo.watch() as "
            f"seen: around what generates there.{seen}"
        )
    return f"{NEVER}.{seen}"


def ended_words(status: int) -> str:
    return "was interrupted" if status == INTERRUPTED else f"ended with exit code {status}"


def rest_words(watched: Watched) -> str:
    """ "The other 1.7 s are yours."."""
    return f"The other {format_seconds(watched.script.other_s)} are yours."


def _advice(without: Sequence[Call], calls: Sequence[Call]) -> str:
    worst = max(without, key=lambda call: call.generation_s or 0.0)
    share = "" if len(without) == len(calls) else f" in {len(without)} of {len(calls)} calls"
    start = f"The cache is off{share}"
    if worst.how == "own loop":
        return (
            f"{start}: the loop at {worst.where} computes every position again at every step. Hand the cache of each output to "
            "the next forward, and only the newest token with it."
        )
    change: dict[str, Callable[[], str]] = {
        "call": lambda: f"Leave use_cache=False out at {worst.where}.",
        "code": lambda: "Leave that line out.",
        "generation_config.json": lambda: (
            "Take use_cache out of generation_config.json, or give use_cache=True in the call."
        ),
        "config.json": lambda: "Give use_cache=True in the call, or write a generation_config.json that says it.",
        "watch": lambda: "That was asked for.",
    }
    what = change.get(worst.use_cache.source, lambda: "Another model would keep one.")()
    return f"{start}: {off_words(worst)}. {what}"
