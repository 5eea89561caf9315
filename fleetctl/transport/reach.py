"""The way to a server's port: TCP, a ProxyCommand, or through other hosts."""

from __future__ import annotations

import atexit
import contextlib
import socket
import threading
import time
from dataclasses import replace
from typing import Any

from fleetctl.errors import FleetError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport import faults
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.lean import paramiko
from fleetctl.transport.quick import CommandSocket, QuickSocket
from fleetctl.transport.sshconfig import Settings, settings
from fleetctl.transport.wire import Wire


def stream(name: str, found: Settings, deadline: Deadline) -> Any:
    """Return a connected socket-like object. Raises UnreachableError with the reason."""
    if found.jumps:
        return _through(name, found, deadline)
    if found.proxy:
        return CommandSocket(found.proxy)
    return QuickSocket(_connect(name, found, deadline), greeting=True)


def _connect(name: str, found: Settings, deadline: Deadline) -> socket.socket:
    place = f"{found.address}:{found.port}"
    failure: OSError | None = None
    addresses = _resolve(name, found.address, found.port, deadline)
    for left, (family, kind, protocol, _, address) in zip(
        range(len(addresses), 0, -1), addresses, strict=True
    ):
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(deadline.left() / left)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    assert failure is not None
    raise faults.from_os(failure, name, place, deadline.seconds) from failure


def _resolve(name: str, address: str, port: int, deadline: Deadline) -> list[Any]:
    """Look an address up; a resolver that hangs does not hold the deadline up."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(address, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(deadline.left())
    if not found:
        raise faults.timed_out(name, deadline.seconds, f"resolving {address}")
    if isinstance(found[0], OSError):
        reason = found[0].strerror or str(found[0])
        raise faults.name_unknown(name, address, reason) from found[0]
    return found


SAME_FAILURE_SECONDS = 5.0  # who waited for the same jump host need not try it again
Way = tuple[tuple[str | None, str, int | None], ...]


class _Jumps:
    """Sessions with jump hosts: one for each way, shared by all hosts behind it, open until the end.

    So a bastion is logged in to once, and its second factor is asked for once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[Way, threading.Lock] = {}
        self._wires: dict[Way, Wire] = {}
        self._failures: dict[Way, tuple[float, FleetError]] = {}

    def get(self, jumps: tuple[Host, ...], deadline: Deadline) -> Wire:
        way = tuple((host.user, host.address, host.port) for host in jumps)
        with self._lock:
            gate = self._gates.setdefault(way, threading.Lock())
        with deadline.paused(), gate:  # the first one's time is the others' as well
            wire = self._wires.get(way)
            if wire is not None and wire.is_active():
                return wire
            when, failure = self._failures.get(way, (0.0, None))
            if failure is not None and time.monotonic() - when < SAME_FAILURE_SECONDS:
                raise failure
            try:
                wire = self._wires[way] = self._log_in(jumps, Deadline(deadline.seconds))
            except FleetError as error:
                self._failures[way] = (time.monotonic(), error)
                raise
            return wire

    @staticmethod
    def _log_in(jumps: tuple[Host, ...], deadline: Deadline) -> Wire:
        from fleetctl.transport.ssh import log_in

        found = settings(jumps[-1])
        if len(jumps) > 1:
            found = replace(found, jumps=jumps[:-1], proxy_command=None)
        return log_in(jumps[-1], found, deadline, ask=True)

    def close(self) -> None:
        with self._lock:
            wires, self._wires = self._wires, {}
            self._failures.clear()
        for wire in wires.values():
            wire.close()


_jumps = _Jumps()
close_jumps = _jumps.close
atexit.register(close_jumps)


def _through(name: str, found: Settings, deadline: Deadline) -> Any:
    jump = found.jumps[-1].name
    try:
        wire = _jumps.get(found.jumps, deadline)
    except FleetError as error:
        raise faults.jump_failed(name, jump, error) from error
    try:
        return wire.open_channel(
            "direct-tcpip", (found.address, found.port), ("127.0.0.1", 0), timeout=deadline.left()
        )
    except paramiko.ChannelException as error:
        raise _not_beyond(name, jump, found, error) from error
    except (paramiko.SSHException, EOFError, OSError) as error:
        if deadline.over():
            step = f"{jump} opening the way to {found.address}"
            raise faults.timed_out(name, deadline.seconds, step) from error
        raise faults.jump_failed(
            name, jump, faults.lost(jump, str(error) or "the session ended")
        ) from error


def _not_beyond(
    name: str, jump: str, found: Settings, error: paramiko.ChannelException
) -> FleetError:
    """Name what the jump host says of the way beyond it (RFC 4254, 5.1)."""
    if error.code == 1:
        forbidden = FleetError("forwarding-forbidden", "it allows no forwarding", where=jump)
        forbidden.hint = "AllowTcpForwarding and PermitOpen in its sshd_config decide that"
        return faults.jump_failed(name, jump, forbidden)
    return UnreachableError(
        "unreachable-from-jump",
        f"{jump} cannot connect to {found.address}:{found.port}: {error.text}",
        where=name,
        hint="is the host up, does sshd run there, and does its name resolve on the jump host?",
    )
