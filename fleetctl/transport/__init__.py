"""The only room that opens connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleetctl.model.fleet import Host

if TYPE_CHECKING:
    from fleetctl.transport.base import Connection

CONNECT_SECONDS = 10.0


def connect(host: Host, timeout: float = CONNECT_SECONDS, *, ask: bool = False) -> Connection:
    """Return a session with a host, by ssh or here (``transport: local``).

    ``timeout`` is seconds for the whole way in. ``ask``: the host's own questions (a password, a
    second factor) may go to the terminal. Raises UnreachableError, whose reference says why:
    ``unreachable-timeout``, ``connection-refused``, ``name-unknown``, ``no-route``, ``auth-failed``,
    ``host-key-unknown``, ``host-key-changed``, ``jump-failed`` …
    """
    if host.transport == "local":
        from fleetctl.transport.local import LocalConnection

        return LocalConnection(host)
    from fleetctl.transport import ssh

    return ssh.connect(host, timeout, ask=ask)


def load(hosts: Iterable[Host]) -> None:
    """Import what connecting to these needs: a little faster while no other thread runs."""
    if any(host.transport != "local" for host in hosts):
        from fleetctl.transport import ssh  # noqa: F401
