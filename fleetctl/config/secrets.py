"""Secrets, fetched when they are applied and not before. Their values are in no repr, log or error."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.config.check import gathered, raise_all
from fleetctl.errors import ConfigError, FleetError
from fleetctl.model.fleet import Profile, SecretRef

COMMAND_SECONDS = 30.0
LIMIT = 64 * 1024  # bytes of one secret; a device or a wrong file has no end


@dataclass(frozen=True, slots=True)
class Secrets:
    """The values of a profile's secrets. The repr shows names only."""

    flags: dict[str, str] = field(default_factory=dict, repr=False)
    env: dict[str, str] = field(default_factory=dict, repr=False)

    def values(self) -> list[str]:
        """Return every value, for redaction."""
        return [*self.flags.values(), *self.env.values()]


def resolve_secrets(profile: Profile) -> Secrets:
    """Fetch every secret of a profile. Raises ConfigError, or ManyErrors for all that fail."""
    errors: list[FleetError] = []

    def fetch_all(kind: str, references: Mapping[str, SecretRef]) -> dict[str, str]:
        values: dict[str, str] = {}
        for name, reference in references.items():
            origin = profile.origins.get(f"secrets.{kind}.{name}")
            try:
                values[name] = fetch(reference)
            except ValueError as error:
                errors.append(
                    ConfigError(
                        "secret-missing",
                        f"{name}: {error}",
                        where=origin.where if origin else "",
                        hint=_HINTS[reference.kind],
                    )
                )
        return values

    found = Secrets(fetch_all("flags", profile.secret_flags), fetch_all("env", profile.secret_env))
    raise_all(errors)
    return found


def within_reach(profile: Profile) -> tuple[Secrets | None, str]:
    """Return the secrets for a plan that changes nothing, or None and why they cannot be had here.

    With them a plan tells which secret file would change, by the hash of the one that is there.
    """
    try:
        return resolve_secrets(profile), ""
    except FleetError as error:
        return None, "; ".join(one.message for one in gathered(error))


_HINTS = {
    "env": "export it in the shell that runs fleetctl",
    "file": "the path is one of this machine; ~ is your home",
    "command": "run it by hand to see what it says; it must print the secret alone",
}


def fetch(reference: SecretRef) -> str:
    """Return one secret, one line without its end. ValueError says why there is none."""
    value = _FETCH[reference.kind](reference.value)
    if not value:
        raise ValueError(f"{reference.kind} {reference.value} is empty")
    if any(c in value for c in "\0\n\r"):
        raise ValueError(f"{reference.kind} {reference.value} gives more than one line")
    return value


def _from_env(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"the variable {name} is not set")
    return os.environ[name]


def _from_file(path: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            return _text(file.read(LIMIT + 1), path).rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _text(data: bytes, source: str) -> str:
    if len(data) > LIMIT:
        raise ValueError(f"{source} gives more than {LIMIT // 1024} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{source} gives no UTF-8 text") from None


def _from_command(command: str) -> str:
    try:
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise ValueError(f"`{command}`: {error.strerror}") from None
    except IndexError:
        raise ValueError("the command is empty") from None
    with process:
        try:
            data = _printed(process, time.monotonic() + COMMAND_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise ValueError(f"`{command}` gave nothing in {COMMAND_SECONDS:g} s") from None
        finally:
            process.kill()
    if process.returncode and len(data) <= LIMIT:
        raise ValueError(f"`{command}` ended with status {process.returncode}")
    return _text(data, f"`{command}`").rstrip("\r\n")


def _printed(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return what a command prints until its end, or a byte more than a secret may have."""
    assert process.stdout is not None
    data = b""
    while len(data) <= LIMIT:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise TimeoutError
        piece = os.read(process.stdout.fileno(), LIMIT + 1 - len(data))
        if not piece:
            process.wait(max(0.0, deadline - time.monotonic()))
            break
        data += piece
    return data


_FETCH: dict[str, Callable[[str], str]] = {
    "env": _from_env,
    "file": _from_file,
    "command": _from_command,
}
