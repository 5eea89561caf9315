"""Sessions over SSH: one login, any number of commands, a deadline over each exchange."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from typing import Any

from fleetctl.errors import FleetError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import auth, faults, reach, trust
from fleetctl.transport.base import STDERR_LIMIT, OnOutput, Result, exchange
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.lean import paramiko
from fleetctl.transport.sshconfig import Settings, settings
from fleetctl.transport.wire import KEEPALIVE_SECONDS, Wire

POLL_SECONDS = 0.1  # how often standard error is emptied while standard output is silent
SEND_SIZE = 32 * 1024
GRACE_SECONDS = 0.5
STOP_SECONDS = 3.0
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
        trust.check(host.name, found, entries, wire.get_remote_server_key())
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

    def __init__(
        self, connection: SshConnection, command: str, deadline: Deadline, *, no_input: bool = False
    ) -> None:
        self._connection = connection
        self._name = connection.host.name
        self._errors = bytearray()
        self._session: int | None = None
        self._said = bytearray()  # of standard error, until its first line is whole
        try:
            self._channel = connection.wire.open_session(timeout=deadline.left())
            with connection.wire.together():
                _start(self._channel, "exec sh -c " + shlex.quote(WRAP + command))
                if no_input:
                    self._channel.shutdown_write()
        except paramiko.ChannelException as error:
            raise UnreachableError(
                "session-refused", f"no more sessions: {error.text}", where=self._name,
                hint="MaxSessions in its sshd_config limits them",
            ) from error  # fmt: skip
        except (paramiko.SSHException, EOFError, OSError) as error:
            if deadline.over():
                raise faults.timed_out(self._name, deadline.seconds, "opening a session") from error
            raise faults.lost(self._name, str(error) or "the session ended") from error
        self._channel.settimeout(POLL_SECONDS)

    def send(self, data: bytes) -> None:
        """Write all of it to the command's standard input."""
        sent = 0
        try:
            while sent < len(data):
                with contextlib.suppress(TimeoutError):  # the window is full; a reader may share us
                    sent += self._channel.send(data[sent : sent + SEND_SIZE])
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise faults.lost(self._name, "the command took no more input") from error

    def recv(self, timeout: float) -> bytes:
        """Return output, b"" at its end."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            self._channel.settimeout(min(max(left, 0.001), POLL_SECONDS))
            try:
                chunk: bytes = self._channel.recv(65536)
            except TimeoutError:
                self._drain()
                if left <= POLL_SECONDS:
                    raise
                continue
            self._drain()
            return chunk

    def _drain(self) -> None:
        """Take what standard error holds: an unread one would stop the command in the end."""
        while self._channel.recv_stderr_ready() and (chunk := self._channel.recv_stderr(65536)):
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        if self._session is None:
            self._said += chunk
            first, newline, rest = bytes(self._said).partition(b"\n")
            if not newline:
                return
            # A forced command or an rc file may speak before our shell does.
            if first.isdigit():
                self._session, chunk = int(first), rest
            else:
                self._session, chunk = 0, bytes(self._said)
            self._said.clear()
        self._errors += chunk[: STDERR_LIMIT - len(self._errors)]

    def close_stdin(self) -> None:
        """Send the end of input."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def feed(self, data: bytes, timeout: float | None = None) -> None:
        """Write all of its input and end it, what is small in one piece."""
        if len(data) > SEND_SIZE:
            self.send(data)
            self.close_stdin()
            return
        if data:
            self._await_window(timeout)
        with self._connection.wire.together():
            if data:
                self.send(data)
            self.close_stdin()

    def _await_window(self, timeout: float | None) -> None:
        """Wait until the command takes input: nothing must be held back while the other end is due."""
        end = None if timeout is None else time.monotonic() + timeout
        channel = self._channel
        with channel.out_buffer_cv:
            while not channel.out_window_size and not channel.closed:
                channel.out_buffer_cv.wait(POLL_SECONDS)
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError

    def wait(self, timeout: float) -> int:
        """Return the exit status; a negative one when the session was lost."""
        end = time.monotonic() + timeout
        while not self._channel.status_event.wait(
            min(POLL_SECONDS, max(end - time.monotonic(), 0))
        ):
            self._drain()
            if time.monotonic() >= end:
                raise TimeoutError
        self._drain()
        return int(self._channel.exit_status)

    def stderr(self) -> bytes:
        """Return standard error so far."""
        self._drain()
        return bytes(self._errors)

    def close(self) -> None:
        """End the input; what goes on for half a second after it gets SIGTERM, then SIGKILL."""
        if not self._channel.closed:
            self.close_stdin()
            with contextlib.suppress(TimeoutError):
                self.wait(GRACE_SECONDS)
        if not self._channel.status_event.is_set():
            self.stop()
        self.drop()

    def drop(self) -> None:
        """Give the channel up and leave the command alone."""
        self._channel.close()
        self._connection.forget(self)

    def leave(self) -> None:
        """Give up a channel whose command has ended: the server closes it, and is answered by itself."""
        self._connection.forget(self)
        self._connection.last = self  # paramiko closes one that nobody holds: a message for nothing

    def stop(self) -> None:
        """Send every process of the command's session SIGTERM, and SIGKILL a second later."""
        self._drain()
        if self._session and self._connection.wire.is_active():
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                self._connection.stop_session(self._session)


def _start(channel: paramiko.Channel, command: str) -> None:
    """Ask for the command without waiting a round trip for the yes: a no closes the channel."""
    message = paramiko.Message()
    message.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exec")
    message.add_boolean(True)
    message.add_string(command)
    channel.get_transport()._send_user_message(message)  # type: ignore[attr-defined]


class SshConnection:
    """An authenticated session."""

    def __init__(self, host: Host, wire: Wire) -> None:
        self._host = host
        self.wire = wire
        self._open: set[SshChannel] = set()
        self.last: SshChannel | None = None

    @property
    def host(self) -> Host:
        """Return the host at the other end."""
        return self._host

    @property
    def place(self) -> tuple[str, int, str]:
        """Return address, port and user of the login."""
        found = settings(self._host)
        return found.address, found.port, found.user

    def open(self, command: str, timeout: float = 30.0, *, no_input: bool = False) -> SshChannel:
        """Start a shell command line; ``timeout`` is seconds for the start."""
        channel = SshChannel(self, command, Deadline(timeout), no_input=no_input)
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
        end = time.monotonic() + timeout
        channel = self.open(command, timeout, no_input=not stdin)
        try:
            result = exchange(channel, stdin, end, on_output)
        except TimeoutError as error:
            channel.stop()
            channel.drop()
            raise faults.command_timeout(self._host.name, timeout) from error
        except BaseException:
            channel.drop()
            raise
        channel.leave()
        if result.rc < 0:
            raise self._ended()
        if command.startswith("sudo -n"):
            faults.check_sudo(result, self._host)
        return result

    def _ended(self) -> FleetError:
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
        channel = self.wire.open_session(timeout=STOP_SECONDS)
        _start(channel, f"exec sh -c {shlex.quote(script)}")
        channel.status_event.wait(STOP_SECONDS)
        channel.close()

    def close(self) -> None:
        """End the session, and what still runs in it."""
        for channel in list(self._open):
            channel.stop()
        self.wire.close()


def _words(error: Exception | Any) -> str:
    return f"the session ended: {error}" if error and str(error) else "the session ended"
