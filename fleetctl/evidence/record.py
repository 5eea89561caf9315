"""One line of evidence after its wrappings were taken off, and what was read of a log as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

APP, KERNEL, SYSTEMD, UNIT = "app", "kernel", "systemd", "unit"


@dataclass(slots=True)
class Record:
    """A line of a log.

    Attributes:
        line: 1-based line of the decompressed text, or the record number in JSON and export forms.
        text: what the program printed, without the prefixes of containers and loggers.
        site: the logger's own prefix without times and ranks ("core.py:708" for vLLM, "" for SGLang);
            None on a line that carries none, as the later lines of a traceback do.
        rank: as written ("DP1 TP3", "rank0", NCCL's "2"), or "".
        level: INFO, WARNING, ERROR … where the logger says so, else "".
        stream: what may not be mixed: one process where its id is known, else one file.
        origin: app, kernel, systemd (its own messages of a unit) or unit (the unit's properties).
        when: the time as written, or "".
        seconds: that time as a number where it could be read; only differences mean something.
        own: the time that the server itself wrote, or "".
    """

    line: int
    text: str
    site: str | None = None
    rank: str = ""
    level: str = ""
    pid: str = ""
    stream: str = ""
    origin: str = APP
    when: str = ""
    seconds: float | None = None
    own: str = ""


@dataclass(slots=True)
class Evidence:
    """The records of one path in the order of time, with what was lost on the way."""

    records: list[Record]
    lines: int | None = None
    suppressed: int = 0
    truncated: int = 0
    sources: list[str] = field(default_factory=list)
    asked_stop: bool | None = None  # what a bundle's manifest says; None where nobody knows
    hung: bool = False  # what the collector saw: the unit ran and did not answer
    host_down: bool = False  # likewise: the service ended because its host did
    versions: dict[str, str] = field(default_factory=dict)
    patches: dict[str, Any] = field(default_factory=dict)  # patches.json of a bundle
    # A bundle's own processes, and when the first of them spoke (seconds); empty where nobody knows.
    pids: frozenset[str] = frozenset()
    began: float | None = None
