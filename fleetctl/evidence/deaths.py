"""Deaths that are no Python traceback: usage errors, faulthandler, C++ ``terminate``; and py-spy's stacks."""

from __future__ import annotations

import re

from fleetctl.evidence import frames as spell
from fleetctl.evidence.exceptions import CPP, FAULT, USAGE, Raised, Stack
from fleetctl.evidence.record import APP, Record

HEADER = "Traceback (most recent call last)"
_USAGE_END = re.compile(r"(?P<prog>[\w./ -]{1,120}): error: (?P<message>.+)\Z", re.DOTALL)
_FATAL = re.compile(r"Fatal Python error: (?P<what>.{1,400})\Z", re.DOTALL)
_TERMINATE = re.compile(
    r"terminate called (?:after throwing an instance of '(?P<type>[^']{1,120})'"
    r"|without an active exception|recursively)"
)
_WHAT = re.compile(r"\s*what\(\):\s{1,4}(?P<message>.*)\Z", re.DOTALL)
_RANK = re.compile(r"\b(Rank \d{1,6})\]")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]{1,16}.{0,80}\(most recent call first\)")
_PYSPY_THREAD = re.compile(
    r"Thread (?:0x)?[0-9A-Fa-f]{1,16} \([\w+]{1,24}\)(?:: \"(?P<name>[^\"]{1,80})\")?\s*\Z"
)
NEW_MATTER = re.compile(
    r"Process \S{1,80}:\s*\Z|frame #\d|#\d{1,3} 0x|Exception raised from|terminate called"
    r"|Fatal Python error|Exception ignored in|usage: |\[rank\d|NVRM: |Killed\s*\Z|Aborted"
    r"|Segmentation fault|\[end of output\]|slurmstepd|srun: error|={5,} Remote Traceback"
    r"|/\S{1,300}\.py:\d{1,6}: \w{0,40}Warning: |\[Gloo\] Rank \d"
    r"|\S{1,80}: line \d{1,6}: {1,4}\d{1,9} (?:Killed|Aborted|Segmentation|Terminated)"
)
_SIGNALS = (
    ("egmentation", "SIGSEGV"),
    ("us error", "SIGBUS"),
    ("bort", "SIGABRT"),
    ("loating", "SIGFPE"),
    ("llegal instruction", "SIGILL"),
)
MOST = 3000  # records that a usage text may take
STACK = 300  # records that a report of one process may take
Rows = list[tuple[int, Record]]


def usage(rows: Rows) -> tuple[Raised, int] | None:
    """Return the error that ends an argparse usage text at the start of rows, and the rows it took."""
    for offset, (last, later) in enumerate(rows):
        match = _USAGE_END.match(later.text)
        if match is not None and offset:
            raised = _raised(later, last, "", later.text.strip(), USAGE)
            raised.whole = True
            return raised, offset + 1
        stamped = later.site == "" and bool(later.text)
        if offset and (HEADER in later.text or later.origin != APP or stamped):
            return None
    return None


def fault(rows: Rows) -> tuple[Raised, int] | None:
    """Return faulthandler's report at the start of rows; its current thread's frames, innermost last."""
    index, record = rows[0]
    match = _FATAL.search(record.text)
    if match is None:
        return None
    signal = next((name for word, name in _SIGNALS if word in match["what"]), "")
    raised = _raised(record, index, signal, record.text.strip(), FAULT)
    doubled = "Fatal Python error" in match["what"]
    used, current = 1, False
    for offset, (_, later) in enumerate(rows[1:], 1):
        text = _undouble(later.text) if doubled else later.text
        frame = spell.python(text)
        if later.site is not None or HEADER in text or later.origin != APP:
            break
        if frame is not None and current:
            raised.frames.insert(0, frame)
            raised.sources.insert(0, "")
        elif frame is None and (_THREAD.search(later.text) or "urrent thread" in later.text):
            current = "urrent thread" in later.text
        elif frame is None and not _of_fault(later.text):
            break
        used = offset + 1
    raised.whole = bool(raised.frames)
    return raised, used


def _of_fault(text: str) -> bool:
    known = ("most recent call first" in text) or text.startswith(
        ("Extension modules", "Python runtime")
    )
    return known or not text.strip()


def terminate(rows: Rows) -> tuple[Raised, int] | None:
    """Return ``terminate called …`` at the start of rows with its ``what()`` and C++ frames."""
    index, record = rows[0]
    match = _TERMINATE.search(record.text)
    if match is None:
        return None
    raised = _raised(
        record, index, match["type"] or "", "" if match["type"] else record.text.strip(), CPP
    )
    used = 1
    for offset, (at, later) in enumerate(rows[1:], 1):
        what = _WHAT.match(later.text)
        frame = spell.cpp(later.text) if "frame #" in later.text else None
        if what is not None and not raised.message:
            raised.message, raised.line, raised.index = what["message"], later.line, at
            named = _RANK.search(what["message"])
            raised.ranks = raised.ranks or ([named[1]] if named is not None else [])
        elif frame is not None:
            raised.frames.insert(0, frame)
            raised.sources.insert(0, "")
        elif _ends_terminate(raised, later, offset):
            break
        used = offset + 1
    return raised, used


def _ends_terminate(raised: Raised, later: Record, offset: int) -> bool:
    if later.site is not None or later.origin != APP or HEADER in later.text:
        return True
    text = later.text.strip()
    if not text:
        return bool(raised.frames)
    new = NEW_MATTER.match(text) is not None and "raised from" not in text
    return new or (offset > 6 and not raised.frames)


def pyspy(rows: Rows) -> tuple[Stack, int] | None:
    """Return the stack of one thread of a py-spy dump at the start of rows."""
    _, record = rows[0]
    match = _PYSPY_THREAD.match(record.text.strip())
    if match is None:
        return None
    stack = Stack(record.line, record.pid, match["name"] or "", [], record.rank)
    used = 1
    for _, later in rows[1:]:
        frame = spell.pyspy(later.text) if later.text.startswith((" ", "\t")) else None
        if frame is None:
            break
        stack.frames.insert(0, frame)
        used += 1
    return (stack, used) if stack.frames else None


def _raised(record: Record, index: int, kind: str, message: str, sort: str) -> Raised:
    raised = Raised(record.line, index, kind, message, kind=sort, last=index)
    raised.stream, raised.pid, raised.seconds = record.stream, record.pid, record.seconds
    raised.ranks = [record.rank] if record.rank else []
    return raised


def _undouble(text: str) -> str:
    """Undo the repetition of text that several processes wrote at once, piece by piece."""
    found: list[str] = []
    at, size = 0, len(text)
    while at < size and size <= 4000:
        for length in range(min((size - at) // 2, 400), 0, -1):
            piece = text[at : at + length]
            if text.startswith(piece, at + length):
                break
        else:
            found.append(text[at])
            at += 1
            continue
        found.append(piece)
        while text.startswith(piece, at):
            at += length
    return "".join(found) if size <= 4000 else text
