"""paramiko's transport with our order of algorithms, fewer pieces and fewer wake-ups.

Measured reasons for each of these are in docs/adr/0003.
"""

from __future__ import annotations

import binascii
import contextlib
import functools
import signal
import threading
from collections.abc import Sequence
from typing import Any

from fleetctl.transport.lean import paramiko
from fleetctl.transport.packets import Packetizer
from fleetctl.transport.quick import QuickSocket
from fleetctl.transport.session import Session

KEEPALIVE_SECONDS = 10

GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
CIPHERS = (*GCM, "aes256-ctr", "aes192-ctr", "aes128-ctr")
KEX_FIRST = ("ecdh-sha2-nistp256", "curve25519-sha256@libssh.org", "curve25519-sha256")


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

    def wait_for_response(self, event: threading.Event) -> list[str]:
        """Wait for the server's word; paramiko alone would look ten times a second."""
        if self.transport.is_active():
            event.wait(self.transport.auth_timeout)
        return list(super().wait_for_response(event))


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
        paramiko.common.MSG_CHANNEL_WINDOW_ADJUST: lambda channel, m: channel._window_adjust(m),
        paramiko.common.MSG_CHANNEL_EXTENDED_DATA: lambda channel, m: channel._feed_extended(m),
        paramiko.common.MSG_CHANNEL_CLOSE: lambda channel, m: channel._handle_close(m),
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
        super().__init__(sock, packetizer_class=Packetizer)
        self._certificates_first = certificates_first
        self._offered = False
        self._later: list[Any] = []
        self.shown = ""  # the server's key in base64
        self.partly_in = False  # a key was taken, and something else is wanted as well
        # The deadline ends each step; these are paramiko's own, shorter limits on the same steps.
        self.banner_timeout = self.auth_timeout = 3600.0
        self._preferred_kex, self._preferred_ciphers, self._preferred_keys = _orders(
            tuple(kex), tuple(ciphers), tuple(key_types)
        )

    def auth_publickey(
        self, username: str, key: paramiko.PKey, event: threading.Event | None = None
    ) -> list[str]:
        """Log in with a key; return what the server wants besides it."""
        answered = event or threading.Event()
        self.auth_handler = _EagerAuth(self)
        self.auth_handler.auth_publickey(username, key, answered)
        return list(self.auth_handler.wait_for_response(answered))

    def together(self, *, later: bool = False) -> contextlib.AbstractContextManager[None]:
        """Send the messages of the block as one piece, where the way is a socket.

        ``later``: in front of the next piece.
        """
        sock = self.sock
        return (
            sock.together(later=later)
            if isinstance(sock, QuickSocket)
            else contextlib.nullcontext()
        )

    def start_session(self, command: str, stdin: bytes | None = None) -> Session:
        """Ask for a session that runs a command. SSHException when the connection is gone.

        ``stdin`` is all of its input; None: the caller sends it, when the session is open.
        """
        with self.lock:
            number = self._next_channel()  # type: ignore[attr-defined]
            session = Session(number, self, command, stdin)
            self._channels.put(number, session)  # type: ignore[attr-defined]
            self.channel_events[number] = session.answered
            self.channels_seen[number] = True
        self._send_user_message(session.request())
        if not self.is_active():
            raise self.get_exception() or paramiko.SSHException("the session ended")
        return session

    def _parse_channel_open_success(self, message: Any) -> None:
        super()._parse_channel_open_success(message)  # type: ignore[misc]
        message.rewind()
        channel = self._channels.get(message.get_int())  # type: ignore[attr-defined]
        if isinstance(channel, Session):
            channel.begin()

    def _parse_channel_open_failure(self, message: Any) -> None:
        channel = self._channels.get(message.get_int())  # type: ignore[attr-defined]
        message.rewind()
        super()._parse_channel_open_failure(message)  # type: ignore[misc]
        if isinstance(channel, Session):
            channel.refuse(self.saved_exception)
            self.saved_exception = None

    def _activate_outbound(self) -> None:
        """Send word of the first new keys with what is said under them: the login."""
        with self.together(later=not self.initial_kex_done):
            super()._activate_outbound()  # type: ignore[misc]

    def _filter_algorithm(self, kind: str) -> tuple[str, ...]:
        """Return our order as it is: nothing is disabled besides."""
        return tuple(getattr(self, f"_preferred_{kind}"))

    def _verify_key(self, host_key: bytes, signature: bytes) -> None:
        super()._verify_key(host_key, signature)  # type: ignore[misc]
        key: Any = self.host_key
        blob = host_key if key.public_blob is None else key.asbytes()  # a certificate is around it
        self.shown = binascii.b2a_base64(blob, newline=False).decode()

    def _parse_debug(self, message: Any) -> None:
        """Pass over what sshd has to say to somebody who debugs it."""

    def _add_K(self, message: Any) -> None:  # noqa: N802  paramiko's name
        """Write the shared secret down (RFC 4251, 5), without paramiko's loop over its bytes."""
        secret: Any = self.K
        if isinstance(secret, int):
            secret = secret.to_bytes(secret.bit_length() // 8 + 1, "big")
        message.add_string(secret)

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


@functools.cache
def _orders(
    kex: tuple[str, ...], ciphers: tuple[str, ...], key_types: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Return what to offer, of each kind, the wanted ones first."""
    known: Any = paramiko.Transport
    return (
        _ordered(kex, KEX_FIRST, known._preferred_kex, Wire._kex_info),
        _ordered(ciphers, CIPHERS, (), known._cipher_info),
        _ordered((), key_types, known._preferred_keys, known._key_info),
    )


def _ordered(
    only: Sequence[str], first: Sequence[str], rest: Sequence[str], possible: Any
) -> tuple[str, ...]:
    """Return the user's own list where it names something possible, else ``first`` and the rest."""
    chosen = [n for n in only if n in possible]
    return tuple(chosen or dict.fromkeys(n for n in (*first, *rest) if n in possible))
