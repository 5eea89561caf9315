"""JSON to frozen dataclasses and back, by their own type hints. Unknown fields are passed over."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(cls: type[T], value: Mapping[str, Any]) -> T:
    """Return a dataclass from the object that JSON gave. Absent fields take their defaults.

    Raises TypeError when a field without a default is absent, ValueError when a value cannot be its type.
    """
    assert is_dataclass(cls)
    hints = _hints(cls)
    known = {f.name: _value(hints[f.name], value[f.name]) for f in fields(cls) if f.name in value}
    return cast(T, cls(**known))


def _value(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if hint is Any or value is None:
        return value
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        return _value(inner[0], value) if len(inner) == 1 else value
    if origin is tuple:
        return tuple(_value(typing.get_args(hint)[0], v) for v in value)
    if origin is dict:
        return {k: _value(typing.get_args(hint)[1], v) for k, v in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return decode(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return value
