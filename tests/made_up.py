"""Made-up results with round numbers: what a comparison on the default model looks like, without running anything."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kvdemo.caches.strategies import strategy_of
from kvdemo.experiments.comparison import CompareSpec, ComparisonResult, Verdict
from kvdemo.experiments.prompt_file import PromptRow
from kvdemo.experiments.question import AnyResult
from kvdemo.experiments.summary import judge, summarise
from kvdemo.facts.decision import CacheAdvice, CacheDecision
from kvdemo.facts.load import ManyRecord
from kvdemo.facts.model import NOT_LOADED, ModelFacts
from kvdemo.facts.plans import Architecture, LayerFootprint, MemoryPlan, MemoryRequest
from kvdemo.facts.records import RunRecord, Status
from kvdemo.facts.results import PreparedPrefix
from kvdemo.in_force.advice import advise
from kvdemo.planner.plan import make_plan
from kvdemo.questions.application.run import ratios_of
from kvdemo.questions.application.spec import ApplicationResult, ApplicationSpec, ArmOfProgram, ProgramRun
from kvdemo.questions.conversations.run import totals_of
from kvdemo.questions.conversations.spec import (
    BadLine,
    Check,
    ConversationReuse,
    ConversationsResult,
    ConversationsSpec,
    Lint,
    Miss,
    SharedBeginning,
    TurnReuse,
)
from kvdemo.questions.endpoint.run import endpoint
from kvdemo.questions.endpoint.spec import EndpointResult, EndpointSpec
from kvdemo.questions.grow.spec import GrowthPoint, GrowthResult, GrowthSpec
from kvdemo.questions.load.spec import LoadPoint, LoadResult, LoadSpec, ModeRun
from kvdemo.questions.load.summary import compared
from kvdemo.questions.prefix.run import summarise_prefix
from kvdemo.questions.prefix.spec import PrefixPair, PrefixResult, PrefixSpec
from kvdemo.questions.prompts.run import compare_set
from kvdemo.questions.prompts.spec import PromptResult, PromptSetResult, PromptSetSpec
from kvdemo.watching.record import Call, Script, Setting, Watched
from tests.engine_behind import EngineBehind
from tests.made_up_model import ENVIRONMENT, MODEL, PER_TOKEN, ROWS
from tests.many import many_record

SHAPES = {  # first pass, first step, s; slope, s per token
    "none": (0.091, 0.085, 0.0011),
    "dynamic": (0.090, 0.0338, 0.00002),
    "static": (0.092, 0.0351, 0.00003),
    "static-compiled": (0.088, 0.0287, 0.00002),
    "fp8": (0.095, 0.0402, 0.00006),
}


def run_of(
    strategy: str = "dynamic",
    times_s: Sequence[float] = (0.8, 0.85, 0.9),
    *,
    round_number: int = 1,
    order: int = 0,
    prompt_tokens: int = 4,
    text: str = " black and white",
    status: Status = "ok",
    **more: object,
) -> RunRecord:
    """One run with these token times; its work and bytes follow from the strategy."""
    count = len(times_s)
    cached = strategy != "none"
    lengths = [prompt_tokens + step for step in range(count)]
    fields: dict[str, object] = {
        "token_ids": tuple(range(100, 100 + count)),
        "token_times_s": tuple(times_s),
        "positions_computed": tuple(
            (lengths[0] if step == 0 else 1) if cached else lengths[step] for step in range(count)
        ),
        "positions_read": tuple((0 if step == 0 else lengths[step] - 1) if cached else 0 for step in range(count)),
        "request_s": (times_s[-1] + 0.02) if count else None,
        "cache_tokens": lengths[-1] if cached and count else 0,
        "cache_bytes": lengths[-1] * PER_TOKEN if cached and count else 0,
        "cache_storage_bytes": lengths[-1] * PER_TOKEN if cached and count else 0,
        "cache_bytes_by_token": tuple((n * PER_TOKEN, n * PER_TOKEN) for n in lengths) if cached else (),
        "cache_bytes_by_device": {"cpu": lengths[-1] * PER_TOKEN} if cached and count else {},
        "finish_reason": "length" if status == "ok" else status,
        **more,
    }
    return RunRecord(
        strategy=strategy,
        status=status,
        prompt_tokens=prompt_tokens,
        text=text,
        round=round_number,
        order=order,
        **fields,  # type: ignore[arg-type]
    )


def result_of(
    strategies: Sequence[str] = ("none", "dynamic"),
    *,
    rounds: int = 6,
    new_tokens: int = 120,
    prompt: str = "The red cat was",
    model: ModelFacts = MODEL,
    noise: float = 0.06,
    prompt_tokens: int = 4,
) -> ComparisonResult:
    """A comparison with noisy steps, seeded, a warm-up per arm and rotating order."""
    noisy = random.Random(0)
    runs = []
    for number in range(rounds + 1):
        for order, strategy in enumerate(strategies):
            first, step, slope = SHAPES[strategy]
            drift = 1 + noisy.gauss(0, noise / 3)
            times = [first * drift]
            for position in range(1, new_tokens):
                times.append(
                    times[-1] + (step + slope * (position + prompt_tokens)) * drift * (1 + abs(noisy.gauss(0, noise)))
                )
            runs.append(
                run_of(
                    strategy,
                    times,
                    round_number=number,
                    order=order,
                    prompt_tokens=prompt_tokens,
                    warmup=number == 0,
                    queue_s=0.001,
                )
            )
    spec = CompareSpec(prompt=prompt, strategies=tuple(strategies), max_new_tokens=new_tokens, rounds=max(1, rounds))
    return summarise(spec, runs, model=model, environment=ENVIRONMENT, strategies=ROWS)


def growth_of(prompts: Sequence[int] = (16, 128), answers: Sequence[int] = (16, 32, 64)) -> GrowthResult:
    """Growth over a small grid, six rounds at each point."""
    spec = GrowthSpec(prompt="words", prompt_tokens=tuple(prompts), new_tokens=tuple(answers), rounds=6)
    points = tuple(
        GrowthPoint(prompt, answer, result_of(new_tokens=answer, prompt_tokens=prompt))
        for prompt in prompts
        for answer in answers
    )
    return GrowthResult(spec, MODEL, ENVIRONMENT, points, strategies=points[0].result.strategies)


def prompt_set_of(ids: Sequence[str] = ("question-1", "summary-2", "worst <b>")) -> PromptSetResult:
    """A set in which every further prompt is longer than the one before."""
    rows = tuple(PromptRow("words", name) for name in ids)
    prompts = tuple(
        PromptResult(row, result_of(new_tokens=30 + 10 * at, prompt_tokens=20 + 150 * at, rounds=6))
        for at, row in enumerate(rows)
    )
    spec = PromptSetSpec(rows, rounds=6, longest_tokens=600)
    comparisons = compare_set(spec.strategies, prompts)
    return PromptSetResult(spec, MODEL, ENVIRONMENT, prompts, comparisons, strategies=prompts[0].result.strategies)


def prefix_of(questions: int = 8) -> PrefixResult:
    """A prefix of 500 tokens: 1.6 s to the first token afresh, 0.11 s with it kept."""
    pairs = tuple(
        PrefixPair(
            f"question {at}",
            run_of("dynamic", (1.6 + 0.01 * at, 1.7), prompt_tokens=520),
            run_of("dynamic", (0.11 + 0.002 * at, 0.2), prompt_tokens=520, reused_tokens=500),
            Verdict(True, None, True),
        )
        for at in range(questions)
    )
    spec = PrefixSpec("You are careful.", tuple(pair.question for pair in pairs))
    return summarise_prefix(
        spec, PreparedPrefix(500, 500 * PER_TOKEN, 1.5), pairs, model=MODEL, environment=ENVIRONMENT
    )


def conversations_of(lost: int = 3) -> ConversationsResult:
    """Three conversations of four turns: `lost` turns of the first miss because of the time in its system prompt."""
    pages = (1, 16, 128, 256)

    def turn(number: int, missed: bool) -> TurnReuse:
        prompt, held = 120 + 80 * number, 120 + 80 * number - 20 if number else 0
        shared = 30 if missed else held
        reused = {str(page): shared // page * page for page in pages}
        first = Miss(0, "", "<|im_start|>", "", "first_request", "It is the first request: nothing was held yet.")
        cause, advice = "The system prompt carries the time of day.", "Put what changes last."
        miss = Miss(30, " 12:01 <b>", " 12:02 =1", "system prompt", "system_changed", cause, advice)
        known = miss if missed else None if number else first
        return TurnReuse(prompt, held, shared, reused, held - shared, known, bool(number), number + 1)

    found = tuple(
        ConversationReuse(
            name, tuple(turn(number, 0 < number <= lost and name == "support <b>") for number in range(4))
        )
        for name in ("support <b>", "agent", "=report")
    )
    checks = (Check("over turns", True), Check("with tool calls", None, note="the template refuses tools"))
    return ConversationsResult(
        spec=ConversationsSpec(page_sizes=pages),
        model=replace(MODEL, num_parameters=None, weight_bytes=None, cache_bytes_per_token=None, dtype=NOT_LOADED),
        environment=ENVIRONMENT,
        conversations=found,
        shared_beginnings=(
            SharedBeginning(64, 3, "<|im_start|>system", {str(page): 64 // page * page * 2 for page in pages}),
        ),
        totals=totals_of(found, pages),
        template=Lint(True, checks),
        refused=(BadLine(7, "is not JSON: column 1: Expecting value"),),
    )


def load_of(
    requests: int = 4,
    *,
    rounds: int = 2,
    new_tokens: int = 6,
    sweep: Sequence[int] = (),
    modes: Sequence[str] = ("one-by-one", "padded", "continuous"),
    change: Callable[[str, int, ManyRecord], ManyRecord] = lambda _mode, _round, record: record,
    **more: Any,
) -> LoadResult:
    """A load whose batches serve all rows in little more than the time of one. change: (mode, round, record) -> another."""
    spec = LoadSpec(
        (PromptRow("The red cat was", "prompt"),),
        requests=requests,
        modes=tuple(modes),
        max_new_tokens=new_tokens,
        rounds=max(1, rounds),
        sweep=tuple(sweep),
        **more,
    )
    points = tuple(
        LoadPoint(
            number,
            tuple(
                ModeRun(key, at, order, change(key, at, many_record(spec.request(key, number))))
                for at in range(rounds + 1)
                for order, key in enumerate(spec.modes, 1)
            ),
        )
        for number in (requests, *sweep)
    )
    return LoadResult(spec, MODEL, ENVIRONMENT, points, compared(spec, points[0], MODEL, {}))


def endpoint_of(engine: EngineBehind | None = None) -> EndpointResult:
    """A check of an engine with a cache that reuses prefixes and serves several together; or of another."""
    *_, result = endpoint(EndpointSpec(seconds=3600), (engine or EngineBehind(reports=True)).bench())
    assert isinstance(result, EndpointResult)
    return result


def application_of(*, cached: bool = True) -> ApplicationResult:
    """A program that generated once, and was run without a cache, too."""
    read = (0, 4, 5, 6) if cached else (0, 0, 0, 0)
    computed = (4, 1, 1, 1) if cached else (4, 5, 6, 7)
    call = Call(
        where="summarise <b>.py:41",
        how="generate",
        model_type="llama",
        batch_size=1,
        use_cache=Setting(cached, "library default" if cached else "config.json"),
        cache_class="DynamicCache" if cached else None,
        positions_computed=computed,
        positions_read=read,
        prompt_tokens=4,
        new_tokens=4,
        reused_tokens=0,
        generation_s=0.4,
        ttft_s=0.1,
        tpot_s=0.1,
        peak_cache_bytes=7 * PER_TOKEN if cached else 0,
        finish_reason="length",
        peak_cache_tokens=7 if cached else 0,
        cached=cached,
        model=MODEL.name,
    )
    watched = Watched("summarise.py", (call,), Script(0, 2.0, 0.4, 1.6), (MODEL,), ENVIRONMENT)
    spec = ApplicationSpec("summarise.py", compare=("none", "as-is"), rounds=6)
    runs = tuple(
        ProgramRun(
            arm, "ok", number, order, exit_code=0, wall_s=1.6 + took, generation_s=took, calls=1, token_ids=(((7, 8),),)
        )
        for number in range(1, 7)
        for order, (arm, took) in enumerate((("none", 1.2 + number / 100), ("as-is", 0.4)))
    )
    arms = (ArmOfProgram("none", "the cache off", cached=False), ArmOfProgram("as-is", "as it is", cached=cached))
    ratios = ratios_of(spec.compare, runs)
    bare = tuple(replace(run, token_ids=None) for run in runs)  # ids are judged, and not kept
    return ApplicationResult(spec, MODEL, ENVIRONMENT, watched, arms, bare, ratios)


def application_spending(
    generation_s: float, *, cached: bool = True, rounds: int = 6, factor: float = 3.0
) -> ApplicationResult:
    """The made-up program with 10 s in all, of which so much is generation with a cache, and `factor` times that without."""
    made = application_of(cached=cached)
    other_s = 10.0 - generation_s
    took = {"none": generation_s * factor, "as-is": generation_s if cached else generation_s * factor}
    runs = tuple(
        replace(run, generation_s=took[run.arm], wall_s=other_s + took[run.arm], token_ids=(((7, 8),),))
        for run in made.runs
        if run.round <= rounds
    )
    script = Script(0, other_s + took["as-is"], took["as-is"], other_s)
    return replace(
        made,
        watched=replace(made.watched, script=script),
        runs=runs,
        comparisons=ratios_of(made.spec.compare, runs),
    )


RESULTS: dict[str, Callable[[], AnyResult]] = {
    "application": application_of,
    "faster": lambda: result_of(rounds=2, new_tokens=12),
    "prompts": lambda: prompt_set_of(("one", "two")),
    "grow": lambda: growth_of(prompts=(16, 32), answers=(4, 8)),
    "prefix": lambda: prefix_of(3),
    "conversations": conversations_of,
    "load": lambda: load_of(sweep=(2,)),
    "endpoint": endpoint_of,
}
"""One made-up result per row of the table of questions, by the row's key."""


def noise_result(strategies: Sequence[str] = ("dynamic",), *, rounds: int = 6, again: float = 1.02) -> ComparisonResult:
    """A comparison whose first strategy runs once more in every round, `again` times as long."""
    plain = result_of([*strategies, "none"] if len(strategies) == 1 else strategies, rounds=rounds, new_tokens=40)
    own = [run for run in plain.runs if run.strategy in strategies]
    first = f"{strategies[0]}-again"
    twins = [
        replace(run, arm=first, order=len(strategies), token_times_s=tuple(time * again for time in run.token_times_s))
        for run in own
        if run.strategy == strategies[0]
    ]
    spec = replace(plain.spec, strategies=tuple(strategies), noise=True)
    return summarise(spec, [*own, *twins], model=MODEL, environment=ENVIRONMENT, strategies=ROWS)


def unknown_run(run: RunRecord, arm: str | None = None) -> RunRecord:
    """What an engine behind a URL can say of such a run: its text, its times and how many tokens, nothing of a cache."""
    return replace(
        run,
        arm=arm or run.arm_key,
        strategy=None,
        token_ids=None,
        num_new_tokens=run.new_tokens,
        positions_computed=None,
        positions_read=None,
        reused_tokens=None,
        cache_tokens=None,
        cache_bytes=None,
        cache_storage_bytes=None,
        cache_bytes_by_token=(),
        cache_bytes_by_device={},
    )


def unknown_comparison(result: ComparisonResult) -> ComparisonResult:
    """The same comparison on such runs."""
    return summarise(
        result.spec,
        map(unknown_run, result.runs),
        model=result.model,
        environment=result.environment,
        strategies=ROWS,
    )


def unknown_prefix() -> PrefixResult:
    """A shared prefix of which nobody says what is kept."""
    known = prefix_of(3)
    pairs = []
    for pair in known.pairs:
        fresh, kept = unknown_run(pair.fresh, "fresh"), unknown_run(pair.kept, "kept")
        pairs.append(replace(pair, fresh=fresh, kept=kept, verdict=judge([(fresh, kept)], expected_equal=False)))
    prefix = PreparedPrefix(None, None, None)
    return summarise_prefix(known.spec, prefix, pairs, model=MODEL, environment=ENVIRONMENT)


def unknown_prompt_set() -> PromptSetResult:
    known = prompt_set_of(("one", "two"))
    prompts = tuple(PromptResult(item.row, unknown_comparison(item.result)) for item in known.prompts)
    return replace(known, prompts=prompts, comparisons=compare_set(known.spec.strategies, prompts))


def unknown_growth() -> GrowthResult:
    known = growth_of(prompts=(16, 32), answers=(4, 8))
    return replace(known, points=tuple(replace(p, result=unknown_comparison(p.result)) for p in known.points))


def unknown_load() -> LoadResult:
    """Of which only the texts and how many tokens there were is known."""

    def blank(_mode: str, _round: int, record: ManyRecord) -> ManyRecord:
        nothing: dict[str, Any] = {
            "forwards": None,
            "padding_positions": None,
            "reserved_cache_bytes": None,
            "peak_cache_bytes": None,
            "reused_tokens": None,
            "num_pages": None,
            "page_bytes": None,
        }
        return replace(record, runs=tuple(unknown_run(run) for run in record.runs), **nothing)

    return load_of(change=blank)


UNKNOWN: dict[str, Callable[[], AnyResult]] = {
    "faster": lambda: unknown_comparison(result_of(rounds=6, new_tokens=12)),
    "prompts": unknown_prompt_set,
    "grow": unknown_growth,
    "prefix": unknown_prefix,
    "load": unknown_load,
}
"""The same with runs of which only text, times and numbers of tokens are known."""


def full_layers(count: int, kv_heads: int, dim: int) -> list[LayerFootprint]:
    """Layers of full attention, all alike."""
    return [LayerFootprint(index, "full", kv_heads, dim, kv_heads, dim) for index in range(count)]


def sliding_layers() -> list[LayerFootprint]:
    """Five layers with a window of 512 tokens, then one without, and so on: Gemma-3-1B."""
    return [
        LayerFootprint(index, "full", 1, 256, 1, 256)
        if index % 6 == 5
        else LayerFootprint(index, "sliding", 1, 256, 1, 256, window=512, held_window=511)
        for index in range(26)
    ]


def plan_of(
    layers: Sequence[LayerFootprint] | None = None,
    *,
    name: str = "Llama-3.1-8B",
    num_parameters: int | None = 8_030_261_248,
    context_limit: int | None = 131_072,
    attention_heads: int | None = 32,
    dtype: str = "bfloat16",
    seq_len: int = 32_768,
    batch_size: int = 1,
    **request: object,
) -> MemoryPlan:
    """A plan of the real planner for made-up geometry; by default that of Llama-3.1-8B."""
    kept = tuple(full_layers(32, 8, 128) if layers is None else layers)
    model = Architecture(name, "llama", kept, num_parameters, context_limit, dtype, "traced", attention_heads)
    asked = MemoryRequest(seq_len, batch_size, cache_dtype=dtype, **request)  # type: ignore[arg-type]
    return make_plan(model, asked)


def advice_of(strategy: str, before: CacheDecision, *, new_tokens: int = 120) -> CacheAdvice:
    """How to keep this strategy, for a call that sets only a length and a file that sets only the end token."""
    chosen = strategy_of(strategy)
    named = (
        {"cache_implementation": chosen.cache.implementation} if chosen.cache and chosen.cache.implementation else {}
    )
    row = replace(
        chosen.row(None),
        code=chosen.cache.expression() if chosen.cache else "",
        settings=json.dumps({"use_cache": chosen.cache is not None, **named}),
    )
    call = {"max_new_tokens": new_tokens, "do_sample": False}
    return advise(row, before, call=call, generation_config={"eos_token_id": 2}, from_config={}, slots=new_tokens + 4)
