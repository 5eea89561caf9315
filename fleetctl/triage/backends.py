"""Three ways to name candidate lines in a block of text; the best one installed is taken.

A matcher gets a block and the span of its whole lines, and returns the spans of the lines that may
hold a match. It may name too many, never too few.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetctl.triage.patterns import any_digit, joined, without_captures

Span = tuple[int, int]
Matcher = Callable[[bytes, int, int], list[Span]]
Maker = Callable[[], Matcher]

PIECE = 64 << 10  # bytes asked about at once before single lines are looked at
SHAPES_LIMIT = 200_000


def choose(name: str, patterns: tuple[str, ...], cache: Path | None) -> tuple[str, Maker]:
    """Return the backend's name and what makes its matcher. Raise ValueError for an unknown one."""
    if name not in ("auto", "hyperscan", "re2", "stdlib"):
        raise ValueError(f"no scanner {name!r}: auto, hyperscan, re2 or stdlib")
    for wanted, build in (("hyperscan", _hyperscan), ("re2", _re2)):
        if name in ("auto", wanted):
            try:
                return wanted, build(patterns, cache)
            except ImportError:
                if name == wanted:
                    raise
    return "stdlib", _stdlib(patterns)


def pieces(block: bytes, at: int, size: int) -> Iterator[Span]:
    """Yield spans of about PIECE bytes that end with a line."""
    while at < size:
        end = min(at + PIECE, size)
        if end < size:
            end = block.rfind(b"\n", at, end) + 1 or (block.find(b"\n", end, size) + 1 or size)
        yield at, end
        at = end


def lines(block: bytes, at: int, end: int) -> Iterator[Span]:
    """Yield the spans of the lines of a piece, without their newlines."""
    while at < end:
        stop = block.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        yield at, stop
        at = stop + 1


def _by_pieces(found: Callable[[bytes], bool]) -> Matcher:
    """Return a matcher that asks about a piece first and then about its lines."""

    def match(block: bytes, first: int, last: int) -> list[Span]:
        return [
            (start, stop)
            for at, end in pieces(block, first, last)
            if found(block[at:end])
            for start, stop in lines(block, at, end)
            if found(block[start:stop])
        ]

    return match


def _hyperscan(patterns: tuple[str, ...], cache: Path | None) -> Maker:
    import hyperscan

    flags = (
        hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_ALLOWEMPTY
    )
    database = _database(patterns, flags, cache)

    def make() -> Matcher:
        scratch = hyperscan.Scratch(database)
        seen: list[int] = []

        def note(number: int, *_rest: object) -> bool:
            seen.append(number)
            return True  # one is enough: stop looking at this piece

        def found(text: bytes) -> bool:
            seen.clear()
            with contextlib.suppress(hyperscan.ScanTerminated):
                database.scan(text, match_event_handler=note, scratch=scratch)
            return bool(seen)

        return _by_pieces(found)

    return make


def _database(patterns: tuple[str, ...], flags: int, cache: Path | None) -> Any:
    """Return the compiled database, from the cache where it lies there for these very patterns."""
    import hyperscan

    plain = [without_captures(p).encode() for p in patterns]
    version = importlib.metadata.version("hyperscan")
    key = hashlib.sha256(repr((version, flags, plain)).encode()).hexdigest()[:24]
    kept = cache / f"{key}.hs" if cache is not None else None
    if kept is not None and kept.exists():
        try:
            return hyperscan.loadb(kept.read_bytes(), hyperscan.HS_MODE_BLOCK)
        except hyperscan.error:  # made by another build or for another processor
            kept.unlink(missing_ok=True)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=plain,
        ids=list(range(len(plain))),
        elements=len(plain),
        flags=[flags] * len(plain),
    )
    if kept is not None:
        _keep(kept, hyperscan.dumpb(database))
    return database


def _keep(path: Path, data: bytes) -> None:
    """Write a cache file whole or not at all; a cache that cannot be written is no fault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)
    except OSError:
        return


def _re2(patterns: tuple[str, ...], _cache: Path | None) -> Maker:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_nl = False
    options.max_mem = 256 << 20
    matcher = re2.Set.SearchSet(options)
    for pattern in patterns:
        matcher.Add(f"(?m){without_captures(pattern)}".encode())
    matcher.Compile()
    return lambda: _by_pieces(lambda text: bool(matcher.Match(text)))


_EQUAL_DIGITS = bytes(ord("0") if chr(c).isdigit() and c < 128 else c for c in range(256))


def _stdlib(patterns: tuple[str, ...]) -> Maker:
    """Return a matcher that asks about each shape of line once.

    Lines that differ only in digits have one shape. A server's log has few shapes, so nearly every
    line costs one look-up.
    """
    superset = joined(any_digit(p) for p in patterns)

    def make() -> Matcher:
        quiet: set[bytes] = set()

        def match(block: bytes, first: int, last: int) -> list[Span]:
            shapes = block[first:last].translate(_EQUAL_DIGITS).split(b"\n")
            loud: list[int] = []
            for number in [n for n, shape in enumerate(shapes) if shape not in quiet]:
                shape = shapes[number]
                if superset.search(shape):
                    loud.append(number)
                elif len(shape) < 2048:
                    quiet.add(shape)
            if len(quiet) > SHAPES_LIMIT:
                quiet.clear()
            return _spans(shapes, loud, first)

        return match

    return make


def _spans(shapes: list[bytes], wanted: list[int], at: int) -> list[Span]:
    """Return where the wanted lines lie, given all lines from a place on."""
    spans, done = [], 0
    for number in wanted:
        at += sum(map(len, shapes[done:number])) + number - done
        spans.append((at, at + len(shapes[number])))
        done = number
    return spans
