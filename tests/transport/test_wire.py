"""The socket below paramiko: pieces together, in order, never held back from other threads."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleetctl.transport import connect
from fleetctl.transport.quick import QuickSocket

Start = Callable[..., Any]


@pytest.fixture
def pair() -> Iterator[tuple[QuickSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    quick = QuickSocket(ours)
    yield quick, theirs
    quick.close()
    theirs.close()


def test_what_is_sent_together_comes_as_one_piece(pair: tuple[QuickSocket, socket.socket]) -> None:
    quick, theirs = pair
    with quick.together():
        quick.send(b"a")
        quick.send(b"b")
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(10)
        theirs.settimeout(5)
    assert theirs.recv(10) == b"ab"


def test_another_thread_s_piece_goes_at_once_and_keeps_the_order(
    pair: tuple[QuickSocket, socket.socket],
) -> None:
    quick, theirs = pair
    with quick.together():
        quick.send(b"1")
        other = threading.Thread(target=quick.send, args=(b"2",))
        other.start()
        other.join(5)
        assert theirs.recv(1) + theirs.recv(1) == b"12"
        quick.send(b"3")
    assert theirs.recv(10) == b"3"


def test_a_second_holder_holds_nothing_back(pair: tuple[QuickSocket, socket.socket]) -> None:
    quick, theirs = pair

    def second() -> None:
        with quick.together():
            quick.send(b"2")

    with quick.together():
        quick.send(b"1")
        other = threading.Thread(target=second)
        other.start()
        other.join(5)
        quick.send(b"3")
    assert b"".join(theirs.recv(1) for _ in range(3)) == b"123"


def test_what_was_read_ahead_is_given_out_in_portions(
    pair: tuple[QuickSocket, socket.socket],
) -> None:
    quick, theirs = pair
    theirs.sendall(b"abcdef")
    assert [quick.recv(2), quick.recv(3), quick.recv(9)] == [b"ab", b"cde", b"f"]


def test_closing_wakes_a_reader_up(pair: tuple[QuickSocket, socket.socket]) -> None:
    quick, _ = pair

    def read() -> None:
        with contextlib.suppress(OSError):  # closed before the read began
            quick.recv(1)

    reader = threading.Thread(target=read)
    reader.start()
    quick.close()
    reader.join(5)
    assert not reader.is_alive()


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_commands_go_on_while_new_keys_are_agreed_on(sshd: Start, side: str) -> None:
    made: Any = connect(sshd("RekeyLimit 1M" if side == "theirs" else "").host())
    if side == "ours":
        made.wire.packetizer.REKEY_BYTES = 1 << 20
    data = bytes(range(256)) * 2000
    for _ in range(12):
        assert made.exec("cat", data).stdout == data
        assert made.exec("echo small", b"x").stdout == b"small\n"
    made.close()
