"""Open what a person names: a file, a compressed file, a bundle's folder, standard input.

The one place where triage reads files. A compressed file that unpacks to more than ``UNPACK_LIMIT``
bytes is read up to there and counted as truncated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

UNPACK_LIMIT = 256 * 1024 * 1024
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
)


class UnreadableError(Exception):
    """The path cannot be read; ``str()`` says why, without the path."""


def kind(head: bytes) -> str | None:
    """Return the compression that the first bytes tell, or None."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def size(path: Path) -> int:
    """Return the size in bytes of a plain file, 0 for what has none (a pipe, a device).

    Raises:
        UnreadableError: it does not exist or may not be read.
    """
    try:
        return path.stat().st_size
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


def read(path: Path, limit: int = UNPACK_LIMIT) -> tuple[bytes, bool]:
    """Return the decompressed bytes of a file, or of standard input for ``-``, and whether they were cut.

    Raises:
        UnreadableError: it does not exist, may not be read, is a folder, or is broken before its first byte.
    """
    try:
        if str(path) == "-":
            return _unpack(sys.stdin.buffer, limit)
        with path.open("rb") as file:
            return _unpack(file, limit)
    except IsADirectoryError as error:
        raise UnreadableError("is a folder without manifest.json or journal.jsonl") from error
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


def compressed(path: Path) -> bool:
    """Return whether the file at ``path`` is compressed."""
    try:
        with path.open("rb") as file:
            return kind(file.read(6)) is not None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error


def unpack(data: bytes, limit: int = UNPACK_LIMIT) -> tuple[bytes, bool]:
    """Return ``data`` decompressed where it is compressed, and whether it was cut at ``limit``."""
    import io

    return _unpack(io.BytesIO(data), limit)


def _unpack(file: IO[bytes], limit: int) -> tuple[bytes, bool]:
    head = file.read(6)
    packed = kind(head)
    rest: IO[bytes] = _Prefixed(head, file)  # type: ignore[assignment]  # only read() is used
    if packed is None:
        return _take(rest, limit)
    stream = _decompressor(packed, rest)
    return _take(stream, limit)


def _decompressor(packed: str, file: IO[bytes]) -> IO[bytes]:
    if packed == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]  # a BufferedIOBase
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


def _take(stream: IO[bytes], limit: int) -> tuple[bytes, bool]:
    """Read up to ``limit`` bytes; what a broken archive gave before it broke is kept."""
    pieces: list[bytes] = []
    have = 0
    while have < limit:
        try:
            piece = stream.read(min(1 << 20, limit - have))
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
