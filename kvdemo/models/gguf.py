"""The outside of a GGUF file: is it whole, and how big will it be unpacked? No weights are read.

The gguf package's own reader makes an object of every word of the vocabulary, which takes seconds; this one skips them.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvdemo.errors import ModelUnavailable

__all__ = ["SPECIAL_TOKENS", "GgufHeader", "check_gguf", "read_header"]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
DEFAULT_ALIGNMENT = 32
SPECIAL_TOKENS = {
    "eos_token_id": ("eos_token_id", "eot_token_id", "eom_token_id"),
    "bos_token_id": ("bos_token_id",),
    "pad_token_id": ("padding_token_id",),
}
"""Names in generation_config.json, and those of the same in a GGUF, below tokenizer.ggml."""
PROJECTORS = ("clip", "mmproj")
MAX_ENTRIES = 1_000_000
MAX_NESTING = 4


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """architecture as the file names it; num_elements of all tensors; expected_bytes of the whole file.

    special_tokens   ids as generation_config.json calls them, of those that the file names: whatever ends an answer or a
                     message, what begins a text, what pads
    """

    architecture: str
    num_elements: int
    expected_bytes: int
    has_tokenizer: bool
    num_parts: int
    special_tokens: Mapping[str, int | list[int]] = field(default_factory=dict)


class _Damaged(Exception):
    """The header makes no sense; the text says how."""


def check_gguf(path: Path, shown: str) -> GgufHeader:
    """The header of the file that people know as `shown`; ModelUnavailable, one line, when it cannot be used."""
    try:
        header = read_header(path)
    except _Damaged as error:
        raise ModelUnavailable(f"{shown} {error}") from None
    size = path.stat().st_size
    if size < header.expected_bytes:
        raise ModelUnavailable(
            f"{shown} is cut short: {size:,} of {header.expected_bytes:,} bytes are there; download it again."
        )
    if header.num_parts > 1:
        raise ModelUnavailable(
            f"{shown} is one of {header.num_parts} parts; join them with llama-gguf-split --merge and give the result."
        )
    if header.architecture in PROJECTORS:
        raise ModelUnavailable(
            f"{shown} is a projector of pictures or sound, not a language model; give the .gguf of the model beside it."
        )
    if not header.has_tokenizer or not header.architecture:
        raise ModelUnavailable(f"{shown} holds no tokenizer, so it is not a whole language model; give another file.")
    return header


def read_header(path: Path) -> GgufHeader:
    """Read everything in front of the tensors' data. Raises _Damaged or OSError."""
    if path.stat().st_size < 24:
        raise _Damaged("is too short for a GGUF file; download it again.")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != MAGIC:
            raise _Damaged("is not a GGUF file, whatever its name says; give another file.")
        try:
            return _Reader(data).header()
        except (struct.error, IndexError):
            raise _Damaged("is cut short within its header; download it again.") from None


def _special_tokens(values: Mapping[str, object]) -> dict[str, int | list[int]]:
    found: dict[str, int | list[int]] = {}
    for name, keys in SPECIAL_TOKENS.items():
        named = (values.get(f"tokenizer.ggml.{key}") for key in keys)
        ids = sorted({value for value in named if type(value) is int})
        if ids:
            found[name] = ids if len(ids) > 1 else ids[0]
    return found


class _Reader:
    """Walks over the header once. Reading beyond the end raises struct.error or IndexError."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._offset = len(MAGIC)

    def header(self) -> GgufHeader:
        version = self._scalar("I")
        if version not in VERSIONS:
            raise _Damaged(f"is of a GGUF version that cannot be read here ({version & 0xFFFF}); give another file.")
        num_tensors, num_values = self._scalar("Q"), self._scalar("Q")
        if max(num_tensors, num_values) > MAX_ENTRIES:
            raise _Damaged("has a damaged header; download it again.")
        values = dict(self._key_value() for _ in range(num_values))
        num_elements, data_bytes = self._tensors(num_tensors)
        alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise _Damaged("has a damaged header; download it again.")
        num_parts = values.get("split.count", 0)
        return GgufHeader(
            architecture=str(values.get("general.architecture") or ""),
            num_elements=num_elements,
            expected_bytes=math.ceil(self._offset / alignment) * alignment + data_bytes,
            has_tokenizer="tokenizer.ggml.tokens" in values,
            num_parts=num_parts if isinstance(num_parts, int) else 0,
            special_tokens=_special_tokens(values),
        )

    def _tensors(self, count: int) -> tuple[int, int]:
        """Elements of all tensors, and bytes from the start of the data to the end of the last tensor."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        num_elements = data_bytes = 0
        for _ in range(count):
            self._string()
            elements = math.prod(self._scalar("Q") for _ in range(self._count("I")))
            kind, offset = self._scalar("I"), self._scalar("Q")
            try:
                block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            except (ValueError, KeyError):
                raise _Damaged(f"holds weights of a kind that is not known here ({kind}); give another file.") from None
            num_elements += elements
            data_bytes = max(data_bytes, offset + elements // block_elements * block_bytes)
        return num_elements, data_bytes

    def _key_value(self) -> tuple[str, object]:
        return self._string(), self._value(self._scalar("I"))

    def _value(self, kind: int, depth: int = 0) -> object:
        """A scalar or string; None for an array, which is only skipped."""
        if kind in SCALARS:
            return self._scalar(SCALARS[kind])
        if kind == STRING:
            return self._string()
        if kind != ARRAY or depth > MAX_NESTING:
            raise _Damaged("has a damaged header; download it again.")
        item, count = self._scalar("I"), self._scalar("Q")
        if item in SCALARS:
            self._skip(count * struct.calcsize(SCALARS[item]))
        elif item == STRING:
            for _ in range(self._bounded(count)):
                self._skip(self._scalar("Q"))
        else:
            for _ in range(self._bounded(count)):
                self._value(item, depth + 1)
        return None

    def _string(self) -> str:
        length = self._scalar("Q")
        start = self._offset
        self._skip(length)
        return self._data[start : start + length].decode("utf-8", errors="replace")

    def _scalar(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self._data, self._offset)
        self._offset += struct.calcsize(code)
        return value  # type: ignore[no-any-return]  # a float or bool only where nobody looks

    def _count(self, code: str) -> int:
        return self._bounded(self._scalar(code))

    def _bounded(self, count: int) -> int:
        """A damaged count must end the walk, not keep it busy."""
        if count > len(self._data) - self._offset:
            raise IndexError
        return count

    def _skip(self, num_bytes: int) -> None:
        if num_bytes > len(self._data) - self._offset:
            raise IndexError
        self._offset += num_bytes
