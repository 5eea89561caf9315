"""Who listens: asked of the kernel by netlink, read from /proc where that is not to be had."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.remote import procs, sockets


@pytest.fixture(params=["127.0.0.1", "::1"])
def door(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        made = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip("no such loopback here")
    with made:
        yield made


def inode(link: socket.socket) -> str:
    return str(Path(f"/proc/self/fd/{link.fileno()}").readlink()).partition("[")[2].rstrip("]")


def refused(*_: object) -> list[tuple[int, str]]:
    raise PermissionError(1, "netlink is filtered")


@pytest.mark.parametrize("netlink", [True, False])
def test_a_listening_socket_is_found_by_its_port(
    netlink: bool, door: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not netlink:
        monkeypatch.setattr(sockets, "_diagnosed", refused)
    assert (door.getsockname()[1], inode(door)) in sockets.listening()


def test_a_connection_is_no_listener(door: socket.socket) -> None:
    with socket.create_connection(door.getsockname()[:2]) as link:
        port = link.getsockname()[1]
        assert port not in {p for p, _ in sockets.listening()}


def test_the_holder_of_a_port_is_this_process(door: socket.socket) -> None:
    port = door.getsockname()[1]
    assert [(u["port"], u["pid"]) for u in procs.port_users([port])] == [(port, os.getpid())]
