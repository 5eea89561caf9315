"""One command's channel.

paramiko's own thread starts it, feeds it and takes what it says on standard error: so nobody is woken up
between asking for a session and the command's output.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from fleetctl.transport.base import STDERR_LIMIT
from fleetctl.transport.lean import paramiko

WINDOW = 2 * 1024 * 1024
PACKET = 32 * 1024
PIECE = 32_000  # of input: fits one packet of every server that takes paramiko's


class Session(paramiko.Channel):
    """A channel of kind ``session`` that runs one command as soon as it is open.

    ``stdin``: what it gets, in one piece; None leaves that to ``send``.
    ``answered`` is set when the server took or refused it, ``refusal`` then says why.
    """

    def __init__(self, number: int, wire: Any, command: str, stdin: bytes | None) -> None:
        super().__init__(number)
        self._command = command
        self._input = stdin
        self.answered = threading.Event()
        self.refusal: Exception | None = None
        self.given_up = False
        self.errors = bytearray()
        self.leader: int | None = (
            None  # the process that leads the command's session, once it said so
        )
        self._said = bytearray()  # of standard error, until its first line is whole
        self._set_transport(wire)  # type: ignore[attr-defined]
        self._set_window(WINDOW, PACKET)  # type: ignore[attr-defined]

    def _log(self, level: int, msg: str, *args: object) -> None:
        """Say nothing: faults come as exceptions."""

    def request(self) -> paramiko.Message:
        """Return the message that asks for it (RFC 4254, 6.1)."""
        message = _message(paramiko.common.cMSG_CHANNEL_OPEN)
        message.add_string("session")
        for number in (self.chanid, WINDOW, PACKET):
            message.add_int(number)
        return message

    def begin(self) -> None:
        """Start the command, without waiting for the yes: a no closes the channel."""
        if self.given_up:
            self.close()
            return
        message = self._to_it(paramiko.common.cMSG_CHANNEL_REQUEST)
        message.add_string("exec")
        message.add_boolean(True)
        message.add_string(self._command.encode("utf-8", "surrogateescape"))  # as argv came
        with self._wire.together():
            self._wire._send_user_message(message)
            self._feed_it()

    def refuse(self, reason: Exception | None) -> None:
        """Note why the server gives no session."""
        self.refusal = reason
        with self.lock:
            self._set_closed()  # type: ignore[attr-defined]

    @property
    def _wire(self) -> Any:
        return self.transport

    def _to_it(self, kind: bytes) -> paramiko.Message:
        message = _message(kind)
        message.add_int(self.remote_chanid)
        return message

    def _feed_it(self) -> None:
        """Send the input when the window takes all of it, and its end."""
        data = self._input
        if data is None or len(data) > min(self.out_window_size, self.out_max_packet_size - 64):
            return
        self._input = None
        with self._wire.together():
            if data:
                with contextlib.suppress(OSError):
                    self.send(data)
            self.shutdown_write()

    def _window_adjust(self, message: Any) -> None:
        super()._window_adjust(message)  # type: ignore[misc]
        self._feed_it()

    def _feed_extended(self, message: Any) -> None:
        """Take what the command says on standard error: an unread one would stop it in the end."""
        message.get_int()
        chunk = message.get_binary()
        self._take(chunk)
        more = self._check_add_window(len(chunk))  # type: ignore[attr-defined]
        if more:
            answer = self._to_it(paramiko.common.cMSG_CHANNEL_WINDOW_ADJUST)
            answer.add_int(more)
            self._wire._send_user_message(answer)

    def _take(self, chunk: bytes) -> None:
        if self.leader is None:
            self._said += chunk
            first, newline, rest = bytes(self._said).partition(b"\n")
            if not newline:
                return
            # A forced command or an rc file may speak before our shell does.
            if first.isdigit():
                self.leader, chunk = int(first), rest
            else:
                self.leader, chunk = 0, bytes(self._said)
            self._said.clear()
        self.errors += chunk[: STDERR_LIMIT - len(self.errors)]

    def _handle_close(self, message: Any) -> None:
        """Answer with the next piece: nobody waits for the answer."""
        with self._wire.together(later=True):
            super()._handle_close(message)  # type: ignore[misc]


def _message(kind: bytes) -> paramiko.Message:
    message = paramiko.Message()
    message.add_byte(kind)
    return message
