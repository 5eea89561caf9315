"""What advice says to type, with the names of this launch in it, and flags as a deploy takes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_WORD = re.compile(r"\b(?:HOST|VERSION|ID|PROFILE)\b|(?<=--profile )P\b")


def command_line(advice: Mapping[str, Any], names: Mapping[str, str | None]) -> str:
    """Return the line to show for an advice, "" where it has no command.

    ``names`` may hold HOST, PROFILE, P (the profile with what was changed for this launch), VERSION
    and ID. Only fleetctl's own commands mean this launch by them; the HOST of an `nc` is another one.
    A bisect has two profiles, so those stay open there.
    """
    command = str(advice.get("command") or "")
    if not command:
        return ""
    mark = "  # disruptive" if advice.get("disruptive") else ""
    words = command.split()
    if words[0].startswith("--"):
        return f"add to the deploy: {_flags(words)}{mark}"
    if all(_VARIABLE.fullmatch(word) for word in words) and "$" not in command:
        return f"add to the deploy: {' '.join(f'--set env.{word}' for word in words)}{mark}"
    if words[0] == "fleetctl":
        known = {k: v for k, v in names.items() if v}
        if "bisect-flags" in words:
            known.pop("PROFILE", None)
        command = _WORD.sub(lambda word: known.get(word[0]) or word[0], command)
    return f"$ {command}{mark}"


def _flags(words: list[str]) -> str:
    """Return ``--tp-size 4 --x`` as ``--set tp-size=4 --set x``."""
    found: list[str] = []
    for word in words:
        if word.startswith("--"):
            found.append(f"--set {word[2:]}")
        elif found:
            found[-1] += f"={word}"
    return " ".join(found)
