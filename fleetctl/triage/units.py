"""What rules look at: exceptions, the lines that announce them, and all other lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fleetctl.evidence.clocktext import seconds
from fleetctl.evidence.exceptions import Raised
from fleetctl.evidence.record import Record
from fleetctl.evidence.traceback import Parsed

EXCEPTION, LINE, HEAD = "exception", "line", "head"
# SGLang closes its capture wrapper with a list of guesses; they are advice, never evidence.
_ADVICE_AT = (
    "\nPossible solutions:",
    "\nCUDA kernel errors might be asynchronously reported",
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING",
)
_SHOWN_LIMIT = 4000
_PANIC = re.compile(r"panicked at [^\n]{1,300}:\Z")
_TREE = 12  # lines of uv's reasons
# A native library names its place in the prefix of its logger; often only that tells whose line it is.
_NATIVE_SITE = re.compile(r"[\w./-]{1,120}\.(?:cpp|cc|cu|cuh|c|h|hpp):\d{1,6}\Z")


@dataclass(slots=True)
class Unit:
    """One thing that can match a rule."""

    kind: str
    index: int  # position among the records
    line: int
    text: str
    origin: str = "app"
    level: str = ""
    ranks: list[str] = field(default_factory=list)
    raised: Raised | None = None
    seconds: float | None = None
    pid: str = ""
    stream: str = ""

    @property
    def shown(self) -> str:
        """The text for people: of a sane length."""
        return self.text if len(self.text) <= _SHOWN_LIMIT else self.text[:_SHOWN_LIMIT] + " …"

    @property
    def where(self) -> str:
        """The frames as ``module:function | source`` lines, innermost last; else who printed it."""
        if self.raised is None:
            return ""
        if not self.raised.frames:
            file = self.raised.site.rpartition(":")[0]
            return f"{file.removesuffix('.py')}: | " if file.endswith(".py") else ""
        pairs = zip(self.raised.frames, self.raised.sources, strict=False)
        return "\n".join(f"{f.module}:{f.function} | {source}" for f, source in pairs)


def build(records: list[Record], parsed: Parsed) -> list[Unit]:
    """Return the units in the order of the log."""
    units: list[Unit] = []
    for index, record in enumerate(records):
        if index in parsed.consumed or not record.text.strip():
            continue
        ranks = [record.rank] if record.rank else []
        units.append(
            Unit(
                LINE,
                index,
                record.line,
                _with_site(record),
                record.origin,
                record.level,
                ranks,
                None,
                seconds(record.own) if record.own else record.seconds,
                record.pid,
                record.stream,
            )
        )
    heads: set[int] = set()
    for raised in parsed.raised:
        if raised.head and raised.head_line and raised.head_line not in heads:
            heads.add(raised.head_line)
            units.append(_unit(HEAD, raised, raised.head_line, raised.head))
        units.append(_unit(EXCEPTION, raised, raised.line, _without_advice(raised.text)))
    units.sort(key=lambda u: (u.index, u.kind == EXCEPTION))
    return _with_reason(units)


def _with_reason(units: list[Unit]) -> list[Unit]:
    """Give a report of a Rust program the line below it: the two are one sentence.

    Of a panic the first line says where, only the second says what; py-spy prints the reason below,
    uv draws it as a tree, CMake puts it below the place.
    """
    found: list[Unit] = []
    end = -1  # where the text of the last one ends
    for unit in units:
        above = found[-1] if found else None
        if (
            above is not None
            and above.kind == unit.kind == LINE
            and above.stream == unit.stream
            and unit.index == end + 1
            and _goes_on(above.text, unit.text)
        ):
            above.text = f"{above.text}\n{unit.text}"
        else:
            found.append(unit)
        end = unit.index
    return found


def _goes_on(above: str, below: str) -> bool:
    if below.startswith("Reason: "):
        return "rror: " in above
    if above.lstrip().startswith("× ") and above.count("\n") < _TREE:
        drawn = below.lstrip().startswith(("├─▶", "╰─▶"))
        return drawn or ("\n" in above and below.startswith("      ") and "[" not in below[:8])
    if above.endswith("):") and "CMake Error at" in above:
        return True
    return _PANIC.search(above) is not None and not below.startswith("note: ")


def _with_site(record: Record) -> str:
    text = record.text.rstrip()
    if record.site and _NATIVE_SITE.match(record.site):
        return f"{record.site}] {text}"
    return text


def _unit(kind: str, raised: Raised, line: int, text: str) -> Unit:
    return Unit(
        kind,
        raised.index,
        line,
        text,
        "app",
        raised.level,
        list(raised.ranks),
        raised,
        raised.seconds,
        raised.pid,
        raised.stream,
    )


def _without_advice(text: str) -> str:
    for mark in _ADVICE_AT:
        at = text.find(mark)
        if at >= 0:
            text = text[:at]
    return text
