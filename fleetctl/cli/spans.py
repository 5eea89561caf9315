"""Spans of time as people type them: ``30``, ``30s``, ``5m``, ``1.5h``."""

from __future__ import annotations

import re
from collections.abc import Callable

import typer

_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(s|m|min|h|d)?")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def at_least(least: float) -> Callable[[object], float]:
    """Return what reads the value of an option as seconds. Usage error: no span, or below ``least``."""

    def seconds(text: object) -> float:
        match = _SPAN.fullmatch(str(text).strip())
        if match is None:
            raise typer.BadParameter(f"{text!r} is no span of time: 30, 30s, 5m or 1h is wanted")
        found = float(match[1]) * _UNITS[match[2] or ""]
        if found < least:
            raise typer.BadParameter(f"{text} is too short: {least:g} s at least")
        return found

    return seconds
