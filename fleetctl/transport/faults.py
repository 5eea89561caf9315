"""Faults of a session with a host: each way to fail has its own reference and its own next step."""

from __future__ import annotations

import errno
import socket
from typing import NoReturn

from fleetctl.errors import FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Host
from fleetctl.transport.base import Result

NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN}


def timed_out(where: str, seconds: float, step: str) -> UnreachableError:
    """Return the fault of a host that does not answer; ``step`` is what was waited for."""
    return UnreachableError(
        "unreachable-timeout",
        f"no answer within {seconds:g} s ({step})",
        where=where,
        hint="is the host up, and does a firewall drop the packets? "
        "`fleetctl run --connect-timeout` waits longer",
    )


def name_unknown(where: str, name: str, reason: str) -> UnreachableError:
    """Return the fault of an address that no resolver knows."""
    return UnreachableError(
        "name-unknown",
        f"cannot resolve {name!r}: {reason}",
        where=where,
        hint="set address: in the inventory, or HostName in ssh_config",
    )


def refused(where: str, address: str) -> UnreachableError:
    """Return the fault of a port that nobody listens on."""
    return UnreachableError(
        "connection-refused",
        f"{address} refuses connections",
        where=where,
        hint="is sshd running there, and is it this port?",
    )


def dropped(where: str, reason: str) -> UnreachableError:
    """Return the fault of a server that hangs up before it says who it is."""
    return UnreachableError(
        "connection-dropped",
        f"the server hung up during the handshake: {reason}",
        where=where,
        hint="sshd may be over its MaxStartups or still starting; its own log says why",
    )


def no_more_sessions(where: str, reason: str) -> UnreachableError:
    """Return the fault of a server that is logged in to and opens no further session."""
    return UnreachableError(
        "session-refused",
        f"no more sessions: {reason}",
        where=where,
        hint="MaxSessions in its sshd_config limits them",
    )


def lost(where: str, reason: str = "the session ended") -> UnreachableError:
    """Return the fault of a session that was there and is gone."""
    return UnreachableError(
        "connection-lost", reason, where=where,
        hint="what ran there may have gone on or not; look before you repeat it",
    )  # fmt: skip


def command_timeout(where: str, seconds: float) -> UnreachableError:
    """Return the fault of a command that was ended because its time was over."""
    return UnreachableError(
        "command-timeout",
        f"no end after {seconds:g} s; its processes were told to stop",
        where=where,
        hint="a larger --timeout waits longer",
    )


def auth_failed(where: str, user: str, tried: list[str], hint: str = "") -> UnreachableError:
    """Return the fault of a server that takes none of our keys."""
    what = ", ".join(tried) if tried else "nothing: no key, no agent"
    return UnreachableError(
        "auth-failed",
        f"{user} was not let in (tried {what})",
        where=where,
        hint=hint or "set user: and key: in the inventory, or load the key with ssh-add",
    )


def jump_failed(where: str, jump: str, cause: FleetError) -> UnreachableError:
    """Return the fault of a host that was not tried because the way to it is broken."""
    return UnreachableError(
        "jump-failed",
        f"cannot go through {jump}: {cause.message}",
        where=where,
        hint=cause.hint,
        context=(f"{cause.reference} at {cause.where}",),
    )


def from_os(error: OSError, where: str, address: str, seconds: float) -> UnreachableError:
    """Return the fault for what the socket said."""
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return timed_out(where, seconds, f"connecting to {address}")
    if isinstance(error, ConnectionRefusedError):
        return refused(where, address)
    if isinstance(error, socket.gaierror):
        return name_unknown(where, address, error.strerror or str(error))
    if error.errno in NO_ROUTE:
        return UnreachableError(
            "no-route", f"no route to {address}: {error.strerror}", where=where,
            hint="check the address and the network between here and there",
        )  # fmt: skip
    if isinstance(error, ConnectionError):
        return dropped(where, error.strerror or str(error))
    return UnreachableError("connection-failed", f"{address}: {error}", where=where)


def sudo_said_no(stderr: bytes) -> bool:
    """Return whether ``sudo -n`` asks for a password it cannot get."""
    head = stderr[:4096]
    return b"sudo:" in head and any(
        word in head for word in (b"password is required", b"terminal is required", b"a tty")
    )


def check_sudo(result: Result, host: Host) -> None:
    """Raise RemoteError ``sudo-password`` when sudo did not let the command start."""
    if result.rc == 1 and sudo_said_no(result.stderr):
        raise_sudo(host)


def raise_sudo(host: Host) -> NoReturn:
    """Raise the fault of a sudo that wants a password."""
    raise RemoteError(
        "sudo-password",
        "sudo needs a password there",
        where=host.name,
        hint=f"allow it without one for {host.user or 'this user'}, or connect as root",
    )
