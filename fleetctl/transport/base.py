"""What every transport offers. Only this package opens connections to hosts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleetctl.errors import UnreachableError
from fleetctl.model.fleet import Host

STDERR_LIMIT = 1024 * 1024
STDOUT_LIMIT = 64 * 1024 * 1024
UNTHREADED = 32 * 1024  # fits any socket buffer: writing it cannot block for long


OnOutput = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What one command left behind. ``seconds`` is wall time including the round trip.

    ``truncated`` says that standard output went on after the first 64 MiB.
    """

    rc: int
    stdout: bytes
    stderr: bytes
    seconds: float
    truncated: bool = False


class Channel(Protocol):
    """A running command with its standard input still open."""

    def send(self, data: bytes) -> None:
        """Write all of it to the command's standard input; UnreachableError when it is gone."""
        ...

    def recv(self, timeout: float) -> bytes:
        """Return what the command printed, b"" at its end; TimeoutError after that many seconds."""
        ...

    def close_stdin(self) -> None:
        """Tell the command that nothing more comes."""
        ...

    def feed(self, data: bytes, timeout: float | None = None) -> None:
        """Write all of its input and end it; TimeoutError after that many seconds."""
        ...

    def wait(self, timeout: float) -> int:
        """Return the exit status; TimeoutError after that many seconds. Negative: the session was lost."""
        ...

    def stderr(self) -> bytes:
        """Return what came on standard error so far (the first 1 MiB)."""
        ...

    def close(self) -> None:
        """Give the channel up: end its input, and stop what does not end by that within half a second."""
        ...


class Connection(Protocol):
    """An authenticated session with one host."""

    @property
    def host(self) -> Host:
        """Return the host at the other end."""
        ...

    def open(self, command: str) -> Channel:
        """Start a shell command line and return its channel."""
        ...

    def exec(
        self,
        command: str,
        stdin: bytes = b"",
        timeout: float = 30.0,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a shell command line to its end. ``timeout`` (seconds) covers the whole exchange.

        ``on_output`` sees standard output as it comes, beside its place in the result.
        """
        ...

    def close(self) -> None:
        """End the session, and what still runs in it."""
        ...


def exchange(
    channel: Channel,
    stdin: bytes | None,
    started: float,
    timeout: float,
    on_output: OnOutput | None = None,
) -> Result:
    """Feed a command its input, read it to its end and return what it left.

    ``stdin`` None: the channel feeds it by itself. ``started`` is when it was asked for, on the monotonic
    clock, and the ``timeout`` (seconds) counts from then.
    TimeoutError when its time is over first (the channel stays open).
    """
    end = started + timeout
    if stdin is not None:
        _feed(channel, stdin, _left(end))
    kept = bytearray()
    truncated = False
    while chunk := channel.recv(_left(end)):
        room = STDOUT_LIMIT - len(kept)
        truncated = truncated or len(chunk) > room
        kept += chunk[: max(room, 0)]
        if on_output is not None:
            on_output(chunk)
    rc = channel.wait(_left(end))
    return Result(rc, bytes(kept), channel.stderr(), time.monotonic() - started, truncated)


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _feed(channel: Channel, stdin: bytes, timeout: float) -> None:
    """Write the input beside the reading when it is large: both pipes may be full at once."""
    # A command may well end without reading its input; its exit status says how it went.
    if len(stdin) <= UNTHREADED:
        with contextlib.suppress(UnreachableError):
            channel.feed(stdin, timeout)
        return

    def write() -> None:
        with contextlib.suppress(UnreachableError):
            channel.feed(stdin)

    threading.Thread(target=write, daemon=True).start()
