"""Find the lines of a huge log that any rule could care for, at the speed of the disk.

Two stages: a fast matcher names candidate lines, then exact ``re`` confirms them; so every backend gives
the same answer. Files are read in slices, so memory does not grow with the file.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleetctl.triage import backends
from fleetctl.triage.patterns import joined

SLICE = 1 << 20  # bytes a worker reads at once; larger ones cost page faults
AHEAD = 16 << 10  # bytes read beyond a slice, in which its last line usually ends
LINE_LIMIT = 1 << 20  # bytes of one line that are looked at
# One slice in so many is counted while it is at hand; the rest while the windows are read, which takes as long.
_COUNTED_AT_ONCE = 3
_SHARES = 32  # of a file, for the processes to take; fewer than 256
HIT_LIMIT = 20_000  # lines kept: the first half and the last half of them


class Newlines:
    """The newlines of each slice of a file up to a place, counted by a process of its own meanwhile."""

    def __init__(self, path: Path, end: int, counted: dict[int, int], *, aside: bool) -> None:
        self._path, self._end, self._counted = path, end, counted
        self._known: array[int] | None = None
        self._child = _aside(self._count) if aside else None

    def counts(self) -> array[int]:
        """Return the number of newlines in each slice that lies wholly before the place."""
        if self._known is None:
            told = _told(self._child) if self._child is not None else b""
            self._known = array("I", told) if told else self._count()
        return self._known

    def _count(self) -> array[int]:
        with self._path.open("rb", buffering=0) as file:
            return array("I", (self._of(file, k) for k in range(self._end // SLICE)))

    def _of(self, file: IO[bytes], number: int) -> int:
        known = self._counted.get(number)
        if known is not None:
            return known
        return os.pread(file.fileno(), SLICE, number * SLICE).count(b"\n")


def _aside(work: Callable[[], array[int] | bytes]) -> tuple[int, int]:
    """Run something in a forked process; return its pid and where its answer can be read."""
    answer, told = os.pipe()
    process = os.fork()
    if process:
        os.close(told)
        return process, answer
    status = 1
    try:
        os.close(answer)
        with os.fdopen(told, "wb") as file:
            file.write(work())
        status = 0
    finally:
        os._exit(status)


def _told(child: tuple[int, int]) -> bytes:
    """Return the answer of a forked process, or nothing when it ended early."""
    process, answer = child
    with os.fdopen(answer, "rb") as file:
        data = file.read()
    _, status = os.waitpid(process, 0)
    return b"" if status else data


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a pattern was found in: where it starts and ends in the file, in bytes."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The hits of one file, in order."""

    path: Path
    hits: tuple[Hit, ...]
    dropped: int  # hits in the middle that were counted but not kept
    cut_lines: int  # lines longer than LINE_LIMIT
    backend: str
    newlines: Newlines | None  # where they were asked for

    def line_number(self, offset: int) -> int:
        """Return the 1-based number of the line that starts at a byte offset."""
        counts = self.newlines.counts() if self.newlines is not None else ()
        index = min(offset // SLICE, len(counts))
        before = sum(counts[:index])
        with self.path.open("rb", buffering=0) as file:
            file.seek(index * SLICE)
            for at in range(index * SLICE, offset, SLICE):
                before += file.read(min(SLICE, offset - at)).count(b"\n")
        return before + 1


@dataclass(slots=True)
class _Part:
    """What a run of slices gave."""

    hits: list[Hit] = field(default_factory=list)
    tail: list[Hit] = field(default_factory=list)
    dropped: int = 0
    cut: int = 0
    newlines: dict[int, int] = field(default_factory=dict)  # of some slices, by their number

    def add(self, hits: list[Hit]) -> None:
        """Keep the first and the last hits, and count what lies between."""
        room = HIT_LIMIT // 2 - len(self.hits)
        self.hits += hits[:room]
        self.tail += hits[room:]
        if len(self.tail) > HIT_LIMIT // 2:
            self.dropped += len(self.tail) - HIT_LIMIT // 2
            del self.tail[: -HIT_LIMIT // 2]


def scan(
    path: Path,
    patterns: Sequence[str],
    *,
    backend: str = "auto",
    processes: int = 1,
    count_lines: bool = False,
    cache: Path | None = None,
) -> Scan:
    """Return the lines of a file in which any pattern is found.

    ``backend`` is auto, hyperscan, re2 or stdlib; ``cache`` is a folder for compiled databases.
    More than one process is used on Linux only. ``count_lines`` makes ``line_number`` cheap.
    Raises OSError for a file that cannot be read, ValueError for an unknown backend.
    """
    name, make = backends.choose(backend, tuple(patterns), cache)
    size = path.stat().st_size
    slices = range(0, size, SLICE)
    job = _Job(path, size, make, joined(patterns), count_lines)
    workers = min(processes, len(slices)) if sys.platform == "linux" else 1
    parts = _in_processes(job, slices, workers) if workers > 1 else [_run(job, make(), slices)]
    whole = parts[0]
    for part in parts[1:]:
        whole.add(part.hits + part.tail)
        whole.dropped += part.dropped
        whole.cut += part.cut
        whole.newlines |= part.newlines
    hits = tuple(whole.hits + whole.tail)
    end = hits[-1].end if hits else 0
    newlines = Newlines(path, end, whole.newlines, aside=workers > 1) if count_lines else None
    return Scan(path, hits, whole.dropped, whole.cut, name, newlines)


@dataclass(frozen=True, slots=True)
class _Job:
    path: Path
    size: int
    make: backends.Maker
    exact: re.Pattern[bytes]
    count_lines: bool


def _in_processes(job: _Job, slices: range, workers: int) -> list[_Part]:
    """Run shares side by side, the next to whoever is free: a busy core must not hold up the others.

    Forked, so that compiled patterns need not be built again. The shares wait as bytes in a pipe.
    """
    size = max(1, -(-len(slices) // min(_SHARES, len(slices))))
    shares = [slices[k : k + size] for k in range(0, len(slices), size)]
    queue, feed = os.pipe()
    os.write(feed, bytes(range(len(shares))))
    os.close(feed)
    children = [_aside(lambda: pickle.dumps(_work(job, shares, queue))) for _ in range(workers - 1)]
    done = _work(job, shares, queue)
    os.close(queue)
    for child in children:
        data = _told(child)
        if not data:
            raise OSError(f"a process that read {job.path} ended early")
        done |= pickle.loads(data)  # noqa: S301  # our own child wrote it
    return [done[number] for number in sorted(done)]


def _work(job: _Job, shares: list[range], queue: int) -> dict[int, _Part]:
    """Take shares from the queue until it is empty; return what each gave, by its number."""
    done: dict[int, _Part] = {}
    matcher = (
        job.make()
    )  # one for all shares: what it has learned of lines holds for the whole file
    while token := os.read(queue, 1):
        done[token[0]] = _run(job, matcher, shares[token[0]])
    return done


def _run(job: _Job, matcher: backends.Matcher, slices: range) -> _Part:
    part = _Part()
    descriptor = os.open(job.path, os.O_RDONLY)
    try:
        for at in slices:
            _slice(job, matcher, part, descriptor, at)
    finally:
        os.close(descriptor)
    return part


def _slice(job: _Job, matcher: backends.Matcher, part: _Part, descriptor: int, at: int) -> None:
    """Look at the lines that start within one slice."""
    begin = max(at - 1, 0)  # the byte before tells whether a line starts right here
    end = min(at + SLICE, job.size)
    block = os.pread(descriptor, end - begin + AHEAD, begin)
    if job.count_lines and (at // SLICE) % _COUNTED_AT_ONCE == 0:
        part.newlines[at // SLICE] = block.count(b"\n", at - begin, end - begin)
    first = block.find(b"\n", 0, end - begin) + 1 if begin < at else 0
    if first == 0 and begin < at:
        return  # no line starts here
    block, stop, cut = _whole_lines(descriptor, block, begin, end, job.size)
    part.cut += cut
    spans = matcher(block, first, stop)
    part.add([Hit(begin + s, begin + e) for s, e in spans if job.exact.search(block[s:e])])


def _whole_lines(
    descriptor: int, block: bytes, begin: int, end: int, size: int
) -> tuple[bytes, int, int]:
    """Return the bytes up to the end of the slice's last line, where that is, and 1 if it was cut."""
    stop = block.find(b"\n", end - begin - 1)
    if stop >= 0:
        return block, stop, 0
    if begin + len(block) < size:
        block += os.pread(descriptor, LINE_LIMIT, begin + len(block))
        stop = block.find(b"\n", end - begin - 1)
    if stop >= 0:
        return block, stop, 0
    return block, len(block), int(begin + len(block) < size)
