"""What an engine with a paged cache says at its start: pages, the tokens that fit, and how many requests of a length at once.

These are the two figures that vLLM prints, by its own arithmetic where all layers are alike: pages = memory / bytes of a page
over all layers; requests = pages / pages of one request. And the commands that start such an engine, for this machine only.
"""

from __future__ import annotations

import re

from kvdemo.facts.plans import Architecture, MemoryRequest, Paged
from kvdemo.planner.sizes import Sizes
from kvdemo.settings import DEFAULT_MODEL

__all__ = ["paged"]

WITHOUT_PAGES = ("shared", "none", "state", "cross")
APART = (
    "Layers with windows are counted as if they kept every token; an engine that manages them apart fits more, "
    "as vLLM does for many models."
)
BATCH_TOKENS = 128  # query tokens of one forward
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
STATES = "States of a fixed size are not in the pages."


def paged(architecture: Architecture, request: MemoryRequest, cache_bytes: int | None) -> Paged | None:
    """This much memory in pages. None without it, or where no layer keeps anything by token.

    cache_bytes   on one device, for the cache alone
    """
    sizes = Sizes.of(request, architecture.encoder_len)
    layers = [layer for layer in architecture.layers if layer.kind not in WITHOUT_PAGES]
    page_bytes = request.page_tokens * sum(sizes.bytes_per_position(layer) for layer in layers)
    if cache_bytes is None or not page_bytes:
        return None
    num_pages = max(0, cache_bytes) // page_bytes
    at_once = num_pages / -(-request.seq_len // request.page_tokens)
    notes = [APART] if any(layer.window is not None for layer in layers) else []
    notes += [STATES] if any(layer.fixed for layer in architecture.layers) else []
    return Paged(
        page_tokens=request.page_tokens,
        page_bytes=page_bytes,
        cache_bytes=max(0, cache_bytes),
        num_pages=num_pages,
        tokens=num_pages * request.page_tokens,
        seq_len=request.seq_len,
        at_once=at_once,
        notes=tuple(notes),
        commands=commands(architecture.name, request, int(at_once), num_pages) if at_once >= 1 else (),
    )


def commands(name: str, request: MemoryRequest, at_once: int, num_pages: int) -> tuple[tuple[str, str], ...]:
    """(engine, the command that starts it with these limits, listening on this machine only)."""
    # A name may come out of anybody's config.json, and somebody pastes the command into a shell.
    default = name == DEFAULT_MODEL.split("/")[-1]
    model = DEFAULT_MODEL if default else name if HUB_ID.fullmatch(name) else "MODEL"
    vllm = [f"vllm serve {model} --host 127.0.0.1 --max-model-len {request.seq_len} --max-num-seqs {at_once}"]
    vllm += [f"--block-size {request.page_tokens}"]
    vllm += ["--kv-cache-dtype fp8"] if request.cache_dtype == "float8" else []
    vllm += [f"--tensor-parallel-size {request.tensor_parallel}"] if request.tensor_parallel > 1 else []
    # Left to itself it takes most of the free memory, and a mask of as many tokens on top.
    serve = [f"transformers serve {model} --host 127.0.0.1 --continuous-batching --cb-block-size {request.page_tokens}"]
    serve += [f"--cb-num-blocks {num_pages} --cb-max-batch-tokens {max(BATCH_TOKENS, at_once)}"]
    return (
        ("vLLM", " ".join(vllm)),
        ("transformers serve", " ".join(serve)),
        ("llama.cpp", f"llama-server -m MODEL.gguf --host 127.0.0.1 -c {request.seq_len * at_once} -np {at_once}"),
    )
