"""Every ``fleetctl`` line of the documentation is one that the program understands."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from fleetctl.cli.app import COMMANDS, root
from tests.docs.blocks import Typed, all_typed

LINES = [
    line
    for line in all_typed()
    if line.words
    and line.words[0].endswith("fleetctl")
    and "--install-completion" not in line.words
]


def test_the_documentation_shows_commands() -> None:
    assert LINES


@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_shown_command_line_is_understood(line: Typed) -> None:
    """Parse it as the program would, without running it."""
    command: Any = typer.main.get_command(root)
    args, context = line.words[1:], None
    while hasattr(command, "resolve_command"):
        context = command.make_context("fleetctl", list(args), parent=context)
        args = [*context._protected_args, *context.args]
        if not args:
            return
        _, command, args = command.resolve_command(context, args)
    if "--help" in args or "-h" in args:
        return
    command.make_context(command.name, list(args), parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from fleetctl.cli.app import run

    assert run([name, "--help"]) == 0
    assert "Usage: fleetctl" in capsys.readouterr().out
