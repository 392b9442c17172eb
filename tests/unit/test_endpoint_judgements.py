"""Is my endpoint caching, judged from made-up times with a known answer: clear, noisy, too few, hidden."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvdemo.experiments.hits import TEMPLATE_END_TOKENS
from kvdemo.questions.endpoint.judgement import (
    OWN_TOKENS,
    CachePair,
    Concurrency,
    PrefixPair,
    batching,
    kv_cache,
    overlap,
    prefix_reuse,
)
from kvdemo.questions.endpoint.prompts import Beginning
from tests.engine_behind import text_of

SHORT, LONG = 40, 1000
AHEAD_S = 0.05  # network and scheduling before a first token
EACH_S = 0.001  # prefill of a token
OWN_S = 0.02  # a cached step
READ_S = 0.000002  # what a token of context adds to a cached step


def pairs_of(
    cached: bool, *, rounds: int = 6, noise: float = 0.02, seed: int = 0, long: int = LONG, pace_s: float = 0.0
) -> list[CachePair]:
    """Rounds on a server whose prefill takes EACH_S per token; noise: of every time, a share of it. pace_s: the least step."""
    noisy = random.Random(seed)

    def drawn(seconds: float) -> float:
        return seconds * (1 + abs(noisy.gauss(0, noise)))

    def step(tokens: int) -> float:
        return drawn(max(pace_s, OWN_S + READ_S * tokens if cached else OWN_S + EACH_S * tokens))

    return [
        CachePair(SHORT, long, drawn(AHEAD_S + EACH_S * SHORT), drawn(AHEAD_S + EACH_S * long), step(SHORT), step(long))
        for _ in range(rounds)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_server_with_a_cache_is_found_to_use_it(seed: int) -> None:
    found = kv_cache(pairs_of(True, seed=seed))
    assert found.verdict == "in use", found
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high < 0.2


@pytest.mark.parametrize("seed", range(20))
def test_a_server_that_computes_the_text_again_is_found_to_use_no_cache(seed: int) -> None:
    found = kv_cache(pairs_of(False, seed=seed))
    assert found.verdict == "not in use", found
    assert found.low is not None
    assert found.high is not None
    assert found.low > 0.5
    assert found.high == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("cached", [True, False])
def test_noise_never_turns_one_verdict_into_the_other(cached: bool, noise: float) -> None:
    wrong = "not in use" if cached else "in use"
    verdicts = [kv_cache(pairs_of(cached, noise=noise, seed=seed)).verdict for seed in range(200)]
    assert wrong not in verdicts
    if noise >= 4:
        assert "cannot tell" in verdicts


def test_pure_noise_cannot_be_told() -> None:
    """Times that have nothing to do with lengths: at most the two or three in a hundred that such intervals miss."""
    noisy = random.Random(1)
    times = [[noisy.uniform(0.01, 2.0) for _ in range(24)] for _ in range(300)]
    found = [
        kv_cache(
            [CachePair(SHORT, LONG, row[at], row[at + 1], row[at + 2], row[at + 3]) for at in range(0, 24, 4)]
        ).verdict
        for row in times
    ]
    assert found.count("cannot tell") >= 290


@pytest.mark.parametrize("rounds", range(6))
def test_fewer_than_six_pairs_are_no_verdict_however_clear_they_look(rounds: int) -> None:
    for found in (
        kv_cache(pairs_of(True, rounds=rounds, noise=0), "2 of 12 requests failed: 429 Too Many Requests."),
        prefix_reuse(prefixes_of(8.0, rounds=rounds), 0.09, "2 of 12 requests failed: 429 Too Many Requests."),
        batching({8: [Concurrency(6.0, 7.0)] * rounds}, "2 of 12 requests failed: 429 Too Many Requests."),
    ):
        assert (found.verdict, found.ratio, found.low, found.high) == ("cannot tell", None, None, None)
        assert "429 Too Many Requests" in found.evidence
        assert found.settle


def test_a_longer_prompt_that_takes_no_longer_shows_nothing_of_a_step() -> None:
    """A fast server far away: the network is nearly all of it."""
    far = [CachePair(SHORT, LONG, 0.30, 0.33, 0.01, 0.01)] * 6
    found = kv_cache(far)
    assert (found.verdict, found.ratio) == ("cannot tell", None)
    assert "too little to see" in found.evidence


@pytest.mark.parametrize("cached", [True, False])
def test_a_server_that_keeps_a_pace_does_not_pass_for_one_with_a_cache(cached: bool) -> None:
    """Every step takes as long as the longest would: nobody outside can tell."""
    found = kv_cache(pairs_of(cached, pace_s=1.2))
    assert found.verdict == "cannot tell"
    assert "keeps a pace" in found.evidence


def test_first_tokens_that_are_far_apart_may_clear_up_and_those_that_are_alike_do_not() -> None:
    pairs = pairs_of(True)
    one_slow = [replace(pairs[0], short_ttft_s=pairs[0].long_ttft_s), *pairs[1:]]
    assert (kv_cache(one_slow).verdict, kv_cache(one_slow).may_clear_up) == ("cannot tell", True)
    alike = [replace(pair, long_ttft_s=1.1 * pair.short_ttft_s) for pair in pairs]
    assert (kv_cache(alike).verdict, kv_cache(alike).may_clear_up) == ("cannot tell", False)


def test_answers_that_were_held_back_have_no_steps() -> None:
    held = [replace(pair, short_step_s=None, long_step_s=None) for pair in pairs_of(False)]
    found = kv_cache(held)
    assert found.verdict == "cannot tell"
    assert "in one piece or in bursts" in found.evidence


def test_several_tokens_a_step_do_not_make_recomputation_look_cheap() -> None:
    """Speculation: eight tokens of each forward, so that a token costs an eighth of the text."""
    eighth = [
        replace(
            pair,
            short_step_s=(pair.short_step_s or 0) / 8,
            long_step_s=(pair.long_step_s or 0) / 8,
            tokens_a_piece=8.0,
        )
        for pair in pairs_of(False)
    ]
    assert kv_cache(eighth).verdict == "cannot tell"


def test_a_middling_share_cannot_be_told() -> None:
    part = [CachePair(SHORT, LONG, 0.1, 1.1, 0.1, 0.45 + 0.01 * at) for at in range(6)]
    found = kv_cache(part)
    assert found.verdict == "cannot tell"
    assert found.ratio == pytest.approx(0.375)


def test_an_answer_that_is_computed_again_behind_a_kept_prompt_is_no_cache_in_use() -> None:
    """Something asks for every token anew, and the prompt's beginning is kept: only the answer's own steps tell."""
    again = [replace(pair, growth=1.0 + 0.01 * at) for at, pair in enumerate(pairs_of(True))]
    found = kv_cache(again)
    assert found.verdict == "cannot tell"
    assert "the answer seems to be" in found.evidence
    flat = [replace(pair, growth=0.01 * (at - 3)) for at, pair in enumerate(pairs_of(True))]
    assert kv_cache(flat).verdict == "in use"
    assert kv_cache([replace(pair, growth=1.0) for pair in pairs_of(False)]).verdict == "not in use"


# --- prefixes --------------------------------------------------------------------------------------------------------


def prefixes_of(
    gain: float,
    *,
    rounds: int = 6,
    noise: float = 0.02,
    seed: int = 0,
    cold_hits: int | None = None,
    warm_hits: int | None = None,
) -> list[PrefixPair]:
    """A prompt of 1,000 tokens takes 1.05 s cold, and 1.05 / gain warm."""
    noisy = random.Random(seed)

    def drawn(seconds: float) -> float:
        return seconds * (1 + abs(noisy.gauss(0, noise)))

    return [PrefixPair(drawn(1.05), drawn(1.05 / gain), 1000, cold_hits, warm_hits) for _ in range(rounds)]


@pytest.mark.parametrize(
    ("gain", "verdict"), [(8.0, "in use"), (1.5, "in use"), (1.0, "not in use"), (0.8, "not in use")]
)
@pytest.mark.parametrize("seed", range(5))
def test_a_known_beginning_that_saves_time_is_reused_and_one_that_does_not_is_not(
    gain: float, verdict: str, seed: int
) -> None:
    found = prefix_reuse(prefixes_of(gain, seed=seed), 0.09)
    assert found.verdict == verdict, found
    assert found.ratio == pytest.approx(gain, rel=0.1)


@pytest.mark.parametrize("noise", [0.3, 1.0, 4.0])
def test_noise_does_not_make_a_prefix_reused_or_fresh(noise: float) -> None:
    for gain, wrong in ((8.0, "not in use"), (1.0, "in use")):
        verdicts: list[str] = [
            prefix_reuse(prefixes_of(gain, noise=noise, seed=seed), 0.09).verdict for seed in range(200)
        ]
        assert verdicts.count(wrong) <= 200 * 0.03, "six of six above a threshold by chance: 1.6 in a hundred"


def test_a_middling_gain_cannot_be_told() -> None:
    assert prefix_reuse(prefixes_of(1.15, noise=0), 0.09).verdict == "cannot tell"


@pytest.mark.parametrize("short_s", [None, 1.0])
def test_without_a_prefill_that_can_be_seen_no_gain_is_no_answer(short_s: float | None) -> None:
    found = prefix_reuse(prefixes_of(1.0), short_s)
    assert found.verdict == "cannot tell"
    assert "would not show" in found.evidence


def test_a_prompt_too_short_for_a_whole_page_does_not_show_that_nothing_is_reused() -> None:
    """Continuous batching of transformers shares pages of 256 tokens: of 210 there is none to share."""
    short = [replace(pair, prompt_tokens=210) for pair in prefixes_of(1.0)]
    found = prefix_reuse(short, 0.09)
    assert found.verdict == "cannot tell"
    assert "no whole page" in found.evidence
    assert prefix_reuse([replace(pair, prompt_tokens=210) for pair in prefixes_of(8.0)], 0.09).verdict == "in use"


def test_what_a_known_prompt_ends_with_is_about_as_many_tokens_as_is_said() -> None:
    """Tokens that no other prompt has count against no server's reuse. A token of such text has about four characters."""
    beginning = Beginning(50)
    one, other = text_of(beginning.prompt()), text_of(beginning.prompt())
    common = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    assert (len(one) - common) / 4 == pytest.approx(OWN_TOKENS - TEMPLATE_END_TOKENS, abs=3)


def test_hits_that_are_reported_are_said_beside_the_times() -> None:
    found = prefix_reuse(prefixes_of(8.0, cold_hits=0, warm_hits=960), 0.09)
    assert found.verdict == "in use"
    assert "5,760 tokens as reused of about 5,880 that could be (98 %; its page size is not reported)" in found.evidence
    paged = prefix_reuse(prefixes_of(8.0, cold_hits=0, warm_hits=960), 0.09, page_tokens=128)
    assert "5,760 tokens as reused of about 5,376 in the whole pages of 128 that could be (100 %)" in paged.evidence


def test_reported_hits_without_a_gain_that_can_be_seen_count_and_are_no_gain() -> None:
    found = prefix_reuse(prefixes_of(1.0, cold_hits=0, warm_hits=960), 1.0)
    assert found.verdict == "in use"
    assert "a hit is not a gain" in found.evidence


def test_reported_hits_against_clear_times_contradict_each_other() -> None:
    found = prefix_reuse(prefixes_of(1.0, cold_hits=0, warm_hits=960), 0.09)
    assert found.verdict == "cannot tell"
    assert "contradict" in found.evidence


def test_a_reported_zero_may_be_a_constant_and_changes_nothing() -> None:
    assert prefix_reuse(prefixes_of(8.0, cold_hits=0, warm_hits=0), 0.09).verdict == "in use"
    assert prefix_reuse(prefixes_of(1.0, cold_hits=0, warm_hits=0), 0.09).verdict == "not in use"


def test_fresh_prompts_that_hit_are_warm_and_give_no_ratio() -> None:
    found = prefix_reuse(prefixes_of(1.0, cold_hits=900, warm_hits=960), 0.09)
    assert (found.verdict, found.ratio, found.low, found.high) == ("cannot tell", None, None, None)
    assert found.evidence.startswith("Warm: not comparable.")


def test_what_a_template_puts_in_front_may_be_reused_of_a_fresh_prompt() -> None:
    assert prefix_reuse(prefixes_of(8.0, cold_hits=32, warm_hits=960), 0.09).verdict == "in use"


# --- several at once -------------------------------------------------------------------------------------------------


def rounds_of(gain: float, overlapping: float | None, *, spread: float = 0.02) -> Sequence[Concurrency]:
    return [Concurrency(gain * (1 + spread * at), overlapping, 0.5, 1.0) for at in range(6)]


@pytest.mark.parametrize(
    ("gain", "overlapping", "verdict"),
    [
        (6.0, 7.5, "in use"),
        (1.0, 0.98, "not in use"),  # one after the other
        (1.0, 7.5, "not in use"),  # in turns, without gain
        (1.7, 0.95, "not in use"),  # one after the other, its network waits overlap
        (1.3, 7.5, "cannot tell"),
        (6.0, None, "in use"),
        (1.7, None, "cannot tell"),
        (6.0, 1.2, "cannot tell"),
    ],
)
def test_requests_together(gain: float, overlapping: float | None, verdict: str) -> None:
    found = batching({2: rounds_of(1.0, 1.0), 8: rounds_of(gain, overlapping)})
    assert found.verdict == verdict, found
    assert found.ratio == pytest.approx(gain, rel=0.1)


def test_the_largest_number_with_enough_rounds_decides() -> None:
    found = batching({1: rounds_of(1.0, 1.0), 2: rounds_of(1.9, 1.9), 4: rounds_of(3.5, 3.9), 8: rounds_of(7, 8)[:3]})
    assert found.verdict == "in use"
    assert found.evidence.startswith("4 requests at once")


def test_rounds_that_differ_cannot_be_told() -> None:
    assert batching({8: rounds_of(1.0, 6.0, spread=0.4)}).verdict == "cannot tell"


def test_overlap_counts_answers_that_arrive_at_the_same_time() -> None:
    assert overlap([(0, 1), (1, 2), (2, 3)]) == pytest.approx(1)
    assert overlap([(0, 1), (1.2, 2.2)]) == pytest.approx(2 / 2.2)
    assert overlap([(0, 1)] * 8) == pytest.approx(8)
    assert overlap([(1, 1)]) is None
    assert overlap([]) is None
