"""What a command says of the patches on the hosts it touched: on standard error, equal hosts at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fleetctl.cli import show

if TYPE_CHECKING:
    from fleetctl.model.facts import PatchNote


def of_host(
    name: str, found: Iterable[tuple[str, PatchNote]]
) -> list[tuple[str, tuple[PatchNote, ...]]]:
    """Return a host's notes, each with its service, as ``tell`` takes them."""
    return [(f"{name}/{service}", (note,)) for service, note in found]


def tell(found: Iterable[tuple[str, tuple[PatchNote, ...]]]) -> None:
    """Say every note of targets; those that differ in the hour alone are said once, the first to end."""
    seen = [(target, note) for target, notes in found for note in notes]
    if not seen:  # nearly always
        return
    from fleetctl.fleet.fold import fold, ranges
    from fleetctl.patching import active

    until: dict[PatchNote, str] = {}
    rows = []
    for target, note in seen:
        alike = active.without_time(note)
        until[alike] = min(until.get(alike, note.expires_at), note.expires_at)
        rows.append((target, alike))
    for alike, targets in fold(rows):
        active.warn(ranges(targets), (active.with_time(alike, until[alike]),), show.note)
