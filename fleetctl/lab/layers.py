"""The layers above the root file system: what each engine adds, built once and shared by all hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetctl.lab import base
from fleetctl.lab.spec import HostSpec

Say = Callable[[str], None]


def ensure(host: HostSpec, say: Say) -> list[Path]:
    """Return the read-only layers of a host, topmost first, building those that are missing."""
    return [base.ensure(say)]


def customise(host: HostSpec, root: Path) -> None:
    """Put into a host's own tree what only this host has."""
