"""Triage of logs that are too long to hold: windows around the lines that the scanner names.

Memory does not grow with the log. The head, the tail, and what lies around the first and the last hits
are kept; rules see them as they would see the whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleetctl.evidence import journal, reader, source
from fleetctl.evidence.record import Evidence, Record
from fleetctl.triage import backends
from fleetctl.triage.scan import Scan, scan
from fleetctl.triage.triggers import TRIGGERS

_HEAD, _TAIL = 64 << 10, 160 << 10
_BEFORE, _AFTER = 4 << 10, 16 << 10
_FIRST, _LAST = 3 << 20, 5 << 20  # bytes of windows kept from the start and from the end
_BASE = 1 << 40  # a record's line is window × _BASE + line in the window until it is shown
_CHUNK = 1 << 20

Span = tuple[int, int]


@dataclass(slots=True)
class Windows:
    """Pieces of a long log in order: where each starts (bytes), its first line if known, and its bytes."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    first_lines: list[int] | None = None
    scan: Scan | None = None
    export: bool = False
    cut: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)

    def number(self, line: int) -> int:
        """Return the 1-based line of the whole text (or its record) for a record's line."""
        window, within = divmod(line, _BASE)
        if self.first_lines is not None:
            return self.first_lines[window] + within - 1
        if self.scan is None:
            return within
        if window not in self._numbers:
            self._numbers[window] = self.scan.line_number(self.pieces[window][0])
        return self._numbers[window] + within - 1

    def evidence(self) -> Evidence:
        """Return the records of all windows as one body of evidence; ``lines`` is not known."""
        whole = Evidence([])
        whole.truncated = self.cut
        for index, (_, data) in enumerate(self.pieces):
            part = reader.from_bytes(data)
            for record in part.records:
                record.line += index * _BASE
            if index:
                whole.records.append(
                    Record(index * _BASE, "", site="")
                )  # ends what the gap cut off
            whole.records += part.records
            whole.suppressed += part.suppressed
            whole.truncated += part.truncated
            whole.sources = list(dict.fromkeys([*whole.sources, *part.sources]))
        whole.sources.append("windows")
        return whole


def of_file(path: Path, cache: Path | None = None) -> Windows:
    """Return the windows of a plain file. Raises OSError."""
    size = path.stat().st_size
    workers = min(4, os.cpu_count() or 1)
    found = scan(path, TRIGGERS, processes=workers, count_lines=True, cache=cache)
    with path.open("rb") as file:
        head = file.read(65536)
        export = journal.is_export(head)
        spans = _spans([(h.start, h.end) for h in found.hits], size)
        windows = Windows(scan=found, export=export, cut=found.cut_lines + (found.dropped > 0))
        windows.pieces = [
            (at, _read(file, at, end))
            for at, end in (_aligned(file, s, size, export) for s in spans)
        ]
    return windows


def of_stream(stream: IO[bytes], limit: int) -> Windows:
    """Return the windows of a decompressed stream, of which at most ``limit`` bytes are read."""
    _, make = backends.choose("auto", TRIGGERS, None)
    keeper = _Keeper(make())
    for block in _blocks(stream, limit):
        keeper.take(block)
    return keeper.windows()


def _spans(hits: list[Span], size: int) -> list[Span]:
    """Return the parts to keep: head, tail, and around hits; few bytes at both ends of many hits."""
    wanted = [(0, min(_HEAD, size)), (max(0, size - _TAIL), size)]
    wanted += _bounded([(max(0, a - _BEFORE), min(size, b + _AFTER)) for a, b in hits])
    merged: list[Span] = []
    for start, end in sorted(wanted):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def _bounded(spans: list[Span]) -> list[Span]:
    first = _until(spans, _FIRST)
    last = _until(spans[len(first) :][::-1], _LAST)
    return first + last


def _until(spans: list[Span], budget: int) -> list[Span]:
    """Return the leading spans whose union stays within a number of bytes."""
    kept: list[Span] = []
    for span in spans:
        overlap = 0
        if kept:
            overlap = max(0, min(kept[-1][1], span[1]) - max(kept[-1][0], span[0]))
        budget -= span[1] - span[0] - overlap
        if budget < 0:
            break
        kept.append(span)
    return kept


def _aligned(file: IO[bytes], span: Span, size: int, export: bool) -> Span:
    """Move both ends to the starts of lines, or of entries in the export format."""
    mark = b"\n\n" if export else b"\n"
    start, end = span
    if start > 0:
        piece = _read(file, start, min(start + _CHUNK, size))
        at = piece.find(mark)
        start = start + at + len(mark) if at >= 0 else start
    if end < size:
        piece = _read(file, end, min(end + _CHUNK, size))
        at = piece.find(mark)
        end = end + at + len(mark) if at >= 0 else end
    return min(start, end), end


def _read(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _blocks(stream: IO[bytes], limit: int) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line longer than a chunk is a block of its own kind."""
    rest = b""
    have = 0
    while have < limit:
        try:
            piece, broken = source.take(stream, _CHUNK)
        except source.UnreadableError:
            break  # what came before the archive broke was kept
        have += len(piece)
        rest += piece
        cut = rest.rfind(b"\n") + 1
        if cut or len(rest) > 8 * _CHUNK:
            cut = cut or len(rest)
            yield rest[:cut]
            rest = rest[cut:]
        if len(piece) < _CHUNK or (broken and not piece):
            break
    if rest:
        yield rest


class _Keeper:
    """Keeps what is worth keeping of a stream that passes by once."""

    def __init__(self, matcher: backends.Matcher) -> None:
        self._matcher = matcher
        self._first: list[tuple[int, bytes]] = []
        self._last: list[tuple[int, bytes]] = []
        self._have = [0, 0]
        self._line = 1
        self._before: tuple[int, bytes] = (1, b"")
        self._open = 0
        self._cut = 0

    def take(self, block: bytes) -> None:
        """Look at one block of whole lines and keep it when a trigger stands in it or just before."""
        hit = bool(self._matcher(block, 0, len(block)))
        if self._line == 1 or hit or self._open:
            if hit and not self._open and self._before[1]:
                self._keep(self._before[0], self._before[1][-_BEFORE:], self._before[1])
            self._keep(self._line, block, block)
        self._open = 1 if hit else 0
        self._before = (self._line, b"" if hit else block)
        self._line += block.count(b"\n")

    def _keep(self, line: int, data: bytes, block: bytes) -> None:
        if len(data) < len(block):
            cut = data.find(b"\n") + 1
            data = data[cut:]
            line += block[: len(block) - len(data)].count(b"\n")
        if self._have[0] + len(data) <= _FIRST or not self._first:
            self._first.append((line, data))
            self._have[0] += len(data)
            return
        self._last.append((line, data))
        self._have[1] += len(data)
        while self._have[1] > _LAST and len(self._last) > 1:
            self._have[1] -= len(self._last.pop(0)[1])
            self._cut += 1

    def windows(self) -> Windows:
        """Return what was kept, the end of the stream included."""
        if self._before[1] and not self._open:
            self._keep(self._before[0], self._before[1], self._before[1])
        pieces = sorted(dict((*self._first, *self._last)).items())
        found = Windows(first_lines=[], cut=self._cut)
        for line, data in pieces:
            known = found.first_lines or []
            if known and known[-1] + found.pieces[-1][1].count(b"\n") == line:
                found.pieces[-1] = (0, found.pieces[-1][1] + data)
            else:
                found.pieces.append((0, data))
                known.append(line)
            found.first_lines = known
        return found
