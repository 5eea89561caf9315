"""Large text from a host: packed there, streamed to a file here, bounded.

``zstd -1`` leaves about a tenth of a log for the wire; where it is missing gzip does, else cat.
Used by ``fleetctl fetch``; for a collector, ``fetch(connection, command, path)`` stores what any
command prints (``journalctl -o export -u …``), packed in the same way.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fleetctl.errors import ConfigError, RemoteError
from fleetctl.model.fleet import Host
from fleetctl.transport import faults
from fleetctl.transport.base import Channel, Connection

Heard = Callable[[bytes], bytes]
LIMIT = 4 * 1024**3  # bytes on our disk
SLICE = 2048  # packed bytes at a time: what a hostile stream can swell to stays some megabytes
PIECE = 256 * 1024  # unpacked bytes at a time, where the unpacker can be asked for no more
SILENCE_SECONDS = 60.0  # without a byte: a command that prints nothing for that long has hung

# The first line of output names the packer, so that nothing has to be asked before; the last one of
# standard error is the command's own status. One core of a host that serves is enough, and a zstd that
# needs no threads for it (1.3.4 and later) uses an eighth less of that. SSH checks the bytes already.
PACK = """if command -v zstd >/dev/null 2>&1; then echo zstd; p='zstd -1 -q -c --no-check --single-thread'
$p </dev/null >/dev/null 2>&1 || p='zstd -1 -q -c -T1'
elif command -v gzip >/dev/null 2>&1; then echo gzip; p='gzip -1 -c'; else echo cat; p=cat; fi
"""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came: the file, its bytes, the bytes on the wire, the packer, seconds."""

    path: Path
    size: int
    wire: int
    packer: str
    seconds: float
    truncated: bool = False


def fetch_file(
    connection: Connection,
    remote: str,
    path: Path,
    *,
    limit: int = LIMIT,
    before: str = "",
    heard: Heard = bytes,
) -> Fetched:
    """Store a file of the host here; see ``fetch``.

    ``before`` is shell text that runs first; ``heard`` takes what it says on standard error out of that.
    """
    name = '"$HOME"/' + shlex.quote(remote[2:]) if remote.startswith("~/") else shlex.quote(remote)
    return _store(connection, f"{before}{PACK}$p <{name}; echo $? >&2", path, limit, None, heard)


def fetch(
    connection: Connection,
    command: str,
    path: Path,
    *,
    limit: int = LIMIT,
    on_progress: Callable[[int], None] | None = None,
) -> Fetched:
    """Store what a shell command of the host prints in ``path``, which is whole or not there.

    At ``limit`` bytes (unpacked) it is cut and ``truncated``. ``on_progress`` gets the bytes so far.
    Raises RemoteError ``fetch-failed`` with the command's last words, UnreachableError, and
    ConfigError ``cannot-write`` for the file here.
    """
    packed = f"{PACK}{{ ( {command}\n); echo $? >&2; }} | $p"
    return _store(connection, packed, path, limit, on_progress)


def _store(
    connection: Connection,
    text: str,
    path: Path,
    limit: int,
    on_progress: Callable[[int], None] | None,
    heard: Heard = bytes,
) -> Fetched:
    began = time.monotonic()
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    host = connection.host
    if host.become == "sudo" and host.user != "root":
        text = f"sudo -n sh -c {shlex.quote(text)}"
    channel = connection.open(text)
    try:
        channel.close_stdin()
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            stream = _Stream(host, channel, limit, heard)
            for data in stream:
                file.write(data)
                if on_progress is not None:
                    on_progress(stream.size)
        if stream.truncated:
            heard(channel.stderr())
        else:
            _check(host, channel, heard)
        partial.replace(path)
    except OSError as error:
        raise ConfigError("cannot-write", error.strerror or str(error), where=str(path)) from error
    finally:
        channel.close()
        with contextlib.suppress(OSError):
            partial.unlink()
    return Fetched(path, stream.size, stream.wire, stream.packer, time.monotonic() - began,
                   stream.truncated)  # fmt: skip


class _Stream:
    """The unpacked pieces of what a channel sends."""

    def __init__(self, host: Host, channel: Channel, limit: int, heard: Heard) -> None:
        self._host, self._channel, self._limit, self._heard = host, channel, limit, heard
        self.packer = ""
        self.size = 0
        self.wire = 0
        self.truncated = False

    def _recv(self) -> bytes:
        try:
            data = self._channel.recv(SILENCE_SECONDS)
        except TimeoutError as error:
            raise faults.command_timeout(self._host.name, SILENCE_SECONDS) from error
        self.wire += len(data)
        return data

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield pieces until the end or the limit."""
        head = b""
        while b"\n" not in head and len(head) < 64 and (data := self._recv()):
            head += data
        word, newline, rest = head.partition(b"\n")
        self.packer = word.decode(errors="replace")
        if not newline or self.packer not in ("zstd", "gzip", "cat"):
            _check(self._host, self._channel, self._heard)
            raise RemoteError(
                "fetch-failed", f"unexpected start {word[:60]!r}", where=self._host.name
            )
        pieces: Iterator[bytes | memoryview]
        pieces = self._zstd(rest) if self.packer == "zstd" else self._others(rest)
        for piece in pieces:
            yield from self._kept(piece)
            if self.truncated:
                return

    def _zstd(self, rest: bytes) -> Iterator[memoryview]:
        import zstandard

        source: Any = SimpleNamespace(read=_Once(rest, self._recv))
        with zstandard.ZstdDecompressor().stream_reader(source, read_size=65536) as reader:
            room = memoryview(bytearray(PIECE))  # one for all: no new pages
            while size := reader.readinto(room):
                yield room[:size]

    def _others(self, rest: bytes) -> Iterator[bytes]:
        same: Callable[[bytes], bytes] = bytes
        unpack = zlib.decompressobj(wbits=31).decompress if self.packer == "gzip" else same
        data = rest or self._recv()
        while data:
            for start in range(0, len(data), SLICE):
                yield unpack(data[start : start + SLICE])
            data = self._recv()

    def _kept(self, piece: bytes | memoryview) -> Iterator[bytes | memoryview]:
        room = self._limit - self.size
        self.truncated = self.truncated or len(piece) > room
        self.size += min(len(piece), room)
        if piece and room > 0:
            yield piece[:room]


class _Once:
    """Reads what is there already, then what comes, never more than was asked for."""

    def __init__(self, first: bytes, more: Callable[[], bytes]) -> None:
        self._first, self._more = first, more

    def __call__(self, size: int) -> bytes:
        data = self._first or self._more()
        self._first, data = data[size:], data[:size]
        return data


def _check(host: Host, channel: Channel, heard: Heard) -> None:
    """Raise unless the command itself ended well; its status comes on standard error, last."""
    rc = channel.wait(10.0)
    said = heard(channel.stderr()).decode(errors="replace").split("\n")
    lines = [line for line in said if line]
    status = lines.pop() if lines and lines[-1].isdigit() else str(rc)
    if rc < 0:
        raise faults.lost(host.name)
    if faults.sudo_said_no(channel.stderr()):
        faults.raise_sudo(host)
    if rc or status != "0":
        raise RemoteError(
            "fetch-failed", lines[-1] if lines else f"exit status {status}", where=host.name,
            context=tuple(lines[-5:-1]),
        )  # fmt: skip
