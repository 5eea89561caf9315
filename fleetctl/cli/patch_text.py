"""What ``fleetctl patch`` says of services to a person."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleetctl.cli import show

if TYPE_CHECKING:
    from fleetctl.model.fleet import Target


def pushed(target: Target, answer: dict[str, Any], restarted: bool) -> None:
    """Print what a push did on one service."""
    done = "pushed" if answer["changed"] else "was there already, its time begins anew"
    until = _clock(answer["expires_at"])
    show.out(
        f"{target}: {answer['patch']} {done} ({answer['rung']}, sglang {answer['version']}, "
        f"until {until})"
    )
    for file in answer["files"]:
        lines = ", ".join(f"{a['symbol']}:{a['line']}" for a in file["anchors"])
        show.out(f"  {file['path']}  {lines}  {file['original'][:12]} -> {file['patched'][:12]}")
        if file["links"] > 1:
            show.out(
                f"    {file['links']} names share these bytes (uv's cache?); the file was not written to"
            )
    for other in answer.get("others", []):
        show.note(f"  another copy of sglang lies at {other}; the unit does not use it")
    if not restarted and answer["active_state"] in ("active", "activating"):
        show.note(f"  not active yet: restart {target} (or push with --restart)")


def reverted(target: Target, answer: dict[str, Any]) -> None:
    """Print what a revert did on one service."""
    if answer["reverted"]:
        show.out(f"{target}: reverted {', '.join(answer['reverted'])}")
    if answer["absent"] or not answer["reverted"]:
        absent = ", ".join(answer["absent"])
        show.out(f"{target}: {f'not applied: {absent}' if absent else 'no patch is applied'}")
    for file in answer["files"]:
        show.out(f"  {file['path']}  {file['now']}  {file['original'][:12]}")


def status_lines(patches: list[dict[str, Any]]) -> list[str]:
    """Return the lines of each patch of a service; equal for services in the same state."""
    lines = []
    for one in patches:
        late = " EXPIRED" if one["expired"] else ""
        lines.append(
            f"{one['name']} {one['state']}{late} ({one['rung']}, {one['digest'][:12]}, by {one['by']}, "
            f"until {_clock(one['expires_at'])})"
        )
        if one["state"] != "active":
            lines.append(f"  {one['why_state']}")
        if one["result"]:
            count = f"{one['markers']} line{'s' if one['markers'] != 1 else ''}"
            lines.append(f"  {count}: {one['result']}")
        elif one["state"] == "active" and one["silent_means"]:
            lines.append(f"  silent so far; should it fail so: {one['silent_means']}")
    return lines


def _clock(text: str) -> str:
    """Return a time of the host as the clock here shows it."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
