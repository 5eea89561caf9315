"""What every command says of the patches on the hosts it touches, and of traceback lines inside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fleetctl.model.facts import HostFacts, PatchNote
from fleetctl.model.fleet import Profile


def remarks(target: str, notes: tuple[PatchNote, ...]) -> list[str]:
    """Return a line for each patch of a service: applied until when, expired, or orphaned."""
    lines = []
    for note in notes:
        if note.problem:
            lines.append(f"{target}: its patches cannot be read: {note.problem}")
            continue
        until = note.expires_at
        hint = f"fleetctl patch revert {note.name} {target}"
        if note.orphaned:
            lines.append(
                f"{target}: patch {note.name} of {note.by} is ORPHANED: {note.orphaned[0]} changed "
                f"since: {hint}, or push it again"
            )
        elif note.expired:
            lines.append(f"{target}: patch {note.name} of {note.by} EXPIRED at {until}: {hint}")
        else:
            lines.append(f"{target}: patch {note.name} of {note.by} is applied until {until}")
    return lines


def without_time(note: PatchNote) -> PatchNote:
    """Return a note that is equal for hosts that differ in the hour alone."""
    return replace(note, expires_at="", digest="", python="")


def with_time(note: PatchNote, expires_at: str) -> PatchNote:
    """Return the note with a time of its end."""
    return replace(note, expires_at=expires_at)


def notes_of(answer: Mapping[str, Any]) -> tuple[PatchNote, ...]:
    """Return the notes of an agent's answer that has ``patch_notes``."""
    from fleetctl.model.codec import decode

    return tuple(decode(PatchNote, n) for n in answer.get("patch_notes") or ())


def warn(target: str, notes: tuple[PatchNote, ...], say: Callable[[str], None]) -> None:
    """Say every remark, for instance with ``cli.show.note``."""
    for line in remarks(target, notes):
        say(f"note: {line}")


def undeclared(facts: HostFacts, profile: Profile) -> list[str]:
    """Return the patches that are applied and that the profile does not ask for, sorted."""
    return sorted(set(facts.patches) - set(profile.patches))
