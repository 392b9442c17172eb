"""A comparison on one prompt in words that are as strong as its evidence. Pure: a result in, sentences out."""

from __future__ import annotations

from kvdemo.experiments.comparison import ArmSummary, Comparison, ComparisonResult
from kvdemo.experiments.pieces import IN_ROUNDS, Pieces, factor, scope_words, tokens_word
from kvdemo.experiments.statistics import MIN_ROUNDS
from kvdemo.experiments.summary import arms
from kvdemo.facts.decision import CacheDecision
from kvdemo.facts.units import format_bytes, format_count, format_ratio, format_seconds, format_speed
from kvdemo.questions.faster.finding import Finding, label

__all__ = [
    "CAPTION",
    "DEMONSTRATION_PROMPT",
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

DEMONSTRATION_PROMPT = "The red cat was"
METHOD = IN_ROUNDS
CAPTION = "One row per strategy: medians over the rounds"


def scope(result: ComparisonResult) -> str:
    """What was this measured on? Model, dtype, machine, prompt."""
    prompt_tokens = next((run.prompt_tokens for run in reversed(result.runs) if run.prompt_tokens), None)
    words = [] if prompt_tokens is None else [f"{format_count(prompt_tokens)} prompt {tokens_word(prompt_tokens)}"]
    return scope_words(result.model, result.environment, *words)


def headline(result: ComparisonResult, candidate: str | None = None) -> Pieces:
    """What came out? About `candidate`, by default the fastest of the arms beside the baseline."""
    known = [item for item in result.comparisons if item.metric == "generation_s" and item.ratio is not None]
    if candidate is not None:
        known = [item for item in known if item.candidate == candidate]
    if not known:
        return [*(_alone(result) or _nothing(result)), *_ending(result)]
    others = [item for item in known if item.candidate in result.spec.strategies]
    if not others:
        return [*_noise(result, known[0]), *_ending(result)]
    best = max(others, key=lambda item: item.ratio or 0.0)
    finding = Finding.of(result, best)
    pieces = [
        *finding.time_and_ratio(),
        *finding.tokens(),
        *finding.held(),
        *finding.request(),
        *_other_arms(result, others, best),
        *(
            [(f" Two identical runs differed by up to {result.noise.words()}.", False)]
            if result.noise and result.spec.noise
            else []
        ),
        *_ending(result),
    ]
    if finding.num_rounds < 2 or finding.only_range:
        pieces.append((" Enough to go on, not enough to decide: run 6 rounds.", False))
    if result.spec.prompt.strip() == DEMONSTRATION_PROMPT:
        pieces.append((" This is the demonstration prompt. Your decision needs your prompts.", False))
    return pieces


def _alone(result: ComparisonResult) -> Pieces:
    """One arm by itself, of an engine behind a URL: its figures, and nothing to compare them with; [] for any other result."""
    if (
        len(result.spec.arms) > 1
        or not (arm := result.arm_summaries[0]).n
        or arm.generation_s is None
        or not arm.tokens
    ):
        return []
    took, many = arm.generation_s, arm.tokens[1]
    spread = f" ({format_seconds(took.low)} to {format_seconds(took.high)} in {took.n} rounds)" if took.n > 1 else ""
    first = f", the first after {format_seconds(arm.ttft_s.median)}" if arm.ttft_s else ""
    speed = f", then {format_speed(arm.decode_tokens_per_s)}" if arm.decode_tokens_per_s else ""
    return [
        (f"{format_seconds(took.median)} for {format_count(many)} {tokens_word(many)}", True),
        (
            f"{spread}{first}{speed}. From outside nobody can switch its cache off, so there is nothing to compare. "
            "Whether it uses one, kvdemo endpoint tells.",
            False,
        ),
    ]


def _other_arms(result: ComparisonResult, known: list[Comparison], best: Comparison) -> Pieces:
    """One clause for each further arm."""
    clauses = []
    for item in known:
        if item is not best and item.ratio is not None:
            low, high = (item.low, item.high) if item.ratio >= 1 else (item.high, item.low)
            turn = 1 if item.ratio >= 1 else -1
            between = f" ({format_ratio(low**turn)} to {format_ratio(high**turn)})" if low and high else ""
            clauses.append(f"{factor(item.ratio)} with {label(result, item.candidate)}{between}")
    return [(f" Beside {label(result, best.baseline)}: {', '.join(clauses)}.", False)] if clauses else []


def _nothing(result: ComparisonResult) -> Pieces:
    """No round in which two arms finished: say so, and what went wrong."""
    errors = [
        f" The run with {label(result, run.arm_key)} {_ENDED[run.status]}{f': {run.error}' if run.error else ''}"
        for run in result.runs
        if run.status in _ENDED
    ]
    return [
        ("No round was completed, so there is nothing to compare.", True),
        *[(f"{error.rstrip('. ')}.", False) for error in dict.fromkeys(errors)],
    ]


def _ending(result: ComparisonResult) -> Pieces:
    """Why the rounds ended, where that is not simply that all were done; and the runs that count in nothing."""
    done = max((item.rounds for item in result.comparisons), default=0)
    rounds = f"{done} {'round' if done == 1 else 'rounds'}"
    planned = f"{done} of {result.spec.rounds} rounds" if result.spec.time_budget_s is None else rounds
    sentence = {
        "clear": f" Clear after {rounds}: the interval is within 5 % of the ratio.",
        "budget": f" The time budget ended after {rounds}, before the interval was within 5 % of the ratio.",
        "stopped": f" Stopped after {planned}.",
        "limit": f" The time limit ended it after {planned}.",
    }.get(result.stopped_because, "")
    out = sum(run.status in ("failed", "timed_out") for run in result.runs)
    if out:
        sentence += (
            f" {out} {'run' if out == 1 else 'runs'} did not finish and {'counts' if out == 1 else 'count'} in nothing."
        )
    return [(sentence, False)] if sentence else []


_ENDED = {"failed": "failed", "timed_out": "ran past its time limit", "cancelled": "was stopped"}


def _noise(result: ComparisonResult, item: Comparison) -> Pieces:
    """An arm beside itself: how far do identical runs lie apart here, and did they make the same tokens?"""
    noise, pieces = result.noise, Pieces()
    if noise is None:
        return _nothing(result)
    if noise.low is None or noise.high is None:
        pieces += [(f"First look: two identical runs here differ by {noise.words()}", True), (" in one round.", False)]
    else:
        between = f"{format_ratio(noise.low)} to {format_ratio(noise.high)} times"
        rounds = (
            f"range {between}, {noise.rounds} rounds"
            if item.range_only
            else f"{between} in {noise.rounds} paired rounds"
        )
        first = "First look: two" if item.range_only else "Two"
        pieces += [(f"{first} identical runs here differ by up to {noise.words()}", True), (f" ({rounds}).", False)]
    if item.verdict.same_output is False:
        where = format_count((item.verdict.first_difference or 0) + 1)
        pieces.append((f" Their tokens differ from token {where} on, though the request was the same.", True))
    pieces.append((" A difference within that is none.", False))
    if noise.rounds < MIN_ROUNDS:
        pieces.append((" Enough to go on, not enough to decide: run 6 rounds.", False))
    return pieces


def so_far(step: object) -> str:
    """Its runs stream; nothing is finished before the end."""
    return ""


def verdicts(result: ComparisonResult) -> list[str]:
    """Same tokens or not, per further arm, with the texts around the first difference."""
    sentences = []
    for item in result.comparisons:
        if item.metric != "generation_s":
            continue
        names = f"{result.row(item.baseline).label} and {result.row(item.candidate).label}"
        verdict = item.verdict
        if verdict.same_output is None and item.rounds:
            sentences.append(f"{names}: whether the tokens are the same is not known.")
        elif verdict.same_output is None:
            sentences.append(f"{names}: no round in which both finished.")
        elif verdict.same_output:
            sentences.append(f"{names}: the same tokens in every round.")
        else:
            gap = (
                f" Largest logit gap up to there: {verdict.largest_gap:.3g}." if verdict.largest_gap is not None else ""
            )
            texts = f" “{verdict.baseline_text}” against “{verdict.candidate_text}”." if verdict.baseline_text else ""
            first = (verdict.first_difference or 0) + 1
            sentences.append(f"{names}: tokens differ from token {first:,} on.{texts}{gap} This is no test of quality.")
    return sentences


def open_points(result: ComparisonResult, decision: CacheDecision | None) -> list[str]:
    """What is open after this comparison, the gravest first; never empty, since one prompt says little of others."""
    spec, counted = result.spec, [run for run in result.runs if run.counts]
    rounds = min((sum(run.arm_key == key for run in counted) for key in spec.arms), default=0)
    sentences = []
    if decision is None:
        sentences.append("Which cache your application uses now: python -m kvdemo inspect tells.")
    sentences += [
        f"Why the tokens of {item.baseline} and {item.candidate} differ: greedy float32 must agree."
        for item in result.comparisons
        if item.metric == "generation_s" and item.verdict.expected_equal and item.verdict.same_output is False
    ]
    what = "ratio" if len(spec.strategies) > 1 else "noise"
    if rounds < MIN_ROUNDS:
        done = "no round was" if rounds == 0 else "one round was" if rounds == 1 else f"{rounds} rounds were"
        sentences.append(f"How well the {what} repeats: {done} completed, and an interval needs {MIN_ROUNDS}.")
    if spec.prompt.strip() == DEMONSTRATION_PROMPT:
        sentences.append(f"The {what} on your prompts: this is the demonstration prompt.")
    else:
        sentences.append(f"The {what} on other prompts: one was measured.")
    if counted:
        size = f"{format_count(counted[-1].prompt_tokens)} prompt and {format_count(counted[-1].new_tokens)} new tokens"
        change = "and gain and bytes change with both" if what == "ratio" else "and short runs differ more"
        sentences.append(f"The {what} at other lengths: {size} were measured, {change}.")
    sentences.append(f"The {what} with many requests at once: one ran at a time.")
    if what == "noise":
        sentences.append("The noise at other times: what else ran on the machine meanwhile is in it.")
    if spec.fixed_length and what == "ratio":
        sentences.append("Where your answers end: every arm was held to the same number of tokens.")
    if any(not result.row(key).exact for key in spec.strategies):
        sentences.append(
            "What a lossy cache does to quality: equal or different tokens on one prompt are no test of it."
        )
    if not any(run.peak_bytes is not None for run in counted):
        sentences.append("The peak of memory: it was not measured.")
    left_out = sum(run.status != "ok" for run in result.runs)
    if left_out:
        runs = "one run" if left_out == 1 else f"{left_out} runs"
        sentences.append(f"Why {runs} did not finish: marked in the table of runs, counted in nothing.")
    return sentences


def request(result: ComparisonResult) -> list[tuple[str, str]]:
    """What was asked."""
    spec = result.spec
    sampling = (
        "greedy" if spec.sampling.greedy else f"temperature {spec.sampling.temperature:g}, seed {spec.sampling.seed}"
    )
    return [
        ("prompt", spec.prompt),
        ("sent as", "a chat message" if spec.as_chat else "text"),
        *([("system prompt", spec.system_prompt)] if spec.system_prompt else []),
        ("new tokens", f"{spec.max_new_tokens:,}" + (", fixed" if spec.fixed_length else " at most")),
        ("rounds asked for", f"{spec.rounds:,}"),
        *([("noise", f"{spec.strategies[0]} once more in every round")] if spec.noise else []),
        ("sampling", sampling),
        *([("norms recorded", norms_place(*spec.norms))] if spec.norms is not None else []),
    ]


def norms_place(layer: int, head: int) -> str:
    return f"layer {format_count(layer)}, KV head {format_count(head)}, after the timed runs"


def remarks(result: ComparisonResult) -> list[str]:
    """What no column of the table shows, arm by arm."""
    return [f"{arm.label}: {line}" for arm in arms(result) for line in _remarks(arm, result.model.device)]


def _remarks(arm: ArmSummary, device: str) -> list[str]:
    """What no column shows: compile time, and where a cache sits that is not all on the model's device."""
    lines = []
    if arm.compile_s is not None:
        lines.append(f"compiling took {format_seconds(arm.compile_s)}, once, and is in no time above.")
    places = arm.cache_bytes_by_device
    if any(place.split(":")[0] != device.split(":")[0] for place in places):
        where = ", ".join(f"{format_bytes(held)} on {place}" for place, held in places.items())
        lines.append(
            f"its cache sits in two places: {where}." if len(places) > 1 else f"its cache sits elsewhere: {where}."
        )
    return lines


def command(result: ComparisonResult) -> list[str]:
    """The switches that repeat it; sampling other than greedy is not among them."""
    spec = result.spec
    words = ["--prompt", spec.prompt]
    words += ["--chat"] if spec.as_chat else []
    words += ["--system", spec.system_prompt] if spec.system_prompt else []
    words += ["--max-new-tokens", str(spec.max_new_tokens)]
    for strategy in spec.strategies:
        words += ["--strategy", strategy]
    words += ["--rounds", str(spec.rounds)]
    words += ["--time-budget", f"{spec.time_budget_s:g}"] if spec.time_budget_s else []
    words += [] if spec.fixed_length else ["--stop-at-end"]
    words += ["--noise"] if spec.noise else []
    return [*words, *(["--norms", f"{spec.norms[0]},{spec.norms[1]}"] if spec.norms is not None else [])]
