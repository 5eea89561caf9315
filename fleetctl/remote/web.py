"""One HTTP request to the service on its own host, with a deadline over the whole exchange.

By hand: http.client and ssl cost a host more CPU to import than everything else that a watch loads.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

HEAD_LIMIT = 64 * 1024


class Answer:
    """What came back. ``status`` None: nothing did, and ``error`` says why."""

    def __init__(self, status: int | None, body: bytes, seconds: float, error: str = "") -> None:
        self.status = status
        self.body = body
        self.seconds = seconds
        self.error = error

    def json(self) -> dict[str, Any]:
        """Return the body as an object; empty when it is none."""
        try:
            value = json.loads(self.body.decode("utf-8", "replace"))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class NoAnswer(Exception):
    """The server said something that is no HTTP, or nothing at all; the text is the reason."""


class Server:
    """Where to ask."""

    def __init__(self, address: str, port: int, tls: bool = False, key: str = "") -> None:
        self.address = address
        self.port = port
        self.tls = tls
        self.key = key

    def ask(
        self, method: str, path: str, timeout: float, body: Any = None, limit: int = 1 << 20
    ) -> Answer:
        """Send one request. It never raises for what the server does."""
        began = time.monotonic()
        try:
            with self._connection(timeout) as link:
                link.sendall(self._request(method, path, body))
                status, text = _Reader(link, began + timeout, limit).answer()
            return Answer(status, text, time.monotonic() - began)
        except (OSError, NoAnswer, ValueError) as error:
            return Answer(None, b"", time.monotonic() - began, _reason(error))

    def _connection(self, timeout: float) -> socket.socket:
        link = socket.create_connection((self.address, self.port), timeout)
        if not self.tls:
            return link
        import ssl

        try:
            # The certificate names the public host; this is the loopback of that very host.
            context = ssl._create_unverified_context()  # noqa: S323
            return context.wrap_socket(link, server_hostname=self.address)
        except BaseException:
            link.close()
            raise

    def _request(self, method: str, path: str, body: Any) -> bytes:
        name = "[%s]" % self.address if ":" in self.address else self.address
        lines = [
            "%s %s HTTP/1.1" % (method, path), "Host: %s:%d" % (name, self.port),
            "Connection: close", "Accept-Encoding: identity", "User-Agent: fleetctl",
        ]  # fmt: skip
        if self.key:
            lines.append("Authorization: Bearer " + self.key)
        data = b""
        if body is not None:
            data = json.dumps(body).encode()
            lines += ["Content-Type: application/json", "Content-Length: %d" % len(data)]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header of several lines")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


class _Reader:
    """Reads one answer: RFC 9112, with what a server of our own time sends."""

    def __init__(self, link: socket.socket, deadline: float, limit: int) -> None:
        self._link = link
        self._deadline = deadline
        self._limit = limit
        self._buffer = b""

    def answer(self) -> tuple[int, bytes]:
        """Return status and body, at most ``limit`` bytes of it."""
        status = 100
        while 100 <= status < 200:
            status, headers = self._head()
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return status, self._chunks()
        length = headers.get("content-length", "")
        if status in (204, 304):
            return status, b""
        return status, self._body(int(length) if length.isdigit() else self._limit)

    def _head(self) -> tuple[int, dict[str, str]]:
        first = self._line()
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            raise NoAnswer("BadStatusLine")
        headers = {}
        line = self._line()
        while line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
            line = self._line()
        return int(words[1]), headers

    def _line(self) -> str:
        while b"\n" not in self._buffer:
            if len(self._buffer) > HEAD_LIMIT:
                raise NoAnswer("LineTooLong")
            if not self._more():
                raise NoAnswer("BadStatusLine" if self._buffer else "reset")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r").decode("latin-1")

    def _body(self, count: int) -> bytes:
        wanted = min(count, self._limit)
        while len(self._buffer) < wanted and self._more():
            pass
        found, self._buffer = self._buffer[:wanted], self._buffer[wanted:]
        return found

    def _chunks(self) -> bytes:
        found = b""
        while True:
            size = int(self._line().partition(";")[0].strip() or "0", 16)
            found += self._body(size)
            if size == 0 or len(found) >= self._limit:
                return found[: self._limit]
            self._line()

    def _more(self) -> bool:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")  # its name in Python 3.8
        self._link.settimeout(left)
        got = self._link.recv(65536)
        self._buffer += got
        return bool(got)


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.timeout):
        return "timeout"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(error, NoAnswer):
        return str(error)
    return type(error).__name__
