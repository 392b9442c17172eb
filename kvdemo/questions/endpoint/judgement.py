"""Is the cache in use, are beginnings reused, are requests served together? Judged from times alone. Pure.

Every judgement rests on ratios taken inside rounds and on the exact interval of their median. Where that interval is on
neither side of the thresholds, where there are fewer than six rounds, or where the server could hide what is looked for,
the answer is that it cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvdemo.experiments.hits import TEMPLATE_END_TOKENS, Hit, hit_words
from kvdemo.experiments.statistics import MIN_ROUNDS, Interval, median, order_statistic_interval
from kvdemo.facts.endpoint import TEMPLATE_TOKENS
from kvdemo.facts.units import format_count, format_ratio, format_seconds
from kvdemo.questions.endpoint.spec import Judgement

__all__ = [
    "CachePair",
    "Concurrency",
    "PrefixPair",
    "batching",
    "kv_cache",
    "overlap",
    "percent",
    "prefix_reuse",
    "warm_hits",
]

KEPT_BELOW, RECOMPUTED_ABOVE = 0.2, 0.5  # of what a recomputation would add to every step
SEEN_ABOVE = 1.5  # a longer prompt takes so many times as long to the first token, or its work cannot be seen
HIDES_BELOW = 2.0  # a pace that a server keeps hides a recomputation that is not at least so many steps long
LARGEST_PAGE = 256  # tokens that a paged cache shares as one: of shorter prompts it could reuse nothing
REUSED_ABOVE, FRESH_BELOW = 1.2, 1.1  # first token, cold over warm
TOGETHER_ABOVE, ALONE_BELOW = 1.5, 1.2  # tokens a second, many over one
OVERLAP_ABOVE, OVERLAP_BELOW = 1.3, 1.15  # answers that arrive at the same time
FRESH_HITS = 0.01  # of a fresh prompt: from here on it is no fresh prompt to the server
OWN_TOKENS = 15 + TEMPLATE_END_TOKENS  # with which a prompt ends that begins as another did: from its list's number on

ASK = "Whoever runs it can say; the message asks."


@dataclass(frozen=True, slots=True)
class CachePair:
    """A short and a long fresh prompt of one round, each with an answer. Times in s.

    step_*_s         time per token after the first; None where the answer came in one piece or in bursts
    tokens_a_piece   of the stream: above 1 a step of the model may have made several
    hits             of the long prompt, tokens that the server reports as reused; None: it does not say
    growth           how much a step grows with each token of the short prompt's answer, as a share of what a token of prompt
                     adds to a first token; None where tokens have no times of their own
    """

    short_tokens: int
    long_tokens: int
    short_ttft_s: float
    long_ttft_s: float
    short_step_s: float | None
    long_step_s: float | None
    tokens_a_piece: float = 1.0
    hits: int | None = None
    growth: float | None = None


@dataclass(frozen=True, slots=True)
class PrefixPair:
    """The first token of a long prompt: its beginning is new to the server (cold), or was sent before (warm). s.

    *_hits   tokens that the server reports as reused; None: it does not say
    """

    cold_ttft_s: float
    warm_ttft_s: float
    prompt_tokens: int
    cold_hits: int | None = None
    warm_hits: int | None = None


@dataclass(frozen=True, slots=True)
class Concurrency:
    """One number of requests in one round, against one alone in the same round.

    gain      tokens a second, together over alone
    overlap   how many answers arrive at the same time, on average; None where the stream does not tell
    last_s, alone_s   longest wait for a first token among them; a complete answer alone
    """

    gain: float
    overlap: float | None = None
    last_s: float | None = None
    alone_s: float | None = None


# --- does it use a KV cache? -----------------------------------------------------------------------------------------


def kv_cache(pairs: Sequence[CachePair], trouble: str = "") -> Judgement:
    """Does a step cost what its own token costs, or what the whole text costs?

    A longer prompt adds the work of its further tokens to the first token. Without a cache every later step does that work
    again, so a step gets longer by the same time; with one it gets longer by the little that reading more costs. The ratio
    is (long step - short step) / (long first token - short first token): about 1 for recomputation, about 0 for a cache.
    Constant parts of either (network, scheduling, the step's own work) fall out of it.

    trouble: why there are not more of them.
    """
    if len(pairs) < MIN_ROUNDS:
        return _too_few(len(pairs), "pairs of a short and a long prompt", trouble)
    warm = [pair.hits or 0 for pair in pairs if _is_warm(pair.hits, pair.long_tokens)]
    if warm:
        return _warm(max(warm))
    apart = _interval([pair.long_ttft_s / pair.short_ttft_s for pair in pairs])
    short, long = (
        format_count(median(getattr(pair, f"{size}_tokens") for pair in pairs)) for size in ("short", "long")
    )
    if apart.low < SEEN_ABOVE:
        return Judgement(
            "cannot tell",
            f"A prompt of {long} tokens took {_between(apart)} times as long to the first token as one of {short}: too little "
            "to see whether a step does that work again.",
            settle=f"Longer prompts (a larger budget of tokens), or a quieter time. {ASK}",
            may_clear_up=apart.high >= SEEN_ABOVE,
        )
    known = [pair for pair in pairs if pair.short_step_s is not None and pair.long_step_s is not None]
    if len(known) < MIN_ROUNDS:
        return Judgement(
            "cannot tell",
            f"Answers came in one piece or in bursts ({len(pairs) - len(known)} of {len(pairs)} pairs), so a step has no time of "
            "its own.",
            settle=f"A connection without a proxy that holds answers back. {ASK}",
        )
    shares = [_share(pair, 1.0) for pair in known]
    by_piece = [_share(pair, pair.tokens_a_piece) for pair in known]
    ratio = median(shares)
    low, high = _interval(shares).low, max(_interval(by_piece).high, _interval(shares).high)
    added_s = median(pair.long_ttft_s - pair.short_ttft_s for pair in known) or 0.0
    slower_s = median((pair.long_step_s or 0.0) - (pair.short_step_s or 0.0) for pair in known) or 0.0
    step_s = median(pair.short_step_s for pair in known) or 0.0
    more = f"{format_seconds(max(slower_s, 0.0))} longer" if slower_s > 0 else "no longer"
    evidence = (
        f"With {long} instead of {short} tokens in front, the first token took {format_seconds(added_s)} longer and each "
        f"further token {more}: {percent(ratio)} of what computing the text again would add ({percent(low)} to "
        f"{percent(high)} over {len(known)} pairs)."
    )
    growths = [pair.growth for pair in known if pair.growth is not None]
    inside = _interval(growths) if len(growths) >= MIN_ROUNDS else None
    if inside is not None:
        evidence += (
            f" From token to token of an answer a step grows by {percent(median(growths))} of what one more token of prompt "
            f"costs ({percent(inside.low)} to {percent(inside.high)})."
        )
    if low > RECOMPUTED_ABOVE:
        return Judgement("not in use", f"{evidence} Every token costs the whole text again.", ratio, low, high, ASK)
    if high < KEPT_BELOW and inside is not None and inside.low > RECOMPUTED_ABOVE:
        return Judgement(
            "cannot tell",
            f"{evidence} The prompt is not computed again, but the answer seems to be.",
            ratio,
            low,
            high,
            f"Whether something in front of the engine asks for every token anew. {ASK}",
            may_clear_up=True,
        )
    if high < KEPT_BELOW and added_s < HIDES_BELOW * step_s:
        return Judgement(
            "cannot tell",
            f"{evidence} But a step takes {format_seconds(step_s)} in any case: a server that keeps a pace could hide it.",
            ratio,
            low,
            high,
            f"Longer prompts (a larger budget of tokens). {ASK}",
            may_clear_up=True,
        )
    if high < KEPT_BELOW:
        return Judgement("in use", f"{evidence} The text in front is not computed again.", ratio, low, high, ASK)
    return Judgement(
        "cannot tell",
        f"{evidence} A cache stays below {percent(KEPT_BELOW)}, recomputation above {percent(RECOMPUTED_ABOVE)}.",
        ratio,
        low,
        high,
        f"A quieter time, or longer prompts (a larger budget). {ASK}",
        may_clear_up=True,
    )


def _share(pair: CachePair, tokens_a_piece: float) -> float:
    """Of what the longer prompt adds to the first token, how much it adds to a step."""
    slower_s = (pair.long_step_s or 0.0) - (pair.short_step_s or 0.0)
    return slower_s * tokens_a_piece / max(pair.long_ttft_s - pair.short_ttft_s, 1e-9)


# --- does it reuse prefixes? -----------------------------------------------------------------------------------------


def prefix_reuse(
    pairs: Sequence[PrefixPair],
    short_ttft_s: float | None = None,
    trouble: str = "",
    page_tokens: int | None = None,
) -> Judgement:
    """Does a beginning that was sent before save its prefill? The ratio is the first token's time, cold over warm.

    short_ttft_s: the first token of a short prompt, the most that reuse could save down to; None: not known.
    """
    if len(pairs) < MIN_ROUNDS:
        return _too_few(len(pairs), "pairs of a new and a known beginning", trouble)
    warm = [pair.cold_hits or 0 for pair in pairs if _is_warm(pair.cold_hits, pair.prompt_tokens)]
    if warm:
        return _warm(max(warm))
    ratios = [pair.cold_ttft_s / pair.warm_ttft_s for pair in pairs]
    ratio, around = median(ratios), _interval(ratios)
    cold_s, warm_s = (median(getattr(pair, f"{name}_ttft_s") for pair in pairs) for name in ("cold", "warm"))
    hits = [(pair.warm_hits, pair.prompt_tokens) for pair in pairs if pair.warm_hits is not None]
    reports = bool(hits) and all(_is_warm(found, tokens) for found, tokens in hits)
    tokens = format_count(median(pair.prompt_tokens for pair in pairs))
    evidence = (
        f"A prompt of {tokens} tokens took {format_seconds(cold_s)} to its first token with a new beginning and "
        f"{format_seconds(warm_s)} with one that was sent before: {format_ratio(ratio)} times ({_between(around)} over "
        f"{len(pairs)} pairs). {_reported(pairs, page_tokens)}"
    )
    figures = (ratio, around.low, around.high)
    if around.low > REUSED_ABOVE:
        return Judgement("in use", evidence, *figures, ASK)
    visible = short_ttft_s is not None and (cold_s or 0.0) >= SEEN_ABOVE * short_ttft_s
    lengths = [pair.prompt_tokens for pair in pairs if pair.prompt_tokens]  # where the server says them
    paged = bool(lengths) and min(lengths) < 2 * LARGEST_PAGE
    if around.high < FRESH_BELOW and visible and not reports and not paged:
        return Judgement("not in use", evidence, *figures, ASK)
    if reports and not (around.high < FRESH_BELOW and visible):
        return Judgement("in use", f"{evidence} So it says itself; a hit is not a gain.", *figures, ASK)
    if reports:
        why, settle = (
            "What it reports and what it takes contradict each other.",
            "What its figure of reused tokens counts.",
        )
    elif not visible:
        why = "A long prompt hardly takes longer than a short one here, so reuse would not show."
        settle = "Longer prompts (a larger budget of tokens)."
    elif around.high < FRESH_BELOW:
        why = f"But so short a prompt may hold no whole page of the cache (up to {LARGEST_PAGE} tokens)."
        settle = "Longer prompts (a larger budget of tokens)."
    else:
        why = f"Reuse stays above {REUSED_ABOVE}, none below {FRESH_BELOW}."
        settle = "A quieter time, longer prompts, or one replica: several keep a cache each."
    return Judgement("cannot tell", f"{evidence} {why}", *figures, f"{settle} {ASK}", may_clear_up=True)


def warm_hits(pairs: Sequence[PrefixPair]) -> list[Hit]:
    """What was reported of the known beginnings."""
    return [Hit(pair.warm_hits, pair.prompt_tokens, OWN_TOKENS) for pair in pairs]


def _reported(pairs: Sequence[PrefixPair], page_tokens: int | None) -> str:
    """What the server says itself. A 0 may be a constant: it counts as not said."""
    if not any(pair.warm_hits for pair in pairs):
        return "The server reports no reused tokens."
    said = hit_words(warm_hits(pairs), page_tokens)
    return f"The server reports {said}, all pairs together: a hit rate is not a speed-up, the times are."


# --- does it serve requests together? --------------------------------------------------------------------------------


def batching(found: Mapping[int, Sequence[Concurrency]], trouble: str = "") -> Judgement:
    """Do several requests together get more tokens a second than one? found: by the number of requests, a round each.

    The largest number with enough rounds decides. The ratio is tokens a second of that many together over one alone. A fast
    server far away gains by having its network waits overlap, so answers must arrive at the same time, too.
    """
    number = max((count for count, rounds in found.items() if count > 1 and len(rounds) >= MIN_ROUNDS), default=None)
    if number is None:
        most = max((len(rounds) for count, rounds in found.items() if count > 1), default=0)
        return _too_few(most, "rounds of several requests at once", trouble)
    rounds = found[number]
    gains = [one.gain for one in rounds]
    ratio, gain = median(gains), _interval(gains)
    overlaps = [one.overlap for one in rounds if one.overlap is not None]
    together = _interval(overlaps) if len(overlaps) >= MIN_ROUNDS else None
    last_s, alone_s = median(one.last_s for one in rounds), median(one.alone_s for one in rounds)
    evidence = (
        f"{number} requests at once got {format_ratio(ratio)} times the tokens a second of one ({_between(gain)} over "
        f"{len(rounds)} rounds)."
    )
    if together is not None:
        evidence += f" {format_ratio(median(overlaps))} answers arrived at the same time."
    if last_s is not None and alone_s:
        evidence += (
            f" The last of them waited {format_seconds(last_s)} for its first token; a whole answer alone takes "
            f"{format_seconds(alone_s)}."
        )
    figures = (ratio, gain.low, gain.high)
    if together is not None and together.high < OVERLAP_BELOW:
        return Judgement("not in use", f"{evidence} They are served one after the other.", *figures, ASK)
    if gain.high < ALONE_BELOW:
        return Judgement("not in use", f"{evidence} Serving them together gains nothing.", *figures, ASK)
    if gain.low > TOGETHER_ABOVE and (together is None or together.low > OVERLAP_ABOVE):
        more = (
            "Several replicas look the same from outside."
            if together is not None
            else (
                "Answers were not streamed, so that overlapping waits may be part of it, and several replicas look the same."
            )
        )
        if together is None and gain.low < 2 * TOGETHER_ABOVE:
            return Judgement("cannot tell", f"{evidence} {more}", *figures, ASK, may_clear_up=True)
        return Judgement("in use", f"{evidence} {more}", *figures, ASK)
    return Judgement(
        "cannot tell",
        f"{evidence} Batching stays above {TOGETHER_ABOVE}, one after the other below {ALONE_BELOW}.",
        *figures,
        f"A quieter time, or more requests at once than {number}. {ASK}",
        may_clear_up=True,
    )


def overlap(answers: Sequence[tuple[float, float]]) -> float | None:
    """How many answers arrive at the same time, on average: 1 where each begins when the one before has ended.

    answers: (first token, last token) of each, s on one clock. None where they have no length.
    """
    if not answers:
        return None
    span_s = max(last for _, last in answers) - min(first for first, _ in answers)
    return sum(last - first for first, last in answers) / span_s if span_s > 0 else None


# --- words -----------------------------------------------------------------------------------------------------------


def _too_few(count: int, what: str, trouble: str) -> Judgement:
    said = f"Answered: {count} {what}" if count else f"Not answered: {what}"
    return Judgement(
        "cannot tell",
        f"{said}; {MIN_ROUNDS} make an interval.{' ' if trouble else ''}{trouble}",
        settle=f"A larger budget, or a server that answers every request. {ASK}",
    )


def _is_warm(hits: int | None, prompt_tokens: int) -> bool:
    """Was it reused, beyond what a template puts in front of everybody's prompt?"""
    return hits is not None and hits - TEMPLATE_TOKENS >= FRESH_HITS * prompt_tokens


def _warm(most: int) -> Judgement:
    """Prompts that no server can have seen are no cold ones here."""
    return Judgement(
        "cannot tell",
        f"Warm: not comparable. The server reports up to {format_count(most)} reused tokens for prompts whose beginning it "
        "cannot have seen.",
        settle=f"What its figure of reused tokens counts. {ASK}",
    )


def _interval(values: Sequence[float]) -> Interval:
    """Of six values or more."""
    found = order_statistic_interval(values)
    if found is None:
        raise ValueError("fewer values than make an interval")
    return found


def _between(interval: Interval) -> str:
    return f"{format_ratio(interval.low)} to {format_ratio(interval.high)}"


def percent(share: float | None) -> str:
    """0.0024 is "0.2 %"."""
    return "n/a" if share is None else f"{100 * share:.1f} %" if abs(share) < 0.0995 else f"{100 * share:.0f} %"
