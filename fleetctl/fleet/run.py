"""Files and a command to one host in one exec, without anything installed there but a shell.

The files come on standard input. Each is written beside its destination, flushed to the disk and
renamed over it, so a reader finds the old or the new one, also when the line is cut in the middle.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import Exit, FleetError, RemoteError, UsageError
from fleetctl.fleet.fanout import fan_out
from fleetctl.model.fleet import Host
from fleetctl.transport import CONNECT_SECONDS, connect
from fleetctl.transport.base import Connection, Result, exchange

if TYPE_CHECKING:
    from fleetctl.model.facts import PatchNote

COMMAND_SECONDS = 600.0
NOTES_SECONDS = 5.0
SLACK_SECONDS = 10.0  # the host's own timeout goes off first, and says so by its status
PUT_FAILED = 73  # EX_CANTCREAT of sysexits.h
WHOLE = b"whole"
PUT_MARK = b"fleetctl-put: "
NOTE_MARK = b"fleetctl-patch-note: "
# As remote/patch_store.py says it, whose import would cost each command 3 ms.
NOTICES = "/var/lib/fleetctl/patches/*/notice"
NOTES = (  # where no patch is applied it is one look at a folder, and no process
    f'for f in {NOTICES}; do [ -f "$f" ] && while IFS= read -r l; do '
    f'printf "%s\\t%s\\n" "{NOTE_MARK.decode()}$f" "$l" >&2; done <"$f"; done; unset f l\n'
)
NOTE = re.compile(NOTE_MARK + rb"/[^\t\n]*/([^/\t\n]+)/[^/\t\n]+" + 4 * rb"\t([^\t\n]*)" + b"\n")
TIMEOUT_STATUSES = (124, 137)  # of timeout(1), by TERM and by KILL


@dataclass(frozen=True, slots=True)
class Put:
    """One file to be there before the command runs."""

    data: bytes
    name: str
    destination: str
    mode: int


@dataclass(frozen=True, slots=True)
class Job:
    """What every host gets. ``timeout`` (seconds) is the command's; None leaves it COMMAND_SECONDS."""

    command: str
    puts: tuple[Put, ...] = ()
    timeout: float | None = None
    connect_timeout: float = CONNECT_SECONDS
    become: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one host answered: a status with output, or an error. ``seconds`` has the login in it."""

    host: str
    rc: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    error: FleetError | None = None
    truncated: bool = False
    patches: tuple[tuple[str, PatchNote], ...] = ()  # (service, patch) that the host has

    @property
    def exit_code(self) -> int:
        """Return the code of the command line for this host alone."""
        if self.error is not None:
            return int(self.error.exit_code)
        return int(Exit.REMOTE if self.rc else Exit.OK)


def parse_put(text: str) -> Put:
    """Read ``FILE:DEST`` or ``FILE:DEST:MODE``; without a mode it is the local file's.

    Raises UsageError ``bad-put`` or ``no-such-file``.
    """
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts):
        raise UsageError("bad-put", f"--put {text}: FILE:DEST or FILE:DEST:MODE is wanted")
    path = Path(parts[0]).expanduser()
    try:
        data = path.read_bytes()
        mode = int(parts[2], 8) if len(parts) == 3 else path.stat().st_mode & 0o777
    except OSError as error:
        raise UsageError("no-such-file", error.strerror or str(error), where=str(path)) from error
    except ValueError as error:
        raise UsageError("bad-put", f"--put {text}: the mode is octal, 0640 say") from error
    return Put(data, path.name, parts[1], mode)


def command_text(words: Sequence[str]) -> str:
    """Return one word as the shell text it is, several as the words they are."""
    return words[0] if len(words) == 1 else shlex.join(words)


def script(job: Job) -> str:
    """Return the shell text that stores the files and runs the command."""
    text = NOTES + "".join(map(_put_text, job.puts))
    command = job.command
    if job.timeout is not None:
        # Ends the command also when this end of the line is gone.
        limit = f"timeout -k 5 {job.timeout:g}"
        command = (
            f"if command -v timeout >/dev/null; then exec {limit} sh -c {shlex.quote(command)}; fi\n"
            f"{command}"
        )
    text += command
    return f"sudo -n sh -c {shlex.quote(text)}" if job.become else text


def stdin(job: Job) -> bytes:
    """Return the files as the script reads them: each with a line behind that says it was whole."""
    return b"".join(put.data + WHOLE + b"\n" for put in job.puts)


def _put_text(put: Put) -> str:
    plain = put.mode & 0o666
    mode = f' && chmod {put.mode:04o} "$t"' if put.mode != plain else ""
    # dd makes the file with its final mode (no moment at which others could read a secret), reads not
    # a byte more than its own, and comes back when they are on the disk.
    return (
        f'd={_path(put.destination)}; [ -d "$d" ] && d=$d/{shlex.quote(put.name)}\n'
        '[ -L "$d" ] && d=$(readlink -f "$d"); t=$d.fleetctl-$$\n'
        f'(umask {0o666 & ~plain:04o}; dd of="$t" bs=64k count={len(put.data)} '
        "iflag=fullblock,count_bytes conv=fsync status=none)"
        f' && read -r w && [ "$w" = {WHOLE.decode()} ]{mode} && mv -f "$t" "$d" || '
        f'{{ rm -f "$t"; echo "{PUT_MARK.decode()}$d" >&2; exit {PUT_FAILED}; }}\n'
    )


def _path(destination: str) -> str:
    """Quote a path of the host; ``~/`` stays the home there."""
    if destination.startswith("~/"):
        return '"$HOME"/' + shlex.quote(destination[2:])
    return shlex.quote(destination)


def noted(stderr: bytes) -> tuple[bytes, tuple[tuple[str, PatchNote], ...]]:
    """Return what a command said, and the patches of its host, which came in front of that."""
    start = stderr[:4096].find(NOTE_MARK)
    if start < 0 or stderr[max(0, start - 1) : start] not in (b"", b"\n"):
        return stderr, ()
    from fleetctl.clock import SystemClock, rfc3339
    from fleetctl.model.facts import PatchNote

    found, at, now = [], start, rfc3339(SystemClock().now())
    while match := NOTE.match(stderr, at):
        service, name, rung, by, until = (part.decode(errors="replace") for part in match.groups())
        note = PatchNote(name, rung=rung, by=by, expires_at=until, expired=until < now)
        found.append((service, note))
        at = match.end()
    return stderr[:start] + stderr[at:], tuple(found)


def patches_of(connection: Connection) -> list[tuple[str, PatchNote]]:
    """Return the patches of a host, for what cannot say them itself; none where it lets nothing run."""
    with contextlib.suppress(FleetError, TimeoutError):
        channel = connection.open(NOTES)
        try:
            said = exchange(channel, b"", time.monotonic(), NOTES_SECONDS)
            return list(noted(said.stderr)[1])
        finally:
            channel.close()
    return []


def record(job: Job, hosts: Sequence[Host]) -> None:
    """Note in the operator's audit log what is put and what is run as root, secrets redacted."""
    if not job.puts and not job.become:
        return
    from fleetctl.apply import audit
    from fleetctl.remote.redact import redact

    audit.write({
        "do": "run", "hosts": [h.name for h in hosts], "command": redact(job.command),
        "puts": [p.destination for p in job.puts], "become": job.become,
    })  # fmt: skip


class Runner:
    """Runs one job on hosts. ``doing`` tells what is under way, ``stop`` ends it."""

    def __init__(self, job: Job, on_output: Callable[[Host, bytes], None] | None = None) -> None:
        self.job = job
        self.on_output = on_output
        self.doing: dict[str, tuple[str, float]] = {}  # host → (what, since when)
        self._script = script(job)
        self._stdin = stdin(job)
        self._running: set[Connection] = set()
        self._lock = threading.Lock()

    def __call__(self, host: Host, *, ask: bool = False) -> Outcome:
        """Return what the host answered, or why it gave no status."""
        began = time.monotonic()
        self.doing[host.name] = ("connecting", began)
        try:
            result = self._run(host, ask)
            self._check(host, result)
        except FleetError as error:
            return Outcome(host.name, None, b"", b"", time.monotonic() - began, error)
        finally:
            self.doing.pop(host.name, None)
        stderr, patches = noted(result.stderr)
        return Outcome(host.name, result.rc, result.stdout, stderr, time.monotonic() - began,
                       truncated=result.truncated, patches=patches)  # fmt: skip

    def _run(self, host: Host, ask: bool) -> Result:
        connection = connect(host, self.job.connect_timeout, ask=ask)
        limit = COMMAND_SECONDS if self.job.timeout is None else self.job.timeout + SLACK_SECONDS
        self.doing[host.name] = ("running", time.monotonic())
        hear = self.on_output
        on_output = (lambda chunk: hear(host, chunk)) if hear else None
        with self._lock:
            self._running.add(connection)
        try:
            return connection.exec(self._script, self._stdin, limit, on_output)
        finally:
            with self._lock:
                self._running.discard(connection)
            connection.close()

    def stop(self) -> None:
        """End every command that runs, on all hosts at once, and what it started there."""
        with self._lock:
            running = list(self._running)
        for _ in fan_out(running, lambda connection: connection.close()):
            pass

    def _check(self, host: Host, result: Result) -> None:
        if result.rc == PUT_FAILED and PUT_MARK in result.stderr:
            said, _, path = result.stderr.decode(errors="replace").rpartition(PUT_MARK.decode())
            raise RemoteError(
                "put-failed", f"{path.strip()} was not written, and the command not run",
                where=host.name, context=tuple(said.strip().splitlines()[-3:]),
                hint="the file there is as it was",
            )  # fmt: skip
        limit = self.job.timeout
        # The host's clock began a little before ours.
        if limit is not None and result.rc in TIMEOUT_STATUSES and result.seconds >= limit - 0.1:
            raise RemoteError(
                "command-timeout", f"ended after {limit:g} s", where=host.name,
                hint="a larger --timeout waits longer",
            )  # fmt: skip
