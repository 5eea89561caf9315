"""PID 1 asked directly, over its private socket: a unit's properties, and two calls that answer at once.

``systemctl`` asks the same there, but as a program it costs a host 8 ms of CPU each time, and a deploy
looks at its unit ten times. GetAll's answer is of one moment. What takes its time (a reload, a restart)
and all that goes wrong is for systemctl, which knows the words.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any, Iterable

SOCKET = "/run/systemd/private"  # root alone may connect, with or without a D-Bus daemon
LIMIT = 16 * 1024 * 1024
RETURN, ERROR = 2, 3  # types of messages

# Which interface has a property; what is not here is for systemctl.
UNIT = frozenset({
    "Id", "LoadState", "ActiveState", "SubState", "InvocationID", "NeedDaemonReload", "FragmentPath",
    "UnitFileState", "DropInPaths", "ActiveEnterTimestampMonotonic", "InactiveEnterTimestampMonotonic",
})  # fmt: skip
SERVICE = frozenset({
    "Result", "MainPID", "ExecMainPID", "ExecMainCode", "ExecMainStatus",
    "ExecMainStartTimestampMonotonic", "NRestarts", "ControlGroup", "Restart", "User", "StandardOutput",
})  # fmt: skip


PROPERTIES = "org.freedesktop.DBus.Properties"
MANAGER = "/org/freedesktop/systemd1"
MANAGER_NAME = "org.freedesktop.systemd1"


class NotSaid(Exception):
    """PID 1 cannot be asked this way, or answers something else; systemctl will know."""


FAULTS = (OSError, NotSaid, struct.error, ValueError, IndexError)


def show(unit: str, names: Iterable[str], timeout: float) -> dict[str, str] | None:
    """Return properties as ``systemctl show`` words them; empty when PID 1 does not answer in time.

    None where systemctl has to be asked: another user than root, no such socket, other properties.
    """
    wanted = set(names)
    if not wanted <= UNIT | SERVICE or not unit.endswith(".service"):
        return None
    interface = MANAGER_NAME + ".Unit" if wanted <= UNIT else ""
    try:
        body = _call(object_path(unit), PROPERTIES, "GetAll", interface, timeout=timeout)
        found = Body(body).properties(wanted)
    except socket.timeout:  # its name in Python 3.8
        return {}
    except FAULTS:
        return None
    return found if wanted <= set(found) else None


def version(timeout: float = 10.0) -> str:
    """Return what PID 1 says of its version, "" where systemctl has to be asked."""
    try:
        body = _call(
            MANAGER, PROPERTIES, "Get", MANAGER_NAME + ".Manager", "Version", timeout=timeout
        )
        return Body(body).variant()
    except FAULTS:
        return ""


def reset_failed(unit: str, timeout: float = 10.0) -> bool:
    """Forget the failed state and the start counter; return whether PID 1 said that it did."""
    try:
        _call(MANAGER, MANAGER_NAME + ".Manager", "ResetFailedUnit", unit, timeout=timeout)
    except FAULTS:
        return False
    return True


def object_path(unit: str) -> str:
    """Return the object that is a unit: every byte that is no letter or digit as ``_`` and its number."""
    plain = [
        chr(b) if chr(b).isalnum() and b < 128 and (at or not chr(b).isdigit()) else "_%02x" % b
        for at, b in enumerate(unit.encode())
    ]
    return "/org/freedesktop/systemd1/unit/" + "".join(plain)


# --- messages ---


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _padded(data: bytes, to: int = 8) -> bytes:
    return data + b"\0" * (-len(data) % to)


def _message(path: str, interface: str, member: str, arguments: tuple[str, ...]) -> bytes:
    """Return a method call whose arguments are strings."""
    body = b""
    for one in arguments:
        body = _padded(body, 4) + _text(one)
    fields = b""
    for code, kind, value in ((1, b"o", path), (2, b"s", interface), (3, b"s", member)):
        fields = _padded(fields) + struct.pack("<BB", code, 1) + kind + b"\0" + _text(value)
    signature = b"s" * len(arguments)
    fields = _padded(fields) + b"\x08\x01g\0" + bytes([len(signature)]) + signature + b"\0"
    head = struct.pack("<cBBBIII", b"l", 1, 0, 1, len(body), 1, len(fields))
    return _padded(head + fields) + body


def _call(path: str, interface: str, member: str, *arguments: str, timeout: float) -> bytes:
    """Return the body of the answer to one call. Raises one of ``FAULTS``."""
    if os.geteuid() != 0:
        raise NotSaid("not root")
    kind, body = _ask(_message(path, interface, member, arguments), timeout)
    if kind != RETURN:
        raise NotSaid("an error")
    return body


def _ask(message: bytes, timeout: float) -> tuple[int, bytes]:
    """Return type and body of the answer to one call."""
    link = _Link(timeout)
    try:
        user = str(os.geteuid()).encode().hex().encode()
        link.send(b"\0AUTH EXTERNAL " + user + b"\r\nBEGIN\r\n")
        if not link.line().startswith(b"OK "):
            raise NotSaid("no log-in")
        link.send(message)
        while True:
            head = link.take(16)
            if head[:1] != b"l":
                raise NotSaid("another byte order")
            kind, (size, _, fields) = head[1], struct.unpack("<III", head[4:])
            if size + fields > LIMIT:
                raise NotSaid("too long")
            body = link.take(fields + (-fields % 8) + size)[fields + (-fields % 8) :]
            if kind in (RETURN, ERROR):  # signals are for others
                return kind, body
    finally:
        link.close()


class _Link:
    """The socket, with a deadline over the whole exchange."""

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(SOCKET)
        except BaseException:
            self._socket.close()
            raise

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def _more(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self._socket.settimeout(left)
        got = self._socket.recv(65536)
        if not got or len(self._buffer) > 2 * LIMIT:
            raise NotSaid("hung up")
        self._buffer += got

    def close(self) -> None:
        self._socket.close()


# --- values ---

_FIXED = {
    "y": "<B", "b": "<I", "n": "<h", "q": "<H", "i": "<i", "u": "<I", "x": "<q", "t": "<Q", "d": "<d",
}  # fmt: skip


class Body:
    """A message's body, little-endian, read from its front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def properties(self, wanted: set[str]) -> dict[str, str]:
        """Return those of an ``a{sv}``; the others are passed over."""
        found = {}
        end = self._number("u")
        self._align(8)
        end += self._at
        while self._at < end:
            self._align(8)
            name = self._string()
            kind = self._signature()
            if name in wanted:
                found[name] = _worded(kind, self._value(kind))
            else:
                self._skip(kind)
        return found

    def variant(self) -> str:
        """Return a value that comes with its type."""
        kind = self._signature()
        return _worded(kind, self._value(kind))

    def _align(self, to: int) -> None:
        self._at += -self._at % to

    def _number(self, kind: str) -> Any:
        form = _FIXED[kind]
        size = struct.calcsize(form)
        self._align(size)
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return value

    def _string(self) -> str:
        size = self._number("u")
        found = self._data[self._at : self._at + size]
        self._at += size + 1
        return found.decode("utf-8", "replace")

    def _signature(self) -> str:
        size = self._data[self._at]
        found = self._data[self._at + 1 : self._at + 1 + size]
        self._at += size + 2
        return found.decode("ascii")

    def _value(self, kind: str) -> Any:
        if kind in _FIXED:
            return self._number(kind)
        if kind in ("s", "o"):
            return self._string()
        if kind in ("ay", "as"):
            end = self._number("u") + self._at
            if kind == "ay":
                found = self._data[self._at : end]
                self._at = end
                return found
            strings = []
            while self._at < end:
                strings.append(self._string())
            return strings
        raise NotSaid("a property of the type " + kind)

    def _skip(self, kind: str) -> None:
        """Pass over one value of each type in ``kind``."""
        while kind:
            first, kind = kind[0], kind[1:]
            if first in _FIXED:
                self._number(first)
            elif first in "so":
                self._string()
            elif first == "g":
                self._signature()
            elif first == "v":
                self._skip(self._signature())
            elif first == "a":
                element = _first(kind)
                kind = kind[len(element) :]
                size = self._number("u")
                self._align(8 if element[0] in "xtd({" else 1)
                self._at += size
            elif first == "(":
                inner = _first(first + kind)
                self._align(8)
                self._skip(inner[1:-1])
                kind = kind[len(inner) - 1 :]
            else:
                raise NotSaid("the type " + first)


def _first(kind: str) -> str:
    """Return the first complete type of a signature."""
    at = depth = 0
    while True:
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(kind[at], 0)
        at += 1
        if depth == 0 and kind[at - 1] != "a":
            return kind[:at]


def _worded(kind: str, value: Any) -> str:
    if kind == "b":
        return "yes" if value else "no"
    if kind == "ay":
        return str(value.hex())
    return " ".join(value) if kind == "as" else str(value)
