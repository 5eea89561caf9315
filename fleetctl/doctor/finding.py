"""What a doctor finds, as data: severity, evidence, and the command that mends it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """``error``: a launch fails or misbehaves; ``warning``: it may; ``info``: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``evidence`` is what the host said, ``fix`` a command to be run there."""

    id: str
    severity: Severity
    message: str
    evidence: str = ""
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        return asdict(self)
