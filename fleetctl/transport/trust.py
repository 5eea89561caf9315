"""The check of a server's key against known_hosts, before anything else is said to it."""

from __future__ import annotations

import base64
import fnmatch
import time
from collections.abc import Sequence

from fleetctl.errors import UnreachableError
from fleetctl.transport import hostkeys
from fleetctl.transport.hostkeys import Entry
from fleetctl.transport.lean import paramiko
from fleetctl.transport.sshconfig import Settings

RSA = ("rsa-sha2-512", "rsa-sha2-256")


def known(settings: Settings) -> list[Entry]:
    """Return the lines of all known_hosts files for a machine."""
    return hostkeys.lookup(
        settings.known_as, (*settings.user_known_hosts, *settings.global_known_hosts)
    )


def key_types(entries: Sequence[Entry]) -> list[str]:
    """Return the algorithms of the keys that are known, to be asked for first."""
    kinds = dict.fromkeys(e.kind for e in entries if not e.marker)
    return [a for k in kinds for a in (RSA if k == "ssh-rsa" else (k,))]


def check(
    name: str, settings: Settings, entries: Sequence[Entry], key: paramiko.PKey, shown: str
) -> None:
    """Return when the key is the known one; else raise UnreachableError and say what was found.

    ``shown`` is the key in base64, without a certificate around it.
    References: ``host-key-unknown``, ``host-key-changed``, ``host-key-revoked``.
    """
    authority = _authority(key, settings)
    for entry in entries:
        if entry.marker == "@revoked" and entry.key in (shown, authority):
            raise revoked(name, entry)
    if any(e.marker == "@cert-authority" and e.key == authority for e in entries):
        return
    plain = [e for e in entries if not e.marker]
    if any(e.key == shown for e in plain):
        return
    if plain:
        raise changed(name, settings, plain, key)
    if settings.strict in ("no", "accept-new"):
        record(settings, key)
        return
    raise UnreachableError(
        "host-key-unknown",
        f"{settings.known_as} is not in known_hosts; it shows {key_name(key)} "
        f"{hostkeys.fingerprint(shown)}",
        where=name,
        hint=f"compare the fingerprint, then: fleetctl hosts trust {name}",
    )


def record(settings: Settings, key: paramiko.PKey) -> str:
    """Write the key to the first of the person's known_hosts files; return that file ("" for none)."""
    if not settings.user_known_hosts:
        return ""
    path = settings.user_known_hosts[0]
    line = f"{settings.known_as} {key_name(key)} {key.get_base64()}"
    hostkeys.add(path, line)
    return path


def key_name(key: paramiko.PKey) -> str:
    """Return the plain type of a key, of a certificate too."""
    return key.get_name().removesuffix("-cert-v01@openssh.com")


def changed(
    name: str, settings: Settings, plain: Sequence[Entry], key: paramiko.PKey
) -> UnreachableError:
    """Return the fault of a machine that shows another key than before."""
    before = [f"known: {e.kind} {hostkeys.fingerprint(e.key)} ({e.where})" for e in plain]
    return UnreachableError(
        "host-key-changed",
        f"{settings.known_as} shows another key than before: it was installed anew, or this is not it",
        where=name,
        context=(*before, f"shown: {key_name(key)} {hostkeys.fingerprint(key.get_base64())}"),
        hint=f"if it was installed anew: ssh-keygen -R '{settings.known_as}' "
        f"-f {plain[0].where.rpartition(':')[0]}, then fleetctl hosts trust {name}",
    )


def revoked(name: str, entry: Entry) -> UnreachableError:
    """Return the fault of a machine whose key is marked as not to be believed."""
    return UnreachableError(
        "host-key-revoked",
        f"its key is marked as revoked in {entry.where}",
        where=name,
        hint="do not connect; ask who revoked it",
    )


def _authority(key: paramiko.PKey, settings: Settings) -> str | None:
    """Return the base64 key of the authority that vouches for this host now, or None.

    The rules are those of PROTOCOL.certkeys: a host certificate, in its time, for this name, with
    no critical option (none is defined for hosts), signed by the key that it names.
    """
    blob = getattr(key, "public_blob", None)
    if blob is None:
        return None
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization as s

    text = f"{blob.key_type} {base64.b64encode(blob.key_blob).decode()}"
    try:
        certificate = s.load_ssh_public_identity(text.encode())
        if not isinstance(certificate, s.SSHCertificate):
            return None
        certificate.verify_cert_signature()
    except (ValueError, InvalidSignature):
        return None
    name = (settings.host_key_name or settings.address).lower().encode()
    fits = (
        certificate.type == s.SSHCertificateType.HOST
        and certificate.valid_after <= time.time() < certificate.valid_before
        and not certificate.critical_options
        and any(fnmatch.fnmatchcase(name, p) for p in certificate.valid_principals)
    )
    if not fits:
        return None
    signer = certificate.signature_key()
    public = signer.public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
    return public.split()[1].decode()
