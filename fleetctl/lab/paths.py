"""Where the lab keeps things, and the locks around them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.config import places


def cache() -> Path:
    """Return the folder of things that can be built again: root file system, layers."""
    return places.cache() / "lab"


def labs() -> Path:
    """Return the folder of the labs of this computer; one for all users, as networks are too."""
    return Path(os.environ.get("FLEETCTL_LAB_STATE") or "/var/lib/fleetctl-lab")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file beside ``path``; waits for whoever has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
