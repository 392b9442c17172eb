"""Plain JSON values into the facts' dataclasses and back, every value checked and every mistake named by its place.

Unknown keys are ignored (derived figures are written for readers, not read back); missing ones take the default.
It knows no particular dataclass.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any, Literal

from kvdemo.errors import InvalidRequest

__all__ = ["decoded", "encoded", "strict"]

MAX_WHOLE_NUMBER = 2**63 - 1
T = typing.TypeVar("T")


def encoded(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists, NaN and infinities as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encoded(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return strict(value)


def strict(value: Any) -> Any:
    """The same value without NaN and infinities (JSON has neither): they become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    return value


@typing.overload
def decoded(kind: type[T], value: object, place: str) -> T: ...
@typing.overload
def decoded(kind: object, value: object, place: str) -> Any: ...
def decoded(kind: Any, value: object, place: str) -> Any:
    """`value` as a `kind`, a Literal of words included; InvalidRequest that names `place` and what is wrong there."""
    return _read(kind, value, place)


def _read(kind: Any, value: object, place: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, place)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), value, place)
    if origin is Literal:
        words = typing.get_args(kind)
        if not isinstance(value, str) or value not in words:
            raise InvalidRequest(place, f"is not one of {', '.join(words)}")
        return value
    if origin is tuple:
        return _read_tuple(typing.get_args(kind), value, place)
    if origin is dict:
        if not isinstance(value, dict):
            raise InvalidRequest(place, "must be an object")
        item = typing.get_args(kind)[1]
        return {_read(str, key, place): _read(item, entry, f"{place}.{key}"[:200]) for key, entry in value.items()}
    return _read_plain(kind, value, place)


def _read_plain(kind: Any, value: object, place: str) -> Any:
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(place, "contains half of a surrogate pair, which is not text") from error
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and kind in (int, float):
        if not -MAX_WHOLE_NUMBER <= value <= MAX_WHOLE_NUMBER:
            raise InvalidRequest(place, "must be a finite number of usual size")
        if kind is float:
            return float(value)
        if isinstance(value, int) or value.is_integer():
            return int(value)
    words = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
    raise InvalidRequest(place, f"must be {words[kind]}")


def _read_union(kinds: tuple[Any, ...], value: object, place: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others[:-1]:
        try:
            return _read(kind, value, place)
        except InvalidRequest:
            continue
    return _read(others[-1], value, place)


def _read_tuple(kinds: tuple[Any, ...], value: object, place: str) -> Any:
    if not isinstance(value, list | tuple):
        raise InvalidRequest(place, "must be a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_read(kinds[0], item, f"{place}[{index}]") for index, item in enumerate(value))
    if len(value) != len(kinds):
        raise InvalidRequest(place, f"must be a list of {len(kinds)}")
    return tuple(_read(kind, item, f"{place}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))


def _read_dataclass(kind: Any, value: object, place: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidRequest(place, "must be an object")
    hints = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            values[field.name] = _read(hints[field.name], value[field.name], f"{place}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InvalidRequest(f"{place}.{field.name}", "is missing")
    try:
        return kind(**values)
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}.{error.field}", error.message) from error
