"""Sessions over SSH: one login, any number of commands, a deadline over each exchange."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from fleetctl.errors import FleetError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import auth, faults, reach, trust
from fleetctl.transport.base import OnOutput, Result, exchange
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.lean import paramiko
from fleetctl.transport.session import PIECE
from fleetctl.transport.spare import TEXT, Spare
from fleetctl.transport.sshconfig import Settings, settings
from fleetctl.transport.wire import KEEPALIVE_SECONDS, Wire

T = TypeVar("T")

GRACE_SECONDS = 0.5
STOP_SECONDS = 3.0
PAUSES = (0.0, *(0.1,) * 20)  # seconds between questions for a session that was refused
HANDSHAKE_TRIES = 3

# Its first line says which session to end; sshd made this shell the leader of one.
WRAP = "echo $$ >&2; "
# Each process of the session, by /proc: no tool is needed for it, and a process group is not enough
# (timeout(1), a shell with job control and sudo make groups of their own).
STOP = """for signal in TERM 0 0 0 0 KILL; do more=; for stat in /proc/[0-9]*/stat; do
read -r line 2>/dev/null <"$stat" || continue; pid=${line%% *}; set -- ${line##*) }
[ "$4" = SID ] && kill -$signal "$pid" 2>/dev/null && more=1; done
[ "$more" ] || break; [ $signal = KILL ] || sleep 0.2; done; :"""


def connect(host: Host, timeout: float = 10.0, *, ask: bool = False) -> SshConnection:
    """Log in to a host. ``timeout`` (seconds) covers name, way, handshake and login together.

    ``ask``: questions of the host itself (a password, a second factor) may go to the terminal;
    a key's passphrase and a jump host's questions always may, and are asked once.
    Raises UnreachableError (its reference says why) and ConfigError.
    """
    return SshConnection(host, log_in(host, settings(host), Deadline(timeout), ask=ask))


def log_in(host: Host, found: Settings, deadline: Deadline, *, ask: bool) -> Wire:
    """Return an authenticated transport."""
    entries = trust.known(found)
    wire = handshake(host.name, found, deadline, key_types=trust.key_types(entries),
                     certificates=any(e.marker == "@cert-authority" for e in entries))  # fmt: skip
    try:
        trust.check(host.name, found, entries, wire.get_remote_server_key(), wire.shown)
        auth.authenticate(wire, host.name, found, deadline, ask=ask)
    except BaseException:
        wire.close()
        raise
    wire.set_keepalive(KEEPALIVE_SECONDS)
    return wire


def handshake(
    name: str,
    found: Settings,
    deadline: Deadline,
    *,
    key_types: list[str],
    certificates: bool = False,
) -> Wire:
    """Return a transport that has agreed on keys with the server, nothing of it believed yet.

    A server that hangs up before its first word (sshd's MaxStartups does that) is tried again.
    """
    for attempt in range(1, HANDSHAKE_TRIES + 1):
        sock = reach.stream(name, found, deadline)
        wire = Wire(sock, key_types=key_types, certificates_first=certificates,
                    kex=found.kex, ciphers=found.ciphers)  # fmt: skip
        agreed = threading.Event()
        wire.start_client(agreed)
        agreed.wait(deadline.left())
        if wire.is_active() and agreed.is_set():
            return wire
        error = wire.get_exception()
        wire.close()
        if deadline.over():
            raise faults.timed_out(name, deadline.seconds, "handshake") from error
        if not _worth_another(error) or attempt == HANDSHAKE_TRIES:
            raise _not_agreed(name, error) from error
        time.sleep(min(0.2 * attempt, deadline.left()))
    raise AssertionError


def _worth_another(error: Exception | None) -> bool:
    return isinstance(error, EOFError | OSError) or "banner" in str(error)


def _not_agreed(name: str, error: Exception | None) -> UnreachableError:
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return UnreachableError(
            "no-common-algorithm", str(error), where=name,
            hint="the server is very old, or KexAlgorithms or Ciphers in ssh_config leave nothing",
        )  # fmt: skip
    return faults.dropped(name, str(error) or type(error).__name__)


class SshChannel:
    """One command. Its shell's session is ended with it."""

    def __init__(self, connection: SshConnection, command: str, stdin: bytes | None) -> None:
        self._connection = connection
        self._name = connection.host.name
        try:
            self._session = connection.wire.start_session(
                "exec sh -c " + shlex.quote(WRAP + command), stdin
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise faults.lost(self._name, str(error) or "the session ended") from error

    @property
    def leads(self) -> bool:
        """Return whether its own shell leads the session, as far as that has said so."""
        return bool(self._session.leader)

    @property
    def over(self) -> bool:
        """Return whether it was refused, closed or lost."""
        return bool(self._session.closed)

    def give(self, command: str, stdin: bytes | None) -> Self:
        """Let a spare shell run a command line, with the input that a new one would get."""
        with self._connection.wire.together():
            self.send(f"{command}\n".encode("utf-8", "surrogateescape") + (stdin or b""))
            if stdin is not None:
                self.close_stdin()
        return self

    @property
    def taken(self) -> bool:
        """Return whether the server answered to it."""
        return self._session.answered.is_set()

    def opened(self, deadline: Deadline) -> Self:
        """Wait until the server took it. UnreachableError: it did not."""
        try:
            if not self._session.answered.wait(deadline.left()):
                raise faults.timed_out(self._name, deadline.seconds, "opening a session")
            self._check()
            if not self._connection.wire.is_active():
                raise self._connection.ended()
        except UnreachableError:
            self.drop()
            raise
        return self

    def _check(self) -> None:
        error = self._session.refusal
        if isinstance(error, paramiko.ChannelException):
            raise faults.no_more_sessions(self._name, error.text) from error

    def send(self, data: bytes) -> None:
        """Write all of it to the command's standard input."""
        sent = 0
        try:
            while sent < len(data):
                with contextlib.suppress(TimeoutError):  # the window is full; a reader may share us
                    sent += self._session.send(data[sent : sent + PIECE])
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise faults.lost(self._name, "the command took no more input") from error

    def recv(self, timeout: float) -> bytes:
        """Return output, b"" at its end."""
        self._session.settimeout(max(timeout, 0.001))
        chunk: bytes = self._session.recv(65536)
        return chunk

    def close_stdin(self) -> None:
        """Send the end of input."""
        if not self._session.active:
            return
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._session.shutdown_write()

    def feed(self, data: bytes, timeout: float | None = None) -> None:  # noqa: ARG002  see exchange
        """Write all of its input and end it."""
        self.send(data)
        self.close_stdin()

    def wait(self, timeout: float) -> int:
        """Return the exit status; a negative one when the session was lost."""
        if not self._session.status_event.wait(timeout):
            raise TimeoutError
        self._check()
        return int(self._session.exit_status)

    def stderr(self) -> bytes:
        """Return standard error so far."""
        return bytes(self._session.errors)

    def close(self) -> None:
        """End the input; what goes on for half a second after it gets SIGTERM, then SIGKILL."""
        if not self._session.closed:
            self.close_stdin()
            self._session.status_event.wait(GRACE_SECONDS)
        if not self._session.status_event.is_set():
            self.stop()
        self.drop()

    def drop(self) -> None:
        """Give the channel up and leave the command alone."""
        self._session.given_up = True
        self._session.close()
        self._connection.forget(self)

    def leave(self) -> None:
        """Give up a channel whose command has ended: the server closes it, and is answered by itself."""
        self._connection.forget(self)
        self._connection.last = self  # paramiko closes one that nobody holds: a message for nothing

    def stop(self) -> None:
        """Send every process of the command's session SIGTERM, and SIGKILL a second later."""
        if self._session.leader and self._connection.wire.is_active():
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                self._connection.stop_session(self._session.leader)


class SshConnection:
    """An authenticated session."""

    def __init__(self, host: Host, wire: Wire) -> None:
        self._host = host
        self.wire = wire
        self._open: set[SshChannel] = set()
        self.last: SshChannel | None = None
        self._spare = Spare(lambda: SshChannel(self, TEXT, None))

    @property
    def host(self) -> Host:
        """Return the host at the other end."""
        return self._host

    @property
    def place(self) -> tuple[str, int, str]:
        """Return address, port and user of the login."""
        found = settings(self._host)
        return found.address, found.port, found.user

    def open(self, command: str, timeout: float = 30.0) -> SshChannel:
        """Start a shell command line; ``timeout`` is seconds for the start."""
        return self._until_taken(lambda: self._start(command, None).opened(Deadline(timeout)))

    def _until_taken(self, start: Callable[[], T]) -> T:
        """Ask again when refused: the server counts a session until it has dealt with its end."""
        for pause in PAUSES:
            try:
                return start()
            except UnreachableError as error:
                if error.reference != "session-refused":
                    raise
            self._spare.end()
            time.sleep(pause)
        return start()

    def _start(self, command: str, stdin: bytes | None) -> SshChannel:
        spare = self._spare.take(command)
        channel = spare.give(command, stdin) if spare else SshChannel(self, command, stdin)
        self._open.add(channel)
        return channel

    def forget(self, channel: SshChannel) -> None:
        """Note that a channel is closed."""
        self._open.discard(channel)

    def exec(
        self,
        command: str,
        stdin: bytes = b"",
        timeout: float = 30.0,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a shell command line to its end and return what it left.

        Raises UnreachableError ``command-timeout`` (its processes are ended), ``connection-lost``;
        RemoteError ``sudo-password`` where a ``sudo -n`` in front is refused.
        """
        result = self._until_taken(lambda: self._exec(command, stdin, timeout, on_output))
        if result.rc < 0:
            raise self.ended()
        if command.startswith("sudo -n"):
            faults.check_sudo(result, self._host)
        return result

    def _exec(
        self, command: str, stdin: bytes, timeout: float, on_output: OnOutput | None
    ) -> Result:
        started = time.monotonic()
        whole = len(stdin) <= PIECE
        channel = self._start(command, stdin if whole else None)
        try:
            if not whole:
                channel.opened(Deadline(timeout))
            result = exchange(channel, None if whole else stdin, started, timeout, on_output)
        except TimeoutError as error:
            channel.stop()
            channel.drop()
            raise self._late(channel, timeout) from error
        except BaseException:
            channel.drop()
            raise
        channel.leave()
        with contextlib.suppress(UnreachableError):
            self._spare.keep(channel)
        return result

    def _late(self, channel: SshChannel, seconds: float) -> FleetError:
        if channel.taken:
            return faults.command_timeout(self._host.name, seconds)
        return faults.timed_out(self._host.name, seconds, "opening a session")

    def ended(self) -> FleetError:
        """Return the fault of a session that is gone."""
        if self.wire.is_active():
            return UnreachableError(
                "exec-refused", "the server closed the session without an exit status",
                where=self._host.name, hint="a forced command or a login shell may forbid commands",
            )  # fmt: skip
        return faults.lost(self._host.name, _words(self.wire.get_exception()))

    def stop_session(self, session: int) -> None:
        """End every process of a session of the host."""
        script = STOP.replace("SID", str(session))
        if self._host.become == "sudo" and self._host.user != "root":
            script = f"sudo -n sh -c {shlex.quote(script)} || {{ {script}; }}"
        ending = self.wire.start_session(f"exec sh -c {shlex.quote(script)}", b"")
        ending.status_event.wait(STOP_SECONDS)
        ending.close()

    def close(self) -> None:
        """End the session, and what still runs in it."""
        for channel in list(self._open):
            channel.stop()
        self.wire.close()


def _words(error: Exception | Any) -> str:
    return f"the session ended: {error}" if error and str(error) else "the session ended"
