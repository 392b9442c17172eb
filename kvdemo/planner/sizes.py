"""Bytes of one layer, and of all layers, as arithmetic on footprints. No torch, nothing measured.

held      a growing cache after N tokens         keys and values x min(N, window - 1), states, streams
reserved  a cache of fixed size for N tokens     keys and values x min(N, window), states, streams
uniform   one page size for all layers           keys and values x N, states, streams
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvdemo.facts.plans import CACHE_DTYPES, LayerFootprint, MemoryRequest, TokenStream

__all__ = ["FLOAT8_SCALES_BYTES", "WEIGHT_BITS", "Sizes", "grouped", "weights_dtype_bits"]

WEIGHT_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "float8": 8, "int4": 4}
FLOAT8_SCALES_BYTES = 2 * 4  # transformers' float8 cache: one float32 scale for the keys of a layer, one for its values
STATE_BYTES_BELOW_FLOAT8 = 2  # a float8 cache quantises keys and values; states stay in the model's 16 bits


@dataclass(frozen=True, slots=True)
class Sizes:
    """How a request stores elements, and on how many devices.

    bytes_each        of an element of keys and values
    state_bytes_each  of an element of a state that follows the cache's dtype
    encoder_len       tokens that cross-attention layers keep, whatever the length
    """

    bytes_each: int
    state_bytes_each: int
    tensor_parallel: int = 1
    encoder_len: int = 0

    @classmethod
    def of(cls, request: MemoryRequest, encoder_len: int | None = None) -> Sizes:
        """The sizes that a request asks for; the encoder hands over as many tokens as the request has when unsaid."""
        bytes_each = CACHE_DTYPES[request.cache_dtype]
        return cls(
            bytes_each=bytes_each,
            state_bytes_each=max(bytes_each, STATE_BYTES_BELOW_FLOAT8),
            tensor_parallel=request.tensor_parallel,
            encoder_len=request.encoder_len or encoder_len or request.seq_len,
        )

    def held(self, layer: LayerFootprint, num_tokens: int) -> int:
        """Bytes of one sequence in a growing cache after num_tokens."""
        return self._at(layer, num_tokens, layer.held_window)

    def reserved(self, layer: LayerFootprint, num_tokens: int) -> int:
        """Bytes of one sequence in a cache of fixed size for num_tokens."""
        return self._at(layer, num_tokens, layer.window)

    def uniform(self, layer: LayerFootprint, num_tokens: int) -> int:
        """Bytes of one sequence when no layer's window saves anything."""
        return self._at(layer, num_tokens, None)

    def fixed(self, layer: LayerFootprint) -> int:
        """Bytes of one sequence's states, whatever its length."""
        return sum(state.elements * (state.bytes_each or self.state_bytes_each) for state in layer.fixed)

    def per_token(self, layer: LayerFootprint, num_tokens: int) -> int:
        """Bytes that one more token adds to one sequence of this length; none beyond a window or across to an encoder."""
        if layer.kind == "cross":
            return 0
        keys_and_values = self.bytes_per_position(layer)
        if layer.window is not None and num_tokens >= layer.window:
            keys_and_values = 0
        growing = (stream for stream in layer.streams if not (stream.remainder or stream.once))
        return keys_and_values + sum(self._stream_bytes(stream) // stream.every for stream in growing)

    def bytes_per_position(self, layer: LayerFootprint) -> int:
        """Bytes of the keys, values and indexer keys of one token, on one device."""
        key_heads = _heads_per_device(layer.kv_heads, self.tensor_parallel)
        value_heads = _heads_per_device(layer.value_heads, self.tensor_parallel)
        return self.bytes_each * (key_heads * layer.key_dim + value_heads * layer.value_dim + layer.extra_elements)

    def _at(self, layer: LayerFootprint, num_tokens: int, window: int | None) -> int:
        positions = self.encoder_len if layer.kind == "cross" else num_tokens + layer.lead_tokens
        if window is not None:
            positions = min(positions, window)
        total = self.bytes_per_position(layer) * positions + self.fixed(layer)
        for stream in layer.streams:
            total += stream.elements_at(num_tokens) * (stream.bytes_each or self.bytes_each)
        return total

    def _stream_bytes(self, stream: TokenStream) -> int:
        return stream.elements * (stream.bytes_each or self.bytes_each)


def grouped(layers: Iterable[LayerFootprint]) -> list[tuple[LayerFootprint, int]]:
    """Equal layers once, with their number: a model of a hundred layers has two or three kinds."""
    return list(Counter(replace(layer, index=0, shares=None) for layer in layers).items())


def weights_dtype_bits(dtype: str) -> int:
    """Bits of a parameter; 16 for a dtype that we have no word for."""
    return WEIGHT_BITS.get(dtype, 16)


def _heads_per_device(heads: int, tensor_parallel: int) -> int:
    """Heads that the fullest device keeps: divided where they divide, one where devices outnumber them, else all."""
    if heads % tensor_parallel == 0:
        return heads // tensor_parallel
    return 1 if tensor_parallel % heads == 0 else heads
