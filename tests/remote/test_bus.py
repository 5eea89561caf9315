"""PID 1 asked over its private socket: what counts as an answer, and when systemctl has to be asked instead.

``cases/bus/getall-252.bin`` is what systemd 252 of a lab host answered for a replay's unit.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.remote import bus, unit

REAL = (Path(__file__).parent / "cases/bus/getall-252.bin").read_bytes()
NAME = "sglang-main.service"
Answer = Callable[[bytes], bytes]


def reply(body: bytes, kind: int = bus.RETURN) -> bytes:
    """A message with that body; its header's fields are of a length that needs padding."""
    fields = b"\x05\x01u\0" + struct.pack("<I", 1) + b"\x08\x01g\0\x05a{sv}\0"
    head = struct.pack("<cBBBIII", b"l", kind, 1, 1, len(body), 9, len(fields)) + fields
    return head + b"\0" * (-len(head) % 8) + body


@pytest.fixture
def pid1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Answer]]:
    """A stand-in for PID 1: each connection is answered by the next function of the list."""
    answers: list[Answer] = []
    path = str(tmp_path / "private")
    monkeypatch.setattr(bus, "SOCKET", path)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()
    over = threading.Event()

    def serve() -> None:
        while True:
            try:
                link, _ = door.accept()
            except OSError:
                return
            with link:
                assert link.recv(4096).startswith(b"\0AUTH EXTERNAL 30\r\n")
                link.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
                said = answers.pop(0)(link.recv(65536))
                link.sendall(said)
                if not said:
                    over.wait(5)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield answers
    over.set()
    door.shutdown(socket.SHUT_RDWR)
    door.close()
    thread.join(5)


def show(*names: str, timeout: float = 5.0) -> dict[str, str] | None:
    return bus.show(NAME, names or unit.PROPERTIES, timeout)


def test_a_real_answer_is_read_as_systemctl_words_it(pid1: list[Answer]) -> None:
    pid1.append(lambda _: reply(REAL))
    found = show()
    assert found is not None
    assert set(found) == set(unit.PROPERTIES)
    assert found["Id"] == NAME
    assert found["ActiveState"] == "active"
    assert found["NeedDaemonReload"] == "no"
    assert found["NRestarts"] == "0"
    assert found["Restart"] == "on-failure"
    assert found["DropInPaths"] == ""
    assert found["ControlGroup"] == f"/system.slice/{NAME}"
    assert len(found["InvocationID"]) == 32
    assert int(found["MainPID"]) > 1


def test_signals_in_front_of_the_answer_are_passed_over(pid1: list[Answer]) -> None:
    pid1.append(lambda _: reply(b"", kind=4) + reply(REAL))
    found = show("Result")
    assert found == {"Result": "success"}


def test_a_pid_1_that_does_not_answer_is_silent(pid1: list[Answer]) -> None:
    pid1.append(lambda _: b"")
    assert show(timeout=0.2) == {}


@pytest.mark.parametrize(
    "said",
    [
        reply(b"", kind=bus.ERROR),
        reply(REAL)[:500],
        reply(REAL[:500]),
        b"B" + reply(REAL)[1:],
        struct.pack("<cBBBIII", b"l", 2, 1, 1, 0xFFFFFFFF, 9, 0),
        reply(struct.pack("<I", 0)),
    ],
    ids=["error", "torn", "short body", "big-endian", "too long", "nothing in it"],
)
def test_what_is_no_whole_answer_is_left_to_systemctl(said: bytes, pid1: list[Answer]) -> None:
    pid1.append(lambda _: said)
    assert show() is None


@pytest.mark.usefixtures("pid1")
def test_other_properties_and_other_kinds_of_units_are_not_asked_for() -> None:
    assert show("Id", "MemoryCurrent") is None
    assert bus.show("fstrim.timer", ("ActiveState",), 1.0) is None


def test_without_the_socket_systemctl_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus, "SOCKET", str(tmp_path / "none"))
    assert show() is None
    assert bus.version() == ""
    assert not bus.reset_failed(NAME)


def test_nobody_but_root_asks(pid1: list[Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    pid1.append(lambda _: reply(REAL))
    assert show() is None
    assert pid1


def test_the_version_comes_as_a_variant(pid1: list[Answer]) -> None:
    pid1.append(lambda _: reply(b"\x01s\0\0" + struct.pack("<I", 6) + b"252.39\0"))
    assert bus.version() == "252.39"


def test_reset_failed_names_the_unit(pid1: list[Answer]) -> None:
    asked: list[bytes] = []

    def answer(message: bytes) -> bytes:
        asked.append(message)
        return reply(b"")

    pid1.append(answer)
    assert bus.reset_failed(NAME)
    assert b"ResetFailedUnit\0" in asked[0]
    assert NAME.encode() + b"\0" in asked[0]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sglang-main.service", "sglang_2dmain_2eservice"),
        ("9a.service", "_39a_2eservice"),
        ("a9@x\\x2d.service", "a9_40x_5cx2d_2eservice"),
        ("ä.service", "_c3_a4_2eservice"),
    ],
)
def test_a_unit_is_an_object(name: str, path: str) -> None:
    assert bus.object_path(name) == "/org/freedesktop/systemd1/unit/" + path
