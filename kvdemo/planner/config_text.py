"""The text of a config.json -> a dict whose fields can be what they say; everything else is refused in words.

It knows the names of common fields, not what a given model does with them: that is the model's own code to say.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from kvdemo.errors import InvalidRequest

__all__ = ["check_fields", "check_shared", "check_sizes", "parse_config", "suspects"]

MAX_CHARS = 5 * 1024 * 1024
MAX_DEPTH = 12
LARGEST = 1_000_000_000
MAX_LAYERS = 1024
MAX_EXPERTS = 65_536
BY_HAND = "enter layers, KV heads and head_dim by hand"
MERGE_MARKER = re.compile(r"^[ \t]*(<{7}|={7}|>{7}|\|{7})", re.MULTILINE)
LAYER_FIELDS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|num_transformer_layers|\w*(en|de)coder_layers)$")
POSITIVE_FIELDS = re.compile(
    r"^(num_attention_heads|num_heads|num_key_value_heads|num_kv_heads|n_heads?|head_dim|hidden_size|n_embd|d_model|dim|vocab_size"
    r"|intermediate_size|ffn_dim|kv_lora_rank|state_size|max_position_embeddings"
    r"|n_positions|qk_rope_head_dim|v_head_dim|linear_\w+_(heads|dim))$"
)
EXPERT_FIELDS = re.compile(r"^(num|n)_\w*experts$")
SHARE_FIELDS = re.compile(r"^(partial_rotary_factor|rotary_pct)$")
NUMBER_FIELDS = re.compile(r"theta|factor|_eps|_pct")  # some of them are no fields of their class
SIZE_FIELDS = re.compile(
    r"^(num|n|max|min)_|(^|_)(size|sizes|dim|dims|rank|heads|layers|window|positions|embeddings|len|length|groups|state|kernel|inner)$"
)
"""What shapes a tensor or is counted, whatever the model calls it; any other number may be as large as it likes."""


def parse_config(text: str) -> dict[str, Any]:
    """A config.json as a dict; InvalidRequest("config", ...) naming line and column, or the field, otherwise."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequest("config", "is empty: paste the config.json of a model")
    if len(text) > MAX_CHARS:
        raise InvalidRequest("config", f"is {len(text):,} characters long; a config.json has a few thousand")
    marker = MERGE_MARKER.search(text)
    if marker:
        begin = marker.start(1)
        line, column = text.count("\n", 0, begin) + 1, begin - text.rfind("\n", 0, begin)
        raise InvalidRequest(
            "config",
            f"holds a merge marker ({marker[1]}) at line {line}, column {column}: choose one side and delete the marker lines",
        )
    try:
        config = json.loads(text.removeprefix("\ufeff"), parse_constant=_constant, object_pairs_hook=_pairs)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            "config", f"is not JSON at line {error.lineno}, column {error.colno}: {error.msg[:80]}"
        ) from error
    except RecursionError as error:
        raise InvalidRequest("config", "is nested too deeply for a config.json") from error
    except ValueError as error:  # a number of more digits than Python converts
        raise InvalidRequest("config", "holds a number with thousands of digits") from error
    if not isinstance(config, dict):
        raise InvalidRequest("config", "is not an object: a config.json starts with { and ends with }")
    check_fields(config)
    return config


def check_fields(config: dict[str, Any]) -> None:
    """Refuse a config that needs remote code, names no model type, or holds fields that no model can have."""
    if not isinstance(config, dict):
        raise InvalidRequest("config", "is not an object: a config.json starts with { and ends with }")
    if "auto_map" in config:
        raise InvalidRequest(
            "config",
            f"needs code that comes with the model (auto_map), which is never run here: remove auto_map if transformers"
            f" itself knows the model type, or {BY_HAND}",
        )
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise InvalidRequest("config", f"has no model_type: without it nothing says which code to ask; or {BY_HAND}")
    for path, key, value in _leaves(config, "", 0):
        _check_field(path, key, value)
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        layers, shared = part.get("num_hidden_layers"), part.get("num_kv_shared_layers")
        if shared is not None:
            check_shared(shared, layers)


def check_shared(shared: Any, layers: Any) -> None:
    """InvalidRequest when so many of so many layers cannot read another layer's cache; layers None: not known."""
    if isinstance(shared, bool) or not isinstance(shared, int) or shared < 0:
        raise InvalidRequest(
            "config", f"num_kv_shared_layers is {_shown(shared)}; it must be a whole number of at least 0"
        )
    if isinstance(layers, int) and shared >= max(layers, 1):
        raise InvalidRequest(
            "config", f"num_kv_shared_layers is {shared} of {layers} layers: at least one has to keep its own cache"
        )


def check_sizes(config: dict[str, Any], known: Any, path: str = "") -> None:
    """InvalidRequest for a size that no model has, in a field that this model's code reads; others may say what they like.

    known   transformers' class for this config, or for a part of it
    """
    fields = {*getattr(known, "__dataclass_fields__", ()), *getattr(known, "attribute_map", ())}
    for key, value in config.items():
        where = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            part = getattr(known, "sub_configs", {}).get(key)
            if part is not None:
                check_sizes(value, part, where)
        elif isinstance(value, int) and abs(value) > LARGEST and key in fields and SIZE_FIELDS.search(key):
            raise InvalidRequest("config", f"{where} is above {LARGEST:,}, which no model has")


def suspects(config: dict[str, Any], usual: Any, said: str = "", path: str = "") -> list[str]:
    """Fields that are another kind of value than usual (not above 0, huge, null, a text ...), each with its value.

    usual   transformers' config of this model type with its defaults, or a part of it
    said    what the model's code said: a text that it quotes is suspect, too
    """
    found: list[str] = []
    for key, value in config.items():
        default = getattr(usual, key, None)
        where = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict) and default is not None and not isinstance(default, dict):
            found += suspects(value, default, said, where)
            continue
        if default is None and NUMBER_FIELDS.search(key):
            default = 1.0
        quoted = isinstance(value, str) and repr(value) in said
        if quoted or _is_odd(value, default, SIZE_FIELDS.search(key) is not None):
            shown = "null" if value is None else _shown(value) if isinstance(value, int | float) else repr(value)[:20]
            found.append(f"{where[:60]} is {shown}")
    return found


def _is_odd(value: Any, default: Any, is_size: bool) -> bool:
    if default is None:
        return is_size and isinstance(value, int | float) and value <= 0
    if isinstance(default, bool) or isinstance(value, bool):
        return type(value) is not type(default)
    if isinstance(default, int | float):
        if not isinstance(value, int | float):
            return True
        return (value <= 0 < default) or abs(value) > LARGEST or (isinstance(default, int) and value != int(value))
    return not isinstance(value, type(default))


def _check_field(path: str, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        if isinstance(value, str | bool) and (POSITIVE_FIELDS.match(key) or LAYER_FIELDS.match(key)):
            what = f"the text {value[:20]!r}" if isinstance(value, str) else str(value).lower()
            raise InvalidRequest("config", f"{path} is {what}; it must be a number")
        return
    if isinstance(value, float) and math.isnan(value):
        raise InvalidRequest("config", f"{path} is NaN, which is no number: write the value or null")
    if isinstance(value, int) and abs(value) > LARGEST and POSITIVE_FIELDS.match(key):
        raise InvalidRequest("config", f"{path} is above {LARGEST:,}, which no model has")
    if LAYER_FIELDS.match(key) and not (isinstance(value, int) and 0 < value <= MAX_LAYERS):
        raise InvalidRequest("config", f"{path} is {_shown(value)}; it must be a whole number from 1 to {MAX_LAYERS:,}")
    if POSITIVE_FIELDS.match(key) and not (isinstance(value, int) and value > 0):
        raise InvalidRequest("config", f"{path} is {_shown(value)}; it must be a whole number of at least 1")
    if SHARE_FIELDS.match(key) and not 0 < value <= 1:
        raise InvalidRequest("config", f"{path} is {_shown(value)}; it must be a share above 0, at most 1")
    if EXPERT_FIELDS.match(key) and not (isinstance(value, int) and 0 <= value <= MAX_EXPERTS):
        raise InvalidRequest("config", f"{path} is {_shown(value)}; it must be a whole number up to {MAX_EXPERTS:,}")


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str, Any]]:
    """(path, name of the field, value) of everything that is no container."""
    if depth > MAX_DEPTH:
        raise InvalidRequest("config", "is nested too deeply for a config.json")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        if len(value) > 1_000_000:
            raise InvalidRequest("config", f"{path} lists {len(value):,} values")
        for inner in value:
            yield from _leaves(inner, path, depth + 1)
    else:
        yield path, path.rsplit(".", 1)[-1], value


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    """A JSON object; a key that is there twice with different values has no meaning."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise InvalidRequest("config", f"{key[:60]} is there twice with different values: keep one")
        found[key] = value
    if set(found) == {"__float__"} and found["__float__"] in ("Infinity", "-Infinity"):
        return float(found["__float__"])  # how newer files write an open limit, such as that of a time step
    return found


def _constant(constant: str) -> float:
    """Infinity is a limit that is left open, and real configs hold it; NaN is a mistake."""
    if constant == "NaN":
        raise InvalidRequest("config", "holds NaN, which is no number: write the value or null")
    return float(constant)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 20 else "a number that long"
