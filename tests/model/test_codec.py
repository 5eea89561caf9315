from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from fleetctl.model.codec import decode


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    n: int = 0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    numbers: tuple[int, ...] | None = None
    by_name: dict[str, Inner] = field(default_factory=dict)
    colour: Colour = Colour.RED
    any: Any = None
    mixed: int | str = 0


def test_nested_values_become_their_types() -> None:
    body = {
        "name": "a", "inner": {"n": 1}, "many": [{"n": 2}], "numbers": [3], "colour": "red",
        "by_name": {"x": {"n": 4}}, "any": [5], "mixed": "six", "unknown": True,
    }  # fmt: skip
    wanted = Outer("a", Inner(1), (Inner(2),), (3,), {"x": Inner(4)}, Colour.RED, [5], "six")
    assert decode(Outer, body) == wanted


def test_absent_and_null_fields_take_what_they_can() -> None:
    assert decode(Outer, {"name": "a", "inner": None, "numbers": None}) == Outer("a")


def test_a_field_that_is_needed_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        decode(Outer, {})


def test_a_value_outside_an_enum_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="blue"):
        decode(Outer, {"name": "a", "colour": "blue"})
