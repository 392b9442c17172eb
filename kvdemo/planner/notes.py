"""What a reader has to know beside the numbers of a plan, in words."""

from __future__ import annotations

from kvdemo.facts.plans import Architecture, MemoryRequest
from kvdemo.planner.sizes import FLOAT8_SCALES_BYTES

__all__ = ["notes_of"]


def notes_of(architecture: Architecture, request: MemoryRequest) -> tuple[str, ...]:
    """Refusals, estimates and choices that went into a plan of this request."""
    notes = list(architecture.notes)
    kinds = {layer.kind for layer in architecture.layers}
    limit = architecture.context_limit
    if limit is not None and request.seq_len > limit:
        notes.append(f"{request.seq_len:,} tokens are beyond the model's own limit of {limit:,}.")
    if request.cache_dtype == "float8":
        keeping = sum(layer.kv_heads > 0 for layer in architecture.layers)
        notes.append(
            "float8: one byte per element; transformers adds two float32 scales per layer,"
            f" {FLOAT8_SCALES_BYTES * keeping:,} bytes in all, not counted here."
        )
        if kinds - {"full", "latent"}:
            notes.append("transformers' own float8 cache refuses models whose layers are not all full attention.")
    if request.tensor_parallel > 1:
        notes.append(_about_devices(architecture, request.tensor_parallel))
    if "cross" in kinds:
        tokens = request.encoder_len or architecture.encoder_len
        said = f"{tokens:,} tokens" if tokens else f"as many tokens as the text has ({request.seq_len:,})"
        notes.append(f"Cross-attention keeps what the encoder hands over, counted as {said}, whatever the length.")
    if not architecture.static:
        notes.append("transformers has no cache of fixed size for this model: reserved is what a growing one holds.")
    if kinds <= {"state", "none"}:
        notes.append("The cache of this model does not grow with the length.")
    if architecture.num_parameters is None:
        notes.append("The number of parameters is not known: weights are not counted.")
    return tuple(notes)


def _about_devices(architecture: Architecture, devices: int) -> str:
    """How the cache divides over the devices of a tensor-parallel run."""
    copied = sorted(
        {
            layer.kind
            for layer in architecture.layers
            if layer.fixed or layer.extra_elements or (layer.kv_heads and layer.kv_heads % devices)
        }
    )
    text = f"Sizes are those of one of {devices} devices: KV heads and weights are divided"
    if copied:
        text += f"; what does not divide is kept on every device or shared by some ({', '.join(copied)} layers)"
    return text + "."
