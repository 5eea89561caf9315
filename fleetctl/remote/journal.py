"""The journal of one invocation: reading it whole and following it from a cursor."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import Any, Callable, Iterator

from fleetctl.remote import shell

# PID 1's own lines carry INVOCATION_ID, those of the service _SYSTEMD_INVOCATION_ID.
FIELDS = (
    "MESSAGE",
    "PRIORITY",
    "_PID",
    "_TRANSPORT",
    "_COMM",
    "SYSLOG_IDENTIFIER",
    "UNIT",
    "MESSAGE_ID",
    "_SYSTEMD_INVOCATION_ID",
    "INVOCATION_ID",
    "_HOSTNAME",
    "_BOOT_ID",
    "_LINE_BREAK",
    "EXIT_CODE",
    "EXIT_STATUS",
    "N_RESTARTS",
    "_STREAM_ID",
)


def matches(invocation: str) -> list[str]:
    """Return journalctl's arguments that pick one invocation."""
    return ["_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]


def message(record: dict[str, Any]) -> str:
    """Return the text of a record; bytes come as numbers, several values as a list."""
    value = record.get("MESSAGE")
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if value and all(isinstance(v, int) for v in value):
            return bytes(value).decode("utf-8", "replace")
        return "\n".join(str(v) for v in value)
    return ""


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the record of one line of ``-o json``, or None for a line that is none."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def command(invocation: str, *more: str) -> list[str]:
    """Return the journalctl command for the records of one invocation."""
    return [
        "journalctl", "--no-pager", "-q", "--all", "-o", "json",
        "--output-fields=" + ",".join(FIELDS), *more, *matches(invocation),
    ]  # fmt: skip


def read(argv: list[str], timeout: float, limit: int) -> Iterator[bytes]:
    """Yield lines of a journalctl command, at most ``limit`` bytes within ``timeout`` seconds."""
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=shell.ENV,
    )  # fmt: skip
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            limit -= len(line)
            if limit < 0:
                break
            yield line
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def sync() -> None:
    """Wait until what was printed before is in the journal (at most 3 s)."""
    shell.run(("journalctl", "--sync"), timeout=3.0)


class Follower:
    """``journalctl -f`` in a thread that hands on each record of one invocation."""

    def __init__(
        self,
        invocation: str,
        cursor: str,
        deliver: Callable[[dict[str, Any]], None],
        lines: str = "all",
    ) -> None:
        place = ["--after-cursor=" + cursor] if cursor else ["--lines=" + lines]
        self._process = subprocess.Popen(
            command(invocation, "-f", *place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, **shell.ENV),
        )
        self._deliver = deliver
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = parse(line)
            if record is not None:
                self._deliver(record)

    def alive(self) -> bool:
        """Return whether journalctl still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._thread.join(2.0)
        if self._process.stdout is not None:
            self._process.stdout.close()


def last_cursor(unit: str) -> str:
    """Return the cursor of the newest record of a unit, or ""."""
    done = shell.run(
        ("journalctl", "-q", "--no-pager", "-n", "1", "-o", "json", "-u", unit), timeout=10.0
    )
    record = parse(done.out.encode()) if done.out.strip() else None
    return str(record.get("__CURSOR", "")) if record else ""
