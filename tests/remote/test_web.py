"""What counts as an answer of a server, on the wire, whatever way it marks its end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fleetctl.remote import web

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def serving(*parts: bytes, hold: bool = False) -> Iterator[tuple[web.Server, list[bytes]]]:
    """A server that sends these bytes to whoever asks; with ``hold`` it does not hang up."""
    heard: list[bytes] = []
    over = threading.Event()

    def serve(door: socket.socket) -> None:
        link, _ = door.accept()
        with link:
            heard.append(link.recv(65536))
            for part in parts:
                link.sendall(part)
            if hold:
                over.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve, args=(door,), daemon=True)
        thread.start()
        yield web.Server("127.0.0.1", door.getsockname()[1], key="k-1"), heard
        over.set()
        thread.join(10)


@pytest.mark.parametrize(
    ("parts", "status", "body"),
    [
        ((OK, b"Content-Length: 3\r\n\r\nabc",), 200, b"abc"),
        ((OK, b"\r\nto the end",), 200, b"to the end"),
        ((OK, b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",), 200, b"abcde"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", OK, b"content-length:1\r\n\r\nz",), 200, b"z"),
        ((b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",), 503, b""),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), 204, b""),
        ((b"HTTP/1.0 200\n\nbare",), 200, b"bare"),
        ((OK, b"Content-Length: 9\r\n\r\ncut",), 200, b"cut"),
    ],
)  # fmt: skip
def test_every_way_to_mark_an_end(parts: tuple[bytes, ...], status: int, body: bytes) -> None:
    with serving(*parts) as (server, _):
        answer = server.ask("GET", "/health", 5.0)
    assert (answer.status, answer.body, answer.error) == (status, body, "")


def test_an_answer_that_is_complete_is_not_waited_for() -> None:
    with serving(OK + b"Content-Length: 2\r\n\r\nok", hold=True) as (server, _):
        assert server.ask("GET", "/health", 5.0).body == b"ok"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", "reset"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine"),
        (b"HTTP/1.1 twohundred\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, "LineTooLong"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "ValueError"),
    ],
)
def test_what_is_no_http_is_no_answer(sent: bytes, error: str) -> None:
    with serving(sent) as (server, _):
        answer = server.ask("GET", "/health", 5.0)
    assert (answer.status, answer.error) == (None, error)


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    assert web.Server("127.0.0.1", port).ask("GET", "/", 5.0).error == "refused"


def test_the_deadline_is_for_the_whole_exchange() -> None:
    with serving(OK, b"Content-Length: 9\r\n\r\n123", hold=True) as (server, _):
        assert server.ask("GET", "/health", 0.3).error == "timeout"


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_no_more_than_the_limit_is_read(head: bytes) -> None:
    body = b"x" * 5000 if not head else b"1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n"
    with serving(OK + head + b"\r\n" + body) as (server, _):
        assert server.ask("GET", "/", 5.0, limit=1000).body == b"x" * 1000


def test_the_request_names_the_host_the_key_and_the_length_of_its_body() -> None:
    with serving(OK + b"Content-Length: 0\r\n\r\n") as (server, heard):
        server.ask("POST", "/generate", 5.0, {"text": "é"})
    head, _, body = heard[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /generate HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert "Authorization: Bearer k-1" in lines
    assert f"Content-Length: {len(body)}" in lines
    assert body == b'{"text": "\\u00e9"}'


def test_a_path_cannot_bring_a_header_along() -> None:
    answer = web.Server("127.0.0.1", 1).ask("GET", "/x HTTP/1.1\r\nX: y", 5.0)
    assert answer.status is None
