"""``# fleetctl: allow ID`` remarks in the files of a profile, and those that allow nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetctl.config.nearest import did_you_mean
from fleetctl.lint.finding import Finding, Severity
from fleetctl.lint.ids import IDS

_ALLOW = re.compile(r"#\s*fleetctl:\s*allow\s+([a-z0-9, -]+)")
_LIST = re.compile(r"[^\s,]+(?:\s*,\s*[^\s,]*-[^\s,]*)*")  # the ids; a reason may follow


def allowances(text: str) -> dict[int, frozenset[str]]:
    """Return line → ids of the ``# fleetctl: allow ID, ID`` remarks in a file's text.

    A remark on a line of its own speaks of the next line.
    """
    found: dict[int, frozenset[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _ALLOW.search(line)
        if match:
            ids = frozenset(i for i in re.split(r"[,\s]+", match.group(1)) if i)
            at = number + 1 if line.lstrip().startswith("#") else number
            found[at] = found.get(at, frozenset()) | ids
    return found


def void(texts: Mapping[str, str]) -> list[Finding]:
    """Return a warning for each id in a remark that no finding has. ``texts``: path → text of a file."""
    return [
        _finding(f"{path}:{number}:{column}", word)
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        for word, column in _written(line)
        if word not in IDS
    ]


def _written(line: str) -> list[tuple[str, int]]:
    """Return the ids of a line's remark, each with its 1-based column."""
    remark = re.search(r"#\s*fleetctl:\s*allow\b\s*", line)
    ids = _LIST.match(line, remark.end()) if remark else None
    if ids is None:
        return []
    words = re.finditer(r"[^\s,]+", ids.group())
    return [(w.group(), ids.start() + w.start() + 1) for w in words]


def _finding(where: str, word: str) -> Finding:
    return Finding(
        "unknown-allow",
        Severity.WARNING,
        f"no finding of a lint is called {word!r}: this remark allows nothing",
        where=where,
        hint=did_you_mean(word, IDS, "docs/howto/lint.md lists them"),
    )
