"""What the traceback parser finds: exceptions, their chains, and stacks of a hung process."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.model.triage import Frame

PYTHON, CPP, FAULT, USAGE = "python", "cpp", "fault", "usage"


@dataclass(slots=True)
class Raised:
    """One exception of a log.

    Attributes:
        line, index: its line number, and the position of that record in the evidence.
        type: as printed ("torch.OutOfMemoryError"), "" where only a message is known.
        message: what follows the type, all its lines.
        head: what stood before "Traceback (most recent call last)" on its line or the line above.
        frames: outermost first. sources: the source line of each, or "".
        chain: exceptions of one chain share the number; they are in the order printed, oldest first.
        link: how it follows the one before: cause, context, member (of a group), or "".
        site: the file and line of the logger that printed the exception, where it tells them.
        whole: a header and at least one frame were seen, so nothing was cut off its top.
    """

    line: int
    index: int
    type: str
    message: str
    kind: str = PYTHON
    head: str = ""
    head_line: int = 0
    frames: list[Frame] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    ranks: list[str] = field(default_factory=list)
    chain: int = 0
    link: str = ""
    whole: bool = False
    level: str = ""
    pid: str = ""
    stream: str = ""
    seconds: float | None = None
    last: int = 0
    site: str = ""

    @property
    def text(self) -> str:
        """The exception as printed; where the message is empty, with the source line that raised it."""
        if not self.type or self.kind == FAULT:
            return self.message
        if self.message.strip() or self.kind != PYTHON:
            return f"{self.type}: {self.message}" if self.message else self.type
        source = next((s for s in reversed(self.sources) if s), "")
        return f"{self.type}: {source}" if source else f"{self.type}:{self.message}"

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rsplit(".", 1)[-1].rsplit("::", 1)[-1]


@dataclass(slots=True)
class Stack:
    """The stack of one thread of a live process, innermost frame last."""

    line: int
    pid: str
    thread: str
    frames: list[Frame]
    rank: str = ""
