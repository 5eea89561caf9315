"""Commands of the operator around a restart: take a server out of its router, and put it back."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

from fleetctl.errors import RefusedError
from fleetctl.model.fleet import Target
from fleetctl.remote.redact import redact

HOOK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Hooks:
    """Shell commands; an empty one does nothing."""

    drain: str = ""
    undrain: str = ""


def run(command: str, name: str, target: Target, state: str = "") -> None:
    """Run a hook here, with HOST, ADDRESS, PORT, SERVICE and STATE in its environment.

    STATE is empty before the restart, afterwards deploy's state (``ready``, ``failed-start`` …)
    or ``rolled-back``.
    Raises RefusedError ``drain-failed`` or ``undrain-failed`` with what it said.
    """
    if not command:
        return
    env = os.environ | {
        "HOST": target.host.name,
        "ADDRESS": target.host.address,
        "PORT": str(target.service.port),
        "SERVICE": target.service.name,
        "STATE": state,
    }
    try:
        done = subprocess.run(  # noqa: S602  the operator's own shell line
            command, shell=True, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=HOOK_SECONDS, start_new_session=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise _fault(name, target, f"no end after {HOOK_SECONDS:.0f} s", ()) from error
    if done.returncode:
        said = redact(done.stderr or done.stdout).splitlines()[-5:]
        raise _fault(name, target, f"exit status {done.returncode}", tuple(said))


def _fault(name: str, target: Target, why: str, said: tuple[str, ...]) -> RefusedError:
    return RefusedError(
        f"{name}-failed",
        f"the {name} command failed: {why}",
        where=str(target),
        hint=f"run it by hand with HOST={target.host.name} PORT={target.service.port}",
        context=said,
    )
