"""What an engine with a paged cache says at its start: pages, the tokens that fit, and how many requests of a length at once.

These are the two figures that vLLM prints, by its own arithmetic where all layers are alike: pages = memory / bytes of a page
over all layers; requests = pages / pages of one request. And the commands that start such an engine, for this machine only.
"""

from __future__ import annotations

from kvdemo.facts.model import named_for_a_shell
from kvdemo.facts.plans import CACHE_DTYPES, Architecture, MemoryRequest, Paged
from kvdemo.facts.units import format_count
from kvdemo.planner.sizes import Sizes

__all__ = ["paged"]

WITHOUT_PAGES = ("shared", "none", "state", "cross")
APART = (
    "Layers with windows are counted as if they kept every token; an engine that manages them apart fits more, "
    "as vLLM does for many models."
)
STATES = "States of a fixed size are not in the pages."
CROSS = "What cross-attention keeps of an encoder is not in the pages: an engine needs memory for it beside them."
STREAMS = "What some layers keep beside keys and values, and not for every token, is not in the pages."
VLLM_PAGE, VLLM_CPU_PAGE = 16, 32  # tokens: its attention takes multiples of them on an accelerator, and on a CPU
MOST_AT_ONCE = (
    1024  # of vLLM's command: it makes buffers for each, and starts with no more than tokens of a forward (2,048)
)
BATCH_TOKENS = 128  # query tokens of one forward, transformers serve


def paged(architecture: Architecture, request: MemoryRequest, cache_bytes: int | None) -> Paged | None:
    """This much memory in pages. None without it, or where no layer keeps anything by token.

    cache_bytes   on one device, for the cache alone
    """
    sizes = Sizes.of(request, architecture.encoder_len)
    layers = [layer for layer in architecture.layers if layer.kind not in WITHOUT_PAGES]
    page_bytes = request.page_tokens * sum(sizes.bytes_per_position(layer) for layer in layers)
    if cache_bytes is None or not page_bytes:
        return None
    limit = architecture.context_limit
    length = min(request.seq_len, limit or request.seq_len)
    lead = max(layer.lead_tokens for layer in layers)
    num_pages = max(0, cache_bytes) // page_bytes
    at_once = num_pages / -(-(length + lead) // request.page_tokens)
    return Paged(
        page_tokens=request.page_tokens,
        page_bytes=page_bytes,
        cache_bytes=max(0, cache_bytes),
        num_pages=num_pages,
        tokens=num_pages * request.page_tokens,
        seq_len=length,
        at_once=at_once,
        notes=notes(architecture, request, length),
        commands=commands(architecture, request, length, int(at_once), num_pages, page_bytes) if at_once >= 1 else (),
    )


def notes(architecture: Architecture, request: MemoryRequest, length: int) -> tuple[str, ...]:
    """What is not in the figures, and where an engine's own would be others."""
    layers, size = architecture.layers, request.page_tokens
    said = []
    if length < request.seq_len:
        said.append(
            f"The model's own limit is {format_count(length)} tokens: an engine refuses more, and these figures are for that."
        )
    if any(layer.window is not None for layer in layers):
        said.append(APART)
    if any(layer.fixed for layer in layers):
        said.append(STATES)
    if any(layer.kind == "cross" for layer in layers):
        said.append(CROSS)
    if any(layer.streams for layer in layers):
        said.append(STREAMS)
    if length % size:
        said.append(
            f"The last page of {format_count(length)} tokens is not full. vLLM counts the tokens of whole requests only, and "
            "prints less than what fits."
        )
    if size % VLLM_PAGE:
        said.append(f"vLLM takes pages of {VLLM_PAGE} tokens or multiples of that: there is no command for it here.")
    elif size % VLLM_CPU_PAGE:
        said.append(f"On a CPU vLLM takes multiples of {VLLM_CPU_PAGE} only, and 128 where it is not told.")
    return tuple(said)


def commands(
    architecture: Architecture, request: MemoryRequest, length: int, at_once: int, num_pages: int, page_bytes: int
) -> tuple[tuple[str, str], ...]:
    """(engine, the command that starts it with these limits, listening on this machine only)."""
    model, size = named_for_a_shell(architecture.hub_id or architecture.name), request.page_tokens
    eight_bits = request.cache_dtype == "float8"
    # The cache has the model's dtype where nothing else is said, and that decides how much fits.
    dtype = architecture.dtype if eight_bits else request.cache_dtype
    typed = [f"--dtype {dtype}"] if dtype in CACHE_DTYPES and dtype != "float8" else []
    found: list[tuple[str, list[str]]] = []
    if size % VLLM_PAGE == 0:
        vllm = [f"vllm serve {model} --host 127.0.0.1", *typed, f"--max-model-len {length}"]
        vllm += [f"--max-num-seqs {min(at_once, MOST_AT_ONCE)} --block-size {size}"]
        vllm += [f"--kv-cache-memory-bytes {num_pages * page_bytes}"]
        vllm += ["--kv-cache-dtype fp8"] if eight_bits else []
        vllm += [f"--tensor-parallel-size {request.tensor_parallel}"] if request.tensor_parallel > 1 else []
        found.append(("vLLM", vllm))
    if not eight_bits:
        # Left to itself it takes most of the free memory, and a mask of as many tokens on top.
        serve = [
            f"transformers serve {model} --host 127.0.0.1",
            *typed,
            f"--continuous-batching --cb-block-size {size}",
        ]
        serve += [f"--cb-num-blocks {num_pages} --cb-max-batch-tokens {max(BATCH_TOKENS, at_once)}"]
        found.append(("transformers serve", serve))
        llama = [f"llama-server -m MODEL.gguf --host 127.0.0.1 -c {length * at_once} -np {at_once}"]
        found.append(("llama.cpp", llama))
    return tuple((engine, " ".join(words)) for engine, words in found)
