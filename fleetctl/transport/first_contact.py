"""First contact: what key does a machine show, and shall it be believed from now on?"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.errors import Exit, RefusedError
from fleetctl.model.fleet import Host
from fleetctl.transport import hostkeys, ssh, trust
from fleetctl.transport.deadline import Deadline
from fleetctl.transport.hostkeys import Entry
from fleetctl.transport.lean import paramiko
from fleetctl.transport.sshconfig import Settings, settings


@dataclass(frozen=True, slots=True)
class Shown:
    """The key that a machine shows, beside what known_hosts says of it."""

    host: Host
    settings: Settings
    key: paramiko.PKey
    known: tuple[Entry, ...]

    @property
    def kind(self) -> str:
        """Return the key's type, ``ssh-ed25519`` say."""
        return trust.key_name(self.key)

    @property
    def fingerprint(self) -> str:
        """Return ``SHA256:…`` as ssh-keygen prints it."""
        return hostkeys.fingerprint(self.key.get_base64())

    @property
    def state(self) -> str:
        """Return ``known``, ``new`` or ``changed``."""
        plain = [e for e in self.known if not e.marker]
        if any(e.key == self.key.get_base64() for e in plain):
            return "known"
        return "changed" if plain else "new"

    @property
    def file(self) -> str:
        """Return the known_hosts file that takes the key ("" where ssh_config names none)."""
        return next(iter(self.settings.user_known_hosts), "")


def look(host: Host, timeout: float = 10.0) -> Shown:
    """Ask a machine for its key, without logging in. Raises UnreachableError."""
    found = settings(host)
    entries = trust.known(found)
    wire = ssh.handshake(host.name, found, Deadline(timeout), key_types=trust.key_types(entries))
    try:
        return Shown(host, found, wire.get_remote_server_key(), tuple(entries))
    finally:
        wire.close()


def refuse(shown: Shown) -> None:
    """Raise RefusedError for a key that must not simply be believed: changed, or revoked."""
    if any(e.marker == "@revoked" and e.key == shown.key.get_base64() for e in shown.known):
        fault = trust.revoked(shown.host.name, shown.known[0])
    elif shown.state == "changed":
        plain = [e for e in shown.known if not e.marker]
        fault = trust.changed(shown.host.name, shown.settings, plain, shown.key)
    else:
        return
    raise RefusedError(
        fault.reference, fault.message, where=fault.where, hint=fault.hint,
        context=fault.context, exit_code=Exit.REFUSED,
    )  # fmt: skip


def believe(shown: Shown) -> str:
    """Write the key to known_hosts in one step and return the file. Raises as ``refuse`` does."""
    refuse(shown)
    if shown.state == "known":
        return shown.file
    if not shown.file:
        raise RefusedError(
            "no-known-hosts", "ssh_config sends its known hosts to /dev/null",
            where=shown.host.name, hint="set known_hosts: in the inventory",
        )  # fmt: skip
    return trust.record(shown.settings, shown.key)
