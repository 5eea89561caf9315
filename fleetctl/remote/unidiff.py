"""Unified diffs applied without guessing: every hunk's old text must occur in the file exactly once.

Line numbers of the diff are not trusted, fuzz does not exist, and the file's own line ends are kept.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence

from fleetctl.remote.instrument import InstrumentError

HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")


class Hunk(NamedTuple):
    """One change: the lines that must be there, and what stands there afterwards."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    ops: str  # one character a line of the hunk: " ", "-", "+"
    open_end: bool  # the new text ends without a line end


class FileDiff(NamedTuple):
    """The hunks of one file, by its path inside the package folder."""

    path: str
    hunks: tuple[Hunk, ...]


def parse(text: str) -> list[FileDiff]:
    """Return the files of a unified diff. Raises InstrumentError (bad-diff) with the line."""
    files: list[FileDiff] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            files.append(FileDiff(_path(lines[at + 1][4:], at + 2), ()))
            at += 2
        elif line.startswith("@@"):
            if not files:
                raise InstrumentError("bad-diff", "line %d: a hunk before any file" % (at + 1))
            hunk, at = _hunk(lines, at)
            files[-1] = files[-1]._replace(hunks=(*files[-1].hunks, hunk))
        elif line.startswith(("rename ", "deleted file", "new file", "Binary ", "GIT binary")):
            raise InstrumentError("bad-diff", "line %d: only changed text is allowed" % (at + 1))
        else:
            at += 1
    if not files or any(not f.hunks for f in files):
        raise InstrumentError("bad-diff", "no hunks")
    return files


def _path(text: str, line: int) -> str:
    path = text.split("\t")[0].strip()
    path = re.sub(r"^(?:[ab]/)?(?:python/)?", "", path)
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or not path.endswith(".py"):
        raise InstrumentError("bad-diff", "line %d: %r is no module of a package" % (line, path))
    return path


def _hunk(lines: Sequence[str], at: int) -> tuple[Hunk, int]:
    head = HEADER.match(lines[at])
    if head is None:
        raise InstrumentError("bad-diff", "line %d: not a hunk header" % (at + 1))
    start, left, right = int(head[1]), int(head[2] or 1), int(head[4] or 1)
    old: list[str] = []
    new: list[str] = []
    ops = ""
    open_end = False
    at += 1
    while (
        len(old) < left
        or len(new) < right
        or lines[at : at + 1] == ["\\ No newline at end of file"]
    ):
        if at >= len(lines):
            raise InstrumentError("bad-diff", "line %d: the hunk ends too early" % at)
        sign, body = (lines[at][:1] or " "), lines[at][1:].rstrip("\r")
        if sign == "\\":
            open_end = open_end or ops[-1:] in "+ "
        elif sign in " -+":
            old += [body] if sign in " -" else []
            new += [body] if sign in " +" else []
            ops += sign
        else:
            raise InstrumentError("bad-diff", "line %d: starts with %r" % (at + 1, sign))
        at += 1
    if len(old) != left or len(new) != right:
        raise InstrumentError("bad-diff", "line %d: more lines than the header says" % at)
    if not old:
        raise InstrumentError("bad-diff", "line %d: a hunk without context has no place" % at)
    return Hunk(start, tuple(old), tuple(new), ops, open_end), at


def apply(data: bytes, hunks: Sequence[Hunk]) -> tuple[bytes, list[list[int]], list[int]]:
    """Return the changed bytes, their line map, and the line where each hunk was found.

    Raises InstrumentError: context-not-found, context-not-unique, already-applied.
    """
    lines = LINE.findall(data)
    bodies = [line.rstrip(b"\r\n") for line in lines]
    newline = lines[0][len(bodies[0]) :] if lines and lines[0] != bodies[0] else b"\n"
    placed: list[tuple[int, Hunk]] = []
    after = 0
    for hunk in hunks:
        at = _place(bodies, hunk)
        if at < after:
            raise InstrumentError("context-not-found", "hunks overlap at line %d" % (at + 1))
        after = at + len(hunk.old)
        placed.append((at, hunk))
    out: list[bytes] = []
    breaks = [[1, 1]]
    source = 0
    for at, hunk in placed:
        out += lines[source:at]
        source = at
        written = iter(hunk.new)
        for sign in hunk.ops:
            if sign == "+":
                breaks.append([len(out) + 1, 0])
                out.append(next(written).encode("utf-8") + newline)
                continue
            if sign == " ":
                next(written)
                breaks.append([len(out) + 1, source + 1])
                out.append(lines[source])
            source += 1
        breaks.append([len(out) + 1, source + 1])
        if hunk.open_end and source == len(lines):
            out[-1] = out[-1].rstrip(b"\r\n")
        elif source == len(lines) and out and out[-1] == out[-1].rstrip(b"\r\n"):
            out[-1] += newline
    out += lines[source:]
    return b"".join(out), _tidy(breaks), [at + 1 for at, _ in placed]


def _place(bodies: Sequence[bytes], hunk: Hunk) -> int:
    old = [line.encode("utf-8") for line in hunk.old]
    found = _occurrences(bodies, old)
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise InstrumentError(
            "context-not-unique",
            "the text of the hunk at line %d is there at lines %s"
            % (hunk.start, ", ".join(str(f + 1) for f in found)),
        )
    if _occurrences(bodies, [line.encode("utf-8") for line in hunk.new]):
        raise InstrumentError(
            "already-applied", "the hunk at line %d is already there" % hunk.start
        )
    near = [i + 1 for i, b in enumerate(bodies) if b == old[0] and b.strip()]
    where = "; its first line is at %s" % ", ".join(map(str, near[:5])) if near else ""
    raise InstrumentError(
        "context-not-found", "the text of the hunk at line %d is not there%s" % (hunk.start, where)
    )


def _occurrences(bodies: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    if not wanted:
        return []
    size = len(wanted)
    return [
        i
        for i in range(len(bodies) - size + 1)
        if bodies[i] == wanted[0] and list(bodies[i : i + size]) == list(wanted)
    ]


def _tidy(breaks: list[list[int]]) -> list[list[int]]:
    """Drop breaks that say nothing new."""
    out: list[list[int]] = []
    for patched, original in breaks:
        while out and out[-1][0] == patched:
            out.pop()
        if out and out[-1][1] and original and original - out[-1][1] == patched - out[-1][0]:
            continue
        if out and not out[-1][1] and not original:
            continue
        out.append([patched, original])
    return out
