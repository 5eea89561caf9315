"""What every transport offers. Only this package opens connections to hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetctl.model.fleet import Host


@dataclass(frozen=True, slots=True)
class Result:
    """What one command left behind. ``seconds`` is wall time including the round trip."""

    rc: int
    stdout: bytes
    stderr: bytes
    seconds: float


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

    def wait(self, timeout: float) -> int:
        """Return the exit status; TimeoutError after that many seconds."""
        ...

    def stderr(self) -> bytes:
        """Return what came on standard error so far (bounded to 64 KiB)."""
        ...

    def close(self) -> None:
        """Give the channel up; the remote process group does not outlive it."""
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

    def exec(self, command: str, stdin: bytes = b"", timeout: float = 30.0) -> Result:
        """Run a shell command line to its end. ``timeout`` (seconds) covers the whole exchange."""
        ...

    def close(self) -> None:
        """End the session."""
        ...
