"""The machine that fleetctl runs on, as if it were a host (``transport: local``)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from typing import IO

from fleetctl.errors import UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import faults
from fleetctl.transport.base import STDERR_LIMIT, OnOutput, Result, exchange


class LocalChannel:
    """A child process in a process group of its own."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[bytes] = self._process.stdin
        self._stdout: IO[bytes] = self._process.stdout
        self._errors = bytearray()
        self._reading = threading.Lock()
        self._drain = threading.Thread(
            target=self._read_errors, args=(self._process.stderr,), daemon=True
        )
        self._drain.start()

    def _read_errors(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), 8192):
            room = STDERR_LIMIT - len(self._errors)
            self._errors += chunk[: max(room, 0)]
        stream.close()

    def send(self, data: bytes) -> None:
        """Write to the child's standard input."""
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise UnreachableError(
                "connection-lost", "the command ended before it read its input", where="local"
            ) from error

    def recv(self, timeout: float) -> bytes:
        """Return the next output of the child, b"" at its end."""
        with self._reading:
            if self._stdout.closed:  # by another thread, that ended the command
                return b""
            poll = select.poll()
            poll.register(self._stdout, select.POLLIN)
            if not poll.poll(timeout * 1000):
                raise TimeoutError
            return os.read(self._stdout.fileno(), 65536)

    def close_stdin(self) -> None:
        """Close the child's standard input."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def feed(self, data: bytes, timeout: float | None = None) -> None:  # noqa: ARG002  a pipe takes 64 KiB
        """Write all of its input and end it; what fits the pipe is written at once."""
        if data:
            self.send(data)
        self.close_stdin()

    def wait(self, timeout: float) -> int:
        """Return the child's exit status."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        self._drain.join(1.0)
        return code if code >= 0 else 128 - code  # as a shell tells it

    def stderr(self) -> bytes:
        """Return standard error so far."""
        return bytes(self._errors)

    def close(self) -> None:
        """End the child's whole process group."""
        self.close_stdin()
        if self._process.poll() is None:
            with contextlib.suppress(TimeoutError):
                self.wait(0.5)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._drain.join(1.0)
        if self._reading.acquire(timeout=1.0):  # else who reads there closes it
            self._stdout.close()
            self._reading.release()


class LocalConnection:
    """Runs commands here."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: list[LocalChannel] = []
        self._closed = False

    @property
    def host(self) -> Host:
        """Return the host entry that says ``transport: local``."""
        return self._host

    def open(self, command: str) -> LocalChannel:
        """Start a shell command line."""
        channel = LocalChannel(command)
        self._open.append(channel)
        if self._closed:  # meanwhile, by another thread
            channel.close()
        return channel

    def exec(
        self,
        command: str,
        stdin: bytes = b"",
        timeout: float = 30.0,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a shell command line to its end."""
        started = time.monotonic()
        channel = self.open(command)
        try:
            result = exchange(channel, stdin, started, timeout, on_output)
        except TimeoutError as error:
            raise faults.command_timeout(self._host.name, timeout) from error
        finally:
            channel.close()
            self._open.remove(channel)
        if command.startswith("sudo -n"):
            faults.check_sudo(result, self._host)
        return result

    def close(self) -> None:
        """End what still runs."""
        self._closed = True
        for channel in list(self._open):
            channel.close()
