"""paramiko's transport on a socket that does not wait for acknowledgements.

Measured reasons for each of these are in docs/adr/0003: without TCP_NODELAY and TCP_QUICKACK a
session stalls twice for 40 ms, curve25519 with AES-GCM is the cheapest offer that OpenSSH takes, and
paramiko's handshake timer starts a thread for what the deadline does already.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.transport.lean import paramiko

QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux only
USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux only
SILENCE_MS = 30_000  # unacknowledged for that long: the connection is gone
KEEPALIVE_SECONDS = 10
READ_SIZE = 65536

GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
CIPHERS = (*GCM, "aes256-ctr", "aes192-ctr", "aes128-ctr")
KEX_FIRST = ("curve25519-sha256@libssh.org", "curve25519-sha256")


class QuickSocket:
    """A socket that reads ahead and asks the kernel to acknowledge at once after each read."""

    def __init__(self, sock: socket.socket, *, greeting: bool = False) -> None:
        self._sock = sock
        self._greeting = greeting  # the first piece waits for the second
        self._ahead = b""
        self._held = bytearray()
        self._holder: int | None = None  # the thread whose writes wait for each other
        self._lock = threading.Lock()
        self._tcp = sock.family in (socket.AF_INET, socket.AF_INET6)
        if self._tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if USER_TIMEOUT is not None:
                sock.setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT, SILENCE_MS)
            self._acknowledge()

    def _acknowledge(self) -> None:
        if self._tcp and QUICKACK is not None:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if not self._ahead:
            self._ahead = self._sock.recv(READ_SIZE)
            self._acknowledge()
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data

    def send(self, data: bytes) -> int:
        """Write what fits and return how much that was."""
        with self._lock:
            if self._greeting or self._holder == threading.get_ident():
                self._greeting = False
                self._held += data
                return len(data)
            if not self._held:
                return self._sock.send(data)
            self._held += data  # packets are numbered: what waits goes first
            self._flush()
            return len(data)

    def _flush(self) -> None:
        while self._held:
            with contextlib.suppress(TimeoutError):  # the socket has the transport's short one
                del self._held[: self._sock.send(self._held)]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Send what this thread writes in the block as one piece: each piece wakes the other end up.

        Other threads' packets do not wait: a new key may be agreed on meanwhile.
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
                    self._flush()

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of reads and writes."""
        self._sock.settimeout(seconds)

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


class _Packetizer(paramiko.packet.Packetizer):
    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread: the caller's deadline covers the handshake."""


class _EagerAuth(paramiko.auth_handler.AuthHandler):
    """Sends the login right behind the request for the login service: a round trip less.

    A server that has no such service hangs up, whether or not one waits for its word (RFC 4253, 10).
    """

    def _request_auth(self) -> None:
        accepted = paramiko.Message()
        accepted.add_string("ssh-userauth")
        accepted.rewind()
        with self.transport.together():  # type: ignore[attr-defined]  # a Wire
            super()._request_auth()  # type: ignore[misc]
            super()._parse_service_accept(accepted)  # type: ignore[misc]

    def _parse_service_accept(self, message: Any) -> None:
        """Pass over the server's yes: the login is under way."""


def _channel_request(channel: paramiko.Channel, message: Any) -> None:
    """Note how a command died; paramiko itself reads ``exit-status`` alone (RFC 4254, 6.10)."""
    kind = message.get_text()
    if kind != "exit-signal":
        message.rewind()
        message.get_int()  # the channel's number
        paramiko.Channel._handle_request(channel, message)  # type: ignore[attr-defined]
        return
    message.get_boolean()
    name = "SIG" + message.get_text()
    channel.exit_status = 128 + (signal.Signals[name] if name in signal.Signals.__members__ else 0)
    channel.status_event.set()


class Wire(paramiko.Transport):
    """A client transport with our order of algorithms."""

    _kex_info = {  # noqa: RUF012  paramiko's own shape
        **paramiko.Transport._kex_info,  # type: ignore[attr-defined]
        "curve25519-sha256": paramiko.Transport._kex_info["curve25519-sha256@libssh.org"],  # type: ignore[attr-defined]
    }
    _channel_handler_table = {  # noqa: RUF012  paramiko's own shape
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        paramiko.common.MSG_CHANNEL_REQUEST: _channel_request,
    }

    def __init__(
        self,
        sock: Any,
        *,
        key_types: Sequence[str] = (),
        certificates_first: bool = False,
        kex: Sequence[str] = (),
        ciphers: Sequence[str] = (),
    ) -> None:
        super().__init__(sock, packetizer_class=_Packetizer)
        self._certificates_first = certificates_first
        self._offered = False
        self._later: list[Any] = []
        self.partly_in = False  # a key was taken, and something else is wanted as well
        # The deadline ends each step; these are paramiko's own, shorter limits on the same steps.
        self.banner_timeout = self.auth_timeout = 3600.0
        options = self.get_security_options()
        options.kex = _ordered(kex, KEX_FIRST, options.kex, self._kex_info)
        options.ciphers = _ordered(ciphers, CIPHERS, (), self._cipher_info)  # type: ignore[attr-defined]
        options.key_types = _ordered((), key_types, options.key_types, self._key_info)  # type: ignore[attr-defined]

    def auth_publickey(
        self, username: str, key: paramiko.PKey, event: threading.Event | None = None
    ) -> list[str]:
        """Log in with a key; return what the server wants besides it."""
        answered = event or threading.Event()
        self.auth_handler = _EagerAuth(self)
        self.auth_handler.auth_publickey(username, key, answered)
        return list(self.auth_handler.wait_for_response(answered))

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Send the messages of the block as one piece, where the way is a socket."""
        sock = self.sock
        return sock.together() if isinstance(sock, QuickSocket) else contextlib.nullcontext()

    def _log(self, level: int, msg: object, *args: object) -> None:
        """Say nothing: faults come as exceptions, and formatting for nobody costs."""

    def _check_banner(self) -> None:
        """Offer our algorithms with our own greeting, not after the server's (RFC 4253, 4.2)."""
        super()._send_kex_init()  # type: ignore[misc]
        self._offered = True
        super()._check_banner()  # type: ignore[misc]

    def _send_kex_init(self) -> None:
        if self._offered:
            self._offered = False  # the one that was sent before
        else:
            super()._send_kex_init()  # type: ignore[misc]

    def _send_user_message(self, message: Any) -> None:
        """Keep what this very thread has to say until new keys are agreed on.

        paramiko would wait here for the agreement that only this thread can reach (a channel that
        the server closes meanwhile is answered from it): 30 s of silence, then a lost session.
        """
        if threading.current_thread() is self and not self.clear_to_send.is_set():
            self._later.append(message)
        else:
            super()._send_user_message(message)  # type: ignore[misc]

    def _parse_newkeys(self, message: Any) -> None:
        super()._parse_newkeys(message)  # type: ignore[misc]
        later, self._later = self._later, []
        for one in later:
            self._send_message(one)  # type: ignore[attr-defined]

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Return the host key algorithms to offer: certificates first where an authority is known."""
        offered = tuple(super().preferred_keys)
        if not self._certificates_first:
            return offered
        return tuple(sorted(offered, key=lambda name: "-cert-" not in name))


def _ordered(
    only: Sequence[str], first: Sequence[str], rest: Sequence[str], possible: Any
) -> tuple[str, ...]:
    """Return the user's own list where it names something possible, else ``first`` and the rest."""
    chosen = [n for n in only if n in possible]
    return tuple(chosen or dict.fromkeys(n for n in (*first, *rest) if n in possible))
