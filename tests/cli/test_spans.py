"""No option takes a time that has no meaning."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup, TyperOption

from fleetctl.cli.app import COMMANDS, run


def options(command: Any, path: str) -> Iterator[tuple[str, TyperOption]]:
    for one in command.params:
        if isinstance(one, TyperOption):
            yield f"{path} {one.opts[0]}", one
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from options(inner, f"{path} {name}")


def spans() -> list[tuple[str, TyperOption]]:
    found: list[tuple[str, TyperOption]] = []
    for name, entry in COMMANDS.items():
        app = importlib.import_module(f"fleetctl.cli.{entry.module}").app
        found += options(typer.main.get_command(app), name)
    return [(path, one) for path, one in found if one.metavar == "SECONDS"]


def read(option: TyperOption, text: str) -> Any:
    """Return what an option makes of a text, None where it refuses it."""
    try:
        return option.type.convert(text, option, None)
    except typer.BadParameter:
        return None


@pytest.mark.parametrize("text", ["-1", "-1s", "nan", "inf", "soon", "", "1e9x", "30 minutes"])
def test_every_option_for_a_span_of_time_refuses_what_is_none(text: str) -> None:
    found = spans()
    assert len(found) > 15
    assert [path for path, one in found if read(one, text) is not None] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), ("5min", 300.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_every_one_of_them_takes_units(text: str, seconds: float) -> None:
    assert {path for path, one in spans() if read(one, text) != seconds} == set()


@pytest.mark.parametrize("words", [["wait", "h", "--timeout", "-1"], ["wait", "h", "--stall=-3"]])
def test_a_wait_of_less_than_nothing_is_a_fault_of_the_command_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert "is wanted" in capsys.readouterr().err
