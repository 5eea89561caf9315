"""The socket below paramiko: pieces together, in order, never held back from other threads."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fleetctl.errors import UnreachableError
from fleetctl.transport import connect
from fleetctl.transport.packets import Packetizer
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


def test_what_nobody_waits_for_goes_in_front_of_the_next_piece(
    pair: tuple[QuickSocket, socket.socket],
) -> None:
    quick, theirs = pair
    with quick.together(later=True):
        quick.send(b"1")
        quick.send(b"2")
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(10)
    theirs.settimeout(5)
    quick.send(b"3")
    assert theirs.recv(10) == b"123"


def test_a_read_looks_up_after_a_while_and_goes_on(
    pair: tuple[QuickSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, theirs = pair
    monkeypatch.setattr("fleetctl.transport.quick.WAKE_SECONDS", 1)
    quick.settimeout(0.1)
    with pytest.raises(TimeoutError):
        quick.recv(1)
    theirs.sendall(b"a")
    assert quick.recv(1) == b"a"


@pytest.fixture
def ciphered(
    pair: tuple[QuickSocket, socket.socket],
) -> tuple[Packetizer, Any]:
    """Our reading end and paramiko's writing end, under AES-GCM."""
    quick, theirs = pair
    engine, iv = AESGCM(bytes(16)), bytes(11) + b"\xff"  # the counter carries at once
    reader = Packetizer(quick)
    writer: Any = paramiko.packet.Packetizer(theirs)
    reader.set_inbound_cipher(engine, 16, None, 16, None, aead=True, iv_in=iv)
    writer.set_outbound_cipher(engine, 16, None, 16, None, aead=True, iv_out=iv)
    return reader, writer


def message(text: bytes) -> paramiko.Message:
    made = paramiko.Message()
    made.add_byte(b"\x5e")
    made.add_string(text)
    return made


def test_packets_are_read_as_paramiko_writes_them(
    ciphered: tuple[Packetizer, Any],
) -> None:
    reader, writer = ciphered
    texts = [b"", b"a", os.urandom(16), os.urandom(70_000)]
    for text in texts:
        writer.send_message(message(text))
    read = [reader.read_message() for _ in texts]
    assert [(kind, m.seqno, m.get_string()) for kind, m in read] == [
        (0x5E, number, text) for number, text in enumerate(texts)
    ]


def test_a_packet_that_was_changed_is_never_handed_on(
    ciphered: tuple[Packetizer, Any], pair: tuple[QuickSocket, socket.socket]
) -> None:
    reader, writer = ciphered
    _, theirs = pair
    kept = bytearray()
    writer.write_all = kept.extend
    writer.send_message(message(b"reboot"))
    kept[9] ^= 1
    theirs.sendall(kept)
    with pytest.raises(InvalidTag):
        reader.read_message()


def test_a_length_that_no_server_sends_is_refused(
    ciphered: tuple[Packetizer, Any], pair: tuple[QuickSocket, socket.socket]
) -> None:
    pair[1].sendall(b"\xff" * 64)
    with pytest.raises(paramiko.SSHException, match="4294967295 bytes"):
        ciphered[0].read_message()


def test_new_keys_are_wanted_in_time_and_a_server_that_gives_none_is_left(
    ciphered: tuple[Packetizer, Any],
) -> None:
    reader, writer = ciphered
    reader.REKEY_BYTES, reader.REKEY_BYTES_OVERFLOW_MAX = 150, 200
    for _ in range(6):
        writer.send_message(message(b"x" * 60))
    wanted = []
    for _ in range(3):
        reader.read_message()
        wanted.append(reader.need_rekey())
    assert wanted == [False, True, True]
    with pytest.raises(paramiko.SSHException, match="ignoring"):
        reader.read_message()


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


def test_a_session_that_the_server_refuses_is_told_and_the_connection_stays(sshd: Start) -> None:
    made: Any = connect(sshd("MaxSessions 1").host())
    channel = made.open("read line; echo got $line")
    for ask in (made.exec, made.open):
        with pytest.raises(UnreachableError) as caught:
            ask("true")
        assert caught.value.reference == "session-refused"
    channel.send(b"it\n")
    assert channel.recv(10) == b"got it\n"
    channel.close()
    for _ in range(5):
        assert made.exec("echo one at a time").stdout == b"one at a time\n"
    made.close()


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
