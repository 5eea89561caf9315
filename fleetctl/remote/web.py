"""One HTTP request to the service on its own host, with a deadline over the whole exchange."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from typing import Any


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
        headers = {"Connection": "close", "User-Agent": "fleetctl"}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection(timeout)
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            text = self._read(response, limit, began + timeout)
            return Answer(response.status, text, time.monotonic() - began)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(None, b"", time.monotonic() - began, _reason(error))
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not self.tls:
            return http.client.HTTPConnection(self.address, self.port, timeout=timeout)
        # The certificate names the public host; this is the loopback of that very host.
        context = ssl._create_unverified_context()  # noqa: S323
        return http.client.HTTPSConnection(
            self.address, self.port, timeout=timeout, context=context
        )

    @staticmethod
    def _read(response: http.client.HTTPResponse, limit: int, deadline: float) -> bytes:
        parts, size = [], 0
        while size < limit:
            if time.monotonic() > deadline:
                raise socket.timeout("timed out")  # its name in Python 3.8
            chunk = response.read1(65536)
            if not chunk:
                break
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, socket.timeout):
        return "timeout"
    if isinstance(error, (ConnectionResetError, http.client.RemoteDisconnected)):
        return "reset"
    return type(error).__name__
