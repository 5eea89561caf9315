"""Open what a person names: a file, a compressed file, a bundle's folder, standard input.

The one place where triage opens files. Compressed files are read as streams, so that none can fill
the memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

READ_LIMIT = 64 * 1024 * 1024
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
)
_LAYERS = 3  # of compression, one in the other
# What people send that holds no text by itself: said, since "nothing in this log" would be a wrong answer.
_NO_LOG = (
    (b"PK\x03\x04", "a zip archive: `unzip -p FILE | fleetctl triage -` reads it"),
    (b"7z\xbc\xaf", "a 7-Zip archive: unpack it first"),
    (b"Rar!", "a RAR archive: unpack it first"),
    (b"\x04\x22\x4d\x18", "packed by lz4: `lz4 -dc FILE | fleetctl triage -` reads it"),
    (b"\x1f\x9d\x90", "packed by compress: `zcat FILE | fleetctl triage -` reads it"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF-", "a PDF"),
    (b"LPKSHHRH", "a journal file: `journalctl --file FILE -o json | fleetctl triage -` reads it"),
)


class UnreadableError(Exception):
    """The path cannot be read; ``str()`` says why, without the path."""


def kind(head: bytes) -> str | None:
    """Return the compression that the first bytes tell, or None."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def refuse(head: bytes) -> None:
    """Raise UnreadableError where the first bytes are those of something that is no log."""
    for magic, what in _NO_LOG:
        if head.startswith(magic):
            raise UnreadableError(f"is {what}")


def is_long_plain(path: Path, limit: int) -> bool:
    """Return whether the path is a plain, uncompressed file of more than ``limit`` bytes."""
    try:
        if not path.is_file() or path.stat().st_size <= limit:
            return False
        with path.open("rb") as file:
            head = file.read(8)
            refuse(head)
            return kind(head) is None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


@contextlib.contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield the decompressed stream of a file.

    Raises:
        UnreadableError: it does not exist, may not be read, or is a folder.
    """
    try:
        file = path.open("rb")
    except IsADirectoryError as error:
        raise UnreadableError("is a folder without manifest.json or journal.jsonl") from error
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
    with file:
        yield opened(file)


def standard_input() -> IO[bytes]:
    """Return standard input as bytes."""
    return sys.stdin.buffer


def read(path: Path, limit: int = READ_LIMIT) -> tuple[bytes, bool]:
    """Return the first ``limit`` decompressed bytes of a file, and whether they were cut.

    Raises:
        UnreadableError: it cannot be read, or is broken before its first byte.
    """
    with open_file(path) as stream:
        return take(stream, limit)


def opened(file: IO[bytes]) -> IO[bytes]:
    """Return the decompressed stream of a file that may be compressed, also more than once.

    Raises:
        UnreadableError: what it holds is no log.
    """
    head = _first(file)
    packed = kind(head)
    rest = after(head, file)
    for _ in range(_LAYERS):
        if packed is None:
            break
        rest = _decompressor(packed, rest)
        head = _peeked(rest)
        packed = kind(head)
    refuse(head)
    return rest


def _peeked(stream: IO[bytes]) -> bytes:
    """Return the first bytes of a stream without taking them; b"" where it cannot be told."""
    try:
        return bytes(stream.peek(8)[:8])  # type: ignore[attr-defined]  # no peek: zstd
    except Exception:  # noqa: BLE001  # a broken archive, in its format's words, is told by whoever reads it
        return b""


def after(head: bytes, rest: IO[bytes]) -> IO[bytes]:
    """Return a stream of ``head`` and then what is left in ``rest``, which cannot be rewound."""
    return _Prefixed(head, rest)  # type: ignore[return-value]  # only read() is used


def _first(file: IO[bytes]) -> bytes:
    head = b""
    while len(head) < 8:
        try:
            piece = file.read(8 - len(head))
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error
        if not piece:
            break
        head += piece
    return head


def _decompressor(packed: str, file: IO[bytes]) -> IO[bytes]:
    if packed == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]  # a BufferedIOBase
    if packed == "xz":
        import lzma

        return lzma.LZMAFile(file)
    if packed == "bzip2":
        import bz2

        return bz2.BZ2File(file)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(
        file, read_across_frames=True
    )


def take(stream: IO[bytes], limit: int) -> tuple[bytes, bool]:
    """Read up to ``limit`` bytes; what a broken archive gave before it broke is kept."""
    pieces: list[bytes] = []
    have = 0
    # One step at a time where the format can: a longer read loses what it had when the archive breaks.
    step = getattr(stream, "read1", stream.read)
    while have < limit:
        try:
            piece = step(min(1 << 20, limit - have))
        except Exception as error:  # each format has its own; all mean the archive is broken here
            if pieces and not isinstance(error, MemoryError | KeyboardInterrupt):
                return b"".join(pieces), True
            raise UnreadableError(f"broken archive: {error}") from error
        if not piece:
            return b"".join(pieces), False
        pieces.append(piece)
        have += len(piece)
    return b"".join(pieces), True


class _Prefixed:
    """A stream whose first bytes were already read, since pipes cannot be rewound."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes."""
        if self._head:
            head, self._head = (
                self._head[: size if size >= 0 else None],
                b"" if size < 0 else self._head[size:],
            )
            return head if size >= 0 else head + self._rest.read()
        return self._rest.read(size)

    def readable(self) -> bool:
        """Decompressors ask."""
        return True

    def seekable(self) -> bool:
        """No: it may be a pipe."""
        return False
