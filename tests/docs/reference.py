"""Writes docs/reference/commands.md from the program itself: ``python -m tests.docs.reference``."""

from __future__ import annotations

import inspect
from typing import Any

import typer

from fleetctl.cli.app import COMMANDS, root
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs/reference/commands.md"
HEAD = "# Commands\n\nWritten from the program by `python -m tests.docs.reference`; a test keeps it current.\n"


def page() -> str:
    """Return the whole page."""
    group: Any = typer.main.get_command(root)
    context = group.make_context("fleetctl", ["triage"], resilient_parsing=False)
    parts = [HEAD]
    for name in COMMANDS:
        command = group.get_command(context, name)
        parts += _command(command, f"fleetctl {name}", 2)
    return "\n".join(parts).rstrip() + "\n"


def _command(command: Any, path: str, depth: int) -> list[str]:
    """Return the section of one command, its own commands after it."""
    lines = [
        f"{'#' * depth} {path}",
        "",
        inspect.cleandoc(command.help or "").replace("\f", "").strip(),
        "",
    ]
    rows = [_row(p) for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    if rows:
        lines += ["| | |", "| --- | --- |", *rows, ""]
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            lines += _command(child, f"{path} {name}", depth + 1)
    return lines


def _row(parameter: Any) -> str:
    """Return the table row of one argument or option."""
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        name = ", ".join(f"`{o}`" for o in (*parameter.opts, *parameter.secondary_opts))
    text = " ".join((getattr(parameter, "help", "") or "").split())
    default = getattr(parameter, "default", None)
    if (
        isinstance(default, str | int | float)
        and not isinstance(default, bool)
        and default not in ("", 0)
    ):
        text += f" Default: {default}."
    return f"| {name} | {text.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
