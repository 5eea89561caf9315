"""What a lint says: findings as data, and which of them stop a launch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding matters: an error stops a launch, a warning does with --strict."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+):(?P<col>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``where`` is ``file:line:col`` or an option of the command line."""

    id: str
    severity: Severity
    message: str
    flag: str = ""  # spelling with dashes, or the variable's name
    where: str = ""
    hint: str = ""
    fault: bool = False  # of the file itself: nothing launches it, so nothing overrides it

    @property
    def file(self) -> str:
        """Return the file of the place, or the whole place when it is none in a file."""
        match = _PLACE.fullmatch(self.where)
        return match["file"] if match else self.where

    @property
    def line(self) -> int:
        """Return the 1-based line, 0 when there is none."""
        match = _PLACE.fullmatch(self.where)
        return int(match["line"]) if match else 0

    @property
    def col(self) -> int:
        """Return the 1-based column, 0 when there is none."""
        match = _PLACE.fullmatch(self.where)
        return int(match["col"]) if match else 0

    @property
    def override(self) -> str:
        """Return how to launch all the same; "" when there is no way."""
        if self.fault:
            return ""
        return f"--no-lint={self.id}, or `# fleetctl: allow {self.id}` on that line"

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{self.severity}[{self.id}]: {place}{self.message}"

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        body = asdict(self)
        del body["where"], body["fault"]
        place = {"file": self.file, "line": self.line, "col": self.col}
        return body | place | {"override": self.override}


def settle(
    findings: Iterable[Finding],
    *,
    no_lint: Collection[str] = (),
    allowed: Mapping[str, Mapping[int, Collection[str]]] | None = None,
    strict: bool = False,
) -> list[Finding]:
    """Return what is left after ``--no-lint``, inline remarks (by file and line) and ``--strict``.

    The order is by file and line, errors first within a line.
    """
    left = []
    for finding in findings:
        remarks = (allowed or {}).get(finding.file, {}).get(finding.line, ())
        if not finding.fault and (finding.id in no_lint or finding.id in remarks):
            continue
        if strict and finding.severity is Severity.WARNING:
            finding = replace(finding, severity=Severity.ERROR)
        left.append(finding)
    rank = list(Severity)
    return sorted(left, key=lambda f: (f.file, f.line, f.col, rank.index(f.severity)))


def blocking(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that stop a launch."""
    return [f for f in findings if f.severity is Severity.ERROR]
