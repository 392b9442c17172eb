"""A model on meta and its quantization_config -> what the published files hold, in bytes.

The methods' own packages are not needed: every layout is arithmetic on the shapes of the model's own modules. Rows are
what a matrix puts out, columns what it takes in; a group runs along the columns.

    mxfp4               experts only: 4 bits each, one byte of scale per 32
    fp8                 one byte each, a float32 scale per block (or one per matrix)
    gptq, awq           packed in int32, with a float16 scale and a packed zero point per group and row
    bitsandbytes        4 bits with a float32 scale per 64 (or those quantised once more), or 8 bits with one per row
    compressed-tensors  as each of its groups says
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import StoredWeights
from kvdemo.planner.sizes import weights_dtype_bits

__all__ = ["published_weights"]

FLOAT32, FLOAT16, INT32 = 4, 2, 4  # bytes
MXFP4_GROUP = 32
BNB_BLOCK, BNB_NESTED_BLOCK = 64, 256
BNB_MAP_BYTES, BNB_NESTED_MAP_BYTES = 16 * FLOAT32, 256 * FLOAT32 + FLOAT32
BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"
MOST_PATTERNS = 10_000
MOST_CHARS = 300
MOST_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight that a method may store in another way.

    name    of its module; of an expert's, the name that it has in the files
    kind    the class of that module; an expert's is "Linear", as in the files
    count   equal matrices: one for each expert
    """

    name: str
    kind: str
    rows: int
    columns: int
    count: int = 1
    expert: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns


Layout = Callable[[Matrix], int | None]
"""Bytes of one matrix with all that belongs to it; None: this one is left as it is."""


class _UnknownLayout(Exception):
    """How these weights are stored is not known here; says which part."""


def published_weights(model: Any, quantised: Any, dtype: str, further_parameters: int = 0) -> StoredWeights:
    """What do the published weights of this model take?

    model                on meta, whole
    quantised            its quantization_config
    dtype                of everything that the method leaves alone
    further_parameters   that the model on meta lacks

    A layout that is not known is counted in dtype and says so. InvalidRequest("config", ...) names a field that no method
    can work with.
    """
    bits = weights_dtype_bits(dtype)
    parameters = sum(parameter.numel() for parameter in model.parameters()) + further_parameters
    try:
        words, layout = _method(model, quantised)
    except _UnknownLayout as error:
        return StoredWeights(-(-parameters * bits // 8), f"as published: {error}, counted in {dtype}")
    stored = 0
    for matrix in _matrices(model):
        num_bytes = layout(matrix)
        if num_bytes is not None:
            stored += matrix.count * num_bytes
            parameters -= matrix.count * matrix.elements
    return StoredWeights(stored + -(-parameters * bits // 8), f"as published: {words}")


def _method(model: Any, quantised: Any) -> tuple[str, Layout]:
    """The method in words, and how it stores a matrix."""
    if not isinstance(quantised, dict):
        raise _UnknownLayout(f"quantised ({str(quantised)[:40]})")
    said = quantised.get("quant_method")
    if said is None and (quantised.get("load_in_4bit") or quantised.get("load_in_8bit")):
        said = "bitsandbytes"
    method = str(said or "quantised")[:40]
    makers: dict[str, Callable[[Any, dict[str, Any]], tuple[str, Layout]]] = {
        "mxfp4": _mxfp4,
        "fp8": _fp8,
        "gptq": _gptq,
        "awq": _awq,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed_tensors,
    }
    if method not in makers:
        raise _UnknownLayout(method)
    return makers[method](model, quantised)


def _mxfp4(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    kept = _kept(model, said, "modules_to_not_convert")
    return "mxfp4", lambda matrix: None if not matrix.expert or kept(matrix) else _mxfp4_bytes(matrix)


def _mxfp4_bytes(matrix: Matrix) -> int:
    return _packed4(matrix) + matrix.rows * -(-matrix.columns // MXFP4_GROUP)


def _packed4(matrix: Matrix) -> int:
    """Two values in a byte, each row for itself."""
    return matrix.rows * -(-matrix.columns // 2)


def _fp8(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    kept = _kept(model, said, "modules_to_not_convert", "ignored_layers")
    size = said.get("weight_block_size", [128, 128])
    block = None if size is None else _block(size, "weight_block_size")
    scale_bytes = 1 if said.get("scale_fmt") == "ue8m0" else FLOAT32
    packed_experts = said.get("expert_dtype") == "fp4"

    def layout(matrix: Matrix) -> int | None:
        if kept(matrix):
            return None
        if packed_experts and matrix.expert:
            return _packed4(matrix) + scale_bytes * matrix.rows * -(-matrix.columns // MXFP4_GROUP)
        scales = 1 if block is None else _blocks(matrix, block)
        return matrix.elements + scale_bytes * scales

    return "fp8", layout


def _gptq(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    if said.get("dynamic"):
        raise _UnknownLayout("gptq with rules of its own for some modules")
    bits, group = _bits(said, "bits"), _group(said, "group_size")
    inside = said.get("modules_in_block_to_quantize")
    names = [name for part in inside for name in (part if isinstance(part, list) else [part])] if inside else None
    kept = _kept(model, said, "modules_to_not_convert", also_default=not said.get("lm_head"))
    blocks = _decoder_prefix(model)

    def layout(matrix: Matrix) -> int | None:
        in_block = matrix.name.startswith(blocks) and re.search(r"\.\d+\.", matrix.name)
        if kept(matrix) or not (in_block or (said.get("lm_head") and matrix.name.endswith("lm_head"))):
            return None
        if names is not None and not matrix.name.endswith(tuple(str(name) for name in names)):
            return None
        order = INT32 * matrix.columns  # g_idx: the group of each column
        return _grouped_bytes(matrix, bits, group, zero_points=True) + order

    return f"gptq, {bits} bits", layout


def _awq(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    kept = _kept(model, said, "modules_to_not_convert", also_default=True)
    bits = _bits(said, "bits" if "bits" in said else "w_bit")
    group = _group(said, "group_size" if "group_size" in said else "q_group_size")
    zeros = said.get("zero_point", True) is not False
    return (
        f"awq, {bits} bits",
        lambda matrix: None if kept(matrix) else _grouped_bytes(matrix, bits, group, zero_points=zeros),
    )


def _grouped_bytes(matrix: Matrix, bits: int, group: int | None, *, zero_points: bool) -> int:
    """Packed along the columns in int32, a float16 scale per group and row, zero points packed along the rows."""
    groups = 1 if group is None else -(-matrix.columns // group)
    zeros = groups * INT32 * -(-matrix.rows * bits // 32) if zero_points else 0
    return INT32 * -(-matrix.columns * bits // 32) * matrix.rows + FLOAT16 * groups * matrix.rows + zeros


def _bitsandbytes(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    kept = _kept(model, said, "llm_int8_skip_modules")
    if said.get("load_in_4bit"):
        nested = bool(said.get("bnb_4bit_use_double_quant"))
        return "bitsandbytes, 4 bits", lambda matrix: None if kept(matrix) else _bnb4_bytes(matrix, nested)
    if not said.get("load_in_8bit"):
        raise _UnknownLayout("bitsandbytes in neither 4 nor 8 bits")
    return "bitsandbytes, 8 bits", lambda matrix: None if kept(matrix) else matrix.elements + FLOAT32 * matrix.rows


def _bnb4_bytes(matrix: Matrix, nested: bool) -> int:
    """Packed without regard to rows; `nested`: the scales are quantised to a byte, in blocks of 256, with an offset."""
    blocks = -(-matrix.elements // BNB_BLOCK)
    scales = blocks + FLOAT32 * -(-blocks // BNB_NESTED_BLOCK) + BNB_NESTED_MAP_BYTES if nested else FLOAT32 * blocks
    return -(-matrix.elements // 2) + scales + BNB_MAP_BYTES


def _compressed_tensors(model: Any, said: dict[str, Any]) -> tuple[str, Layout]:
    groups = said.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise _UnknownLayout("compressed-tensors without groups")
    sparse = said.get("sparsity_config")
    if sparse and not (isinstance(sparse, dict) and sparse.get("format") == "dense"):
        raise _UnknownLayout("compressed-tensors with sparse weights")
    ignored = _named_or_matched(said.get("ignore") or [], "ignore")
    rules: list[tuple[Callable[[Matrix], bool], Layout]] = []
    widths: set[int] = set()
    for group in groups.values():
        if not isinstance(group, dict):
            raise _wrong("config_groups", group, "an object of groups")
        weights = group.get("weights")
        if weights is None:
            continue
        if not isinstance(weights, dict):
            raise _wrong("config_groups.weights", weights, "an object")
        layout, bits = _compressed_layout(weights, str(group.get("format") or said.get("format") or ""))
        rules.append((_named_or_matched(group.get("targets") or [], "config_groups.targets"), layout))
        widths.add(bits)

    def stored(matrix: Matrix) -> int | None:
        if ignored(matrix):
            return None
        return next((layout(matrix) for targets, layout in rules if targets(matrix)), None)

    return f"compressed-tensors, {' and '.join(map(str, sorted(widths)))} bits", stored


def _compressed_layout(weights: dict[str, Any], file_format: str) -> tuple[Layout, int]:
    """How one group of modules is stored, and its bits."""
    bits = _bits(weights, "num_bits")
    strategy, kind = str(weights.get("strategy") or ""), str(weights.get("type") or "int")
    group = _group(weights, "group_size") if "group_size" in weights else None
    zeros = weights.get("symmetric", True) is False
    if not strategy:
        strategy = "group" if group else "tensor"
    if file_format.startswith(("nvfp4", "mxfp4")):
        one, whole = (group or MXFP4_GROUP), FLOAT32 if file_format.startswith("nvfp4") else 0
        return lambda matrix: _packed4(matrix) + matrix.rows * -(-matrix.columns // one) + whole, 4
    packed = file_format == "pack-quantized"
    if strategy not in ("tensor", "channel", "group", "block") or "marlin" in file_format or (bits != 8 and not packed):
        raise _UnknownLayout(f"compressed-tensors ({(file_format or strategy)[:40]})")
    block = _block(weights.get("block_structure"), "block_structure") if strategy == "block" else (1, 1)
    in_order = weights.get("actorder") in ("group", True)

    def layout(matrix: Matrix) -> int:
        groups = -(-matrix.columns // group) if strategy == "group" and group else 1
        scales = {
            "tensor": 1,
            "channel": matrix.rows,
            "group": matrix.rows * groups,
            "block": -(-matrix.rows // block[0]) * -(-matrix.columns // block[1])
            if block and strategy == "block"
            else 0,
        }[strategy]
        values = INT32 * matrix.rows * -(-matrix.columns * bits // 32) + 16 if packed else matrix.elements
        zero = 0
        if zeros and kind == "int":
            zero = INT32 * groups * -(-matrix.rows * bits // 32) if packed else scales
        return values + FLOAT16 * scales + zero + (INT32 * matrix.columns if in_order else 0)

    return layout, bits


def _matrices(model: Any) -> Iterator[Matrix]:
    """The matrices of a model that methods store in their own way: linear layers, and experts as their files name them."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    tied = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, module in model.named_modules():
        if isinstance(module, Conv1D):
            columns, rows = module.weight.shape
            yield Matrix(name, "Conv1D", rows, columns)
        elif isinstance(module, nn.Linear) and id(module.weight) not in tied:
            yield Matrix(name, "Linear", module.out_features, module.in_features)
        elif type(module).__name__.endswith("Experts") or name.endswith(".experts"):
            yield from _experts(name, module)


def _experts(name: str, module: Any) -> Iterator[Matrix]:
    """Experts that the model keeps in one tensor [experts, a, b]; the files have a matrix for each."""
    tensors = {key: tuple(tensor.shape) for key, tensor in module.named_parameters(recurse=False) if tensor.ndim == 3}
    turned = getattr(module, "is_transposed", None)
    if turned is None and {"gate_up_proj", "down_proj"} <= set(tensors):
        turned = tensors["gate_up_proj"][1] == tensors["down_proj"][2]
    for key, (count, one, other) in tensors.items():
        rows, columns = (other, one) if turned else (one, other)
        if key.startswith("gate_up") and rows % 2 == 0:
            for part in ("gate_proj", "up_proj"):
                yield Matrix(f"{name}.0.{part}", "Linear", rows // 2, columns, count, expert=True)
        else:
            yield Matrix(f"{name}.0.{key}", "Linear", rows, columns, count, expert=True)


def _kept(model: Any, said: Mapping[str, Any], *fields: str, also_default: bool = False) -> Callable[[Matrix], bool]:
    """Is this matrix left alone? As transformers decides it: by the list in the config, else heads and what is tied."""
    from transformers.quantizers.base import get_keys_to_not_convert

    field = next((name for name in fields if said.get(name) is not None), None)
    patterns = [] if field is None else _texts(said[field], field)
    names = [
        *(get_keys_to_not_convert(model) if field is None or also_default else ()),
        *(model._keep_in_fp32_modules or ()),
    ]
    compiled = [_compiled(pattern) for pattern in (*patterns, *map(re.escape, names))]
    ends = (*patterns, *names)

    def kept(matrix: Matrix) -> bool:
        experts = matrix.name.rsplit(".", 2)[0] if matrix.expert else matrix.name
        return any(name.endswith(ends) or any(it.match(name) for it in compiled) for name in {matrix.name, experts})

    return kept


def _named_or_matched(patterns: Any, field: str) -> Callable[[Matrix], bool]:
    """Is a matrix named by this list of compressed-tensors: by its class, by its name, or by "re:" and a pattern?"""
    texts = _texts(patterns, field)
    names = {text for text in texts if not text.startswith("re:")}
    compiled = [_compiled(text.removeprefix("re:"), "") for text in texts if text.startswith("re:")]

    def found(matrix: Matrix) -> bool:
        if matrix.kind in names or matrix.name in names:
            return True
        return any(pattern.match(matrix.name) for pattern in compiled)

    return found


def _compiled(pattern: str, end: str = BOUNDARY) -> re.Pattern[str]:
    """A pattern that somebody else wrote; one that could run for ever is not tried."""
    repeats = len(re.findall(r"(?<!\\)[*+{]", pattern))
    if len(pattern) > MOST_CHARS or repeats > MOST_REPEATS or re.search(r"\)[*+{]", pattern):
        raise _UnknownLayout("quantised, with patterns of modules that are not tried")
    try:
        return re.compile(f"(?:{pattern}){end}")
    except re.error as error:
        raise InvalidRequest(
            "config", f"quantization_config names modules by {pattern[:40]!r}, which is no pattern"
        ) from error


def _decoder_prefix(model: Any) -> str:
    """Where in the model its text decoder is, as a prefix of names."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    return next((f"{name}." for name, module in model.named_modules() if module is decoder and name), "")


def _block(value: Any, field: str) -> tuple[int, int]:
    """Rows and columns of a block."""
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(field, value, "two whole numbers")
    rows, columns = (_whole({field: size}, field, 1, 1, 10**6) for size in value)
    return rows, columns


def _blocks(matrix: Matrix, block: tuple[int, int]) -> int:
    return -(-matrix.rows // block[0]) * -(-matrix.columns // block[1])


def _texts(values: Any, field: str) -> list[str]:
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _wrong(field, values, "a list of names")
    if len(values) > MOST_PATTERNS:
        raise InvalidRequest("config", f"quantization_config.{field} lists {len(values):,} names")
    return [value for value in values if value]


def _bits(said: Mapping[str, Any], field: str) -> int:
    return _whole(said, field, 4, 1, 16)


def _group(said: Mapping[str, Any], field: str) -> int | None:
    """Columns that share a scale; None: all of them."""
    if field in said and said[field] in (None, -1):
        return None
    return _whole(said, field, 128, 1, 10**6)


def _whole(said: Mapping[str, Any], field: str, usual: int, low: int, high: int) -> int:
    value = said.get(field, usual)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _wrong(field, value, f"a whole number from {low:,} to {high:,}")
    return value


def _wrong(field: str, value: object, right: str) -> InvalidRequest:
    return InvalidRequest("config", f"quantization_config.{field} is {str(value)[:20]!r}; it must be {right}")
