"""The operator's end of the host agent: one exec, requests out, events and results back.

The wire (docs/reference/agent-protocol.md): a program (``payload``), then JSON lines both ways.
"""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fleetctl.errors import Exit, FleetError, RemoteError, UnreachableError
from fleetctl.transport import faults
from fleetctl.transport.base import Channel, Connection
from fleetctl.transport.payload import BOOTSTRAP, OPTIONS, payload

BEAT_SECONDS = 5.0
DEAF_SECONDS = 20.0  # nothing heard for that long, not even answers to beats: the way is cut
LINE_LIMIT = 256 * 1024 * 1024


class Agent:
    """A running agent on one host. Use as a context manager; leaving it ends the agent."""

    def __init__(
        self, connection: Connection, modules: Iterable[str] = (), soon: tuple[str, ...] = ()
    ) -> None:
        self.connection = connection
        host = connection.host
        command = f"{shlex.quote(host.python)} {OPTIONS} -c {shlex.quote(BOOTSTRAP)}"
        if host.become == "sudo":
            command = f"sudo -n {command}"
        self._channel: Channel = connection.open(command)
        self._buffer = bytearray()
        self._next_id = 0
        self._heard = time.monotonic()
        self._sending = threading.Lock()
        self._closed = threading.Event()
        try:
            self._push(payload(tuple(sorted(modules)), soon))
        except BaseException:
            self._channel.close()
            raise
        threading.Thread(target=self._beat, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the agent: it sees the end of its input and stops after its atomic step."""
        self._closed.set()
        with self._sending:
            self._channel.close()

    def call(
        self,
        verb: str,
        args: Mapping[str, Any] | None = None,
        *,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        timeout: float | None = 60.0,
    ) -> dict[str, Any]:
        """Run ``module.function`` on the host and return its result.

        ``timeout`` is seconds for the whole call; None waits as long as the host answers to beats,
        whose absence for 20 s ends any call as ``connection-lost``.
        Raises RemoteError with the host's own reference, UnreachableError when the session is lost.
        """
        self._next_id += 1
        self._heard = time.monotonic()
        self._send({"id": self._next_id, "verb": verb, "args": dict(args or {})})
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            frame = self._receive(deadline, verb)
            if frame.get("id") != self._next_id:
                continue
            if "event" in frame:
                if on_event is not None:
                    on_event(frame["event"])
            elif "error" in frame:
                raise self._error(frame["error"])
            else:
                return dict(frame["result"])

    def cancel(self) -> None:
        """Ask the running verb to stop at its next safe point."""
        self._send({"cancel": self._next_id})

    def _send(self, frame: dict[str, Any]) -> None:
        data = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            self._push(data)

    def _push(self, data: bytes) -> None:
        try:
            self._channel.send(data)
        except UnreachableError as error:
            raise self._ended() from error  # its exit status says more than a closed pipe

    def _beat(self) -> None:
        """Tell the agent every few seconds that we are here; it answers each."""
        while not self._closed.wait(BEAT_SECONDS):
            try:
                self._send({"beat": 1})
            except (FleetError, OSError):
                return  # whoever waits for a result learns it from the channel

    def _receive(self, deadline: float | None, verb: str) -> dict[str, Any]:
        while True:
            end = self._buffer.find(b"\n")
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                frame = self._parse(line)
                if frame is not None:
                    return frame
                continue
            if len(self._buffer) > LINE_LIMIT:
                raise RemoteError(
                    "agent-flood", "a line of over 256 MiB", where=self.connection.host.name
                )
            self._fill(deadline, verb)

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """Return the frame, or None for a line that is not the agent's (a login banner, say)."""
        try:
            frame = json.loads(line)
        except ValueError:
            return None
        return frame if isinstance(frame, dict) else None

    def _fill(self, deadline: float | None, verb: str) -> None:
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise UnreachableError(
                "command-timeout",
                f"{verb} gave no result in time",
                where=self.connection.host.name,
                hint="the host may be overloaded; try again, or raise --timeout",
            )
        if now - self._heard >= DEAF_SECONDS:
            raise UnreachableError(
                "connection-lost",
                f"nothing heard for {DEAF_SECONDS:g} s",
                where=self.connection.host.name,
                hint="the network or the host is gone; what runs there goes on without us",
            )
        wait = BEAT_SECONDS if deadline is None else min(BEAT_SECONDS, deadline - now)
        try:
            chunk = self._channel.recv(max(wait, 0.001))
        except TimeoutError:
            return
        if not chunk:
            raise self._ended()
        self._heard = time.monotonic()
        self._buffer += chunk

    def _error(self, error: dict[str, Any]) -> FleetError:
        code = error.get("exit_code")
        return RemoteError(
            str(error.get("reference", "remote-failed")),
            str(error.get("message", "")),
            where=str(error.get("where") or self.connection.host.name),
            hint=str(error.get("hint", "")),
            context=tuple(str(c) for c in error.get("context", ())),
            exit_code=Exit(code) if code in set(Exit) else None,
        )

    def _ended(self) -> FleetError:
        """Say why the agent is gone, from its exit status and what it wrote to standard error."""
        try:
            rc = self._channel.wait(2.0)
        except TimeoutError:
            rc = None
        said = self._channel.stderr().decode(errors="replace").strip()
        host = self.connection.host
        if "sudo:" in said and ("password" in said or "terminal" in said):
            return RemoteError(
                "sudo-password",
                "sudo needs a password there",
                where=host.name,
                hint=f"allow it without one for {host.user or 'this user'}, or connect as root",
            )
        if rc == 127 or "not found" in said:
            return RemoteError(
                "no-python",
                f"{host.python} is not there",
                where=host.name,
                hint="install python3 (3.8 or newer), or set python: in the inventory",
            )
        if rc is None or rc < 0:
            return faults.lost(host.name)
        return RemoteError(
            "agent-died", f"the agent ended with status {rc}", where=host.name,
            context=tuple(said.splitlines()[-5:]),
        )  # fmt: skip
