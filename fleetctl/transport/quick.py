"""Sockets that neither wait for acknowledgements nor wake anybody up for nothing.

Measured reasons for each of these are in docs/adr/0003.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only
USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux only
SILENCE_MS = 30_000  # unacknowledged for that long: the connection is gone
WAKE_SECONDS = 2  # a read looks up that often, for the keep-alive
READ_SIZE = 65536


class QuickSocket:
    """A socket that reads ahead, acknowledges what it does not answer, and sends in few pieces."""

    def __init__(self, sock: socket.socket, *, greeting: bool = False) -> None:
        self._sock = sock
        self._greeting = greeting  # the first piece waits for the second
        self._ahead, self._at = b"", 0  # what was read, and how much of that was given out
        self._held = bytearray()
        self._holder: int | None = None  # the thread whose writes wait for each other
        self._lock = threading.Lock()
        self._unanswered = True  # nothing was sent since the last read
        self._quickack = QUICKACK if sock.family in (socket.AF_INET, socket.AF_INET6) else None
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if USER_TIMEOUT is not None:
                sock.setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT, SILENCE_MS)

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if self._at == len(self._ahead):
            self._read()
        data = self._ahead[self._at : self._at + size]
        self._at += len(data)
        return data

    def _read(self) -> None:
        if self._unanswered and self._quickack is not None:
            self._acknowledge(self._quickack)
        try:
            self._ahead, self._at = self._sock.recv(READ_SIZE), 0
        except BlockingIOError as error:  # what the kernel's own time limit looks like
            raise TimeoutError from error
        self._unanswered = True

    def _acknowledge(self, option: int) -> None:
        try:  # not contextlib.suppress: ten times a login
            self._sock.setsockopt(socket.IPPROTO_TCP, option, 1)
        except OSError:
            self._quickack = None

    def take(self, size: int) -> bytes | None:
        """Return exactly ``size`` bytes when they were read already, else None."""
        end = self._at + size
        if end > len(self._ahead):
            return None
        data = self._ahead[self._at : end]
        self._at = end
        return data

    def send(self, data: bytes) -> int:
        """Write what fits and return how much that was."""
        with self._lock:
            if self._greeting or self._holder == threading.get_ident():
                self._greeting = False
                self._held += data
                return len(data)
            self._unanswered = False
            if not self._held:
                return self._sock.send(data)
            self._held += data  # packets are numbered: what waits goes first
            self._flush()
            return len(data)

    def _flush(self) -> None:
        while self._held:
            self._unanswered = False
            with contextlib.suppress(TimeoutError, BlockingIOError):
                del self._held[: self._sock.send(self._held)]

    @contextlib.contextmanager
    def together(self, *, later: bool = False) -> Iterator[None]:
        """Send what this thread writes in the block as one piece: each piece wakes the other end up.

        Other threads' packets do not wait: a new key may be agreed on meanwhile. ``later``: it goes
        in front of the next piece, for what nobody waits for.
        """
        with self._lock:
            mine = self._holder is None
            if mine:
                self._holder = threading.get_ident()
        try:
            yield
        finally:
            if mine:
                with self._lock:
                    self._holder = None
                    if not later:
                        self._flush()

    def settimeout(self, seconds: float | None) -> None:  # noqa: ARG002
        """Leave the waiting to the kernel, with limits of its own.

        paramiko asks for 0.1 s, to see whether it was closed meanwhile; here a close ends the read.
        A limit of Python's own costs a poll(2) before each read and write.
        """
        limit = struct.pack("ll", WAKE_SECONDS, 0)
        self._sock.settimeout(None)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def getpeername(self) -> Any:
        """Return the other end's address."""
        return self._sock.getpeername()

    def close(self) -> None:
        """Close, and wake up whoever waits in a read."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    @property
    def _closed(self) -> bool:
        return self._sock.fileno() < 0


class CommandSocket(QuickSocket):
    """The standard input and output of a ProxyCommand, as a socket."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        super().__init__(ours, greeting=True)

    def close(self) -> None:
        """Close both ends."""
        super().close()
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
