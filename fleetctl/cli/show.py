"""How results and faults reach the terminal: results on stdout, progress on stderr, no escapes from hosts."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from fleetctl.errors import FleetError

_CONTROL = {
    c: f"\\x{c:02x}" for c in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if c not in (0x09, 0x0A)
}
# Bidirectional overrides can make a line read as another one (Unicode TR 36).
_BIDI = {c: f"\\u{c:04x}" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
_NEUTRAL = _CONTROL | _BIDI


def safe(text: str) -> str:
    """Return host text with terminal control characters made visible; tab and newline stay."""
    return text.translate(_NEUTRAL)


def safe_line(text: str) -> str:
    """Return host text on one line."""
    return safe(text).replace("\n", "\\n").replace("\t", " ")


def json_line(value: dict[str, Any]) -> None:
    """Print one JSON object on a line of standard output, at once."""
    print(json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str), flush=True)


def out(text: str = "") -> None:
    """Print a result for a person."""
    print(safe(text), flush=True)


def note(text: str) -> None:
    """Print progress or a remark on standard error."""
    print(safe(text), file=sys.stderr, flush=True)


def colour(stream: Any = None) -> bool:
    """Return whether to colour: a terminal, and NO_COLOR not set."""
    stream = stream or sys.stderr
    return (
        bool(stream.isatty())
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def fault(error: FleetError) -> None:
    """Print ``error[reference]: where: message``, its context and what to do next."""
    mark = "\x1b[31merror\x1b[0m" if colour() else "error"
    place = f"{safe_line(error.where)}: " if error.where else ""
    print(f"{mark}[{error.reference}]: {place}{safe(error.message)}", file=sys.stderr)
    for line in error.context:
        print(f"  {safe_line(line)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {safe(error.hint)}", file=sys.stderr)
    sys.stderr.flush()


def confirm(question: str, *, yes: bool, as_json: bool = False) -> bool:
    """Ask on the terminal; ``--yes`` answers. Without a terminal the answer is no."""
    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        return False
    print(f"{safe(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def type_name(name: str) -> bool:
    """Ask on the terminal for the name of a protected host; without a terminal the answer is no."""
    if not sys.stdin.isatty():
        return False
    print(
        f"{safe(name)} is protected. Type its name to go on: ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip() == name
