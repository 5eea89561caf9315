"""Patches in a bisect: those that every trial has, those in which the ends differ, and what they said.

A trial gets them as overlays of its own unit. The service that makes room keeps its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError, RefusedError, UsageError
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Profile
from fleetctl.patching import active, catalog, deploying
from fleetctl.patching.model import Patch, Rung


def shared(
    good: Profile, bad: Profile, names: Sequence[str], had: Mapping[str, str] | None, site: Path | None
) -> tuple[Profile, Profile, dict[str, Patch]]:  # fmt: skip
    """Return both ends with ``names`` in each, and every patch that a trial may push, by name.

    ``had``: what the good end ran with, where it is an earlier launch; one that is gone from the site
    is no fault. Raises UsageError ``unknown-patch`` for any other.
    """
    good, bad = (replace(p, patches=_joined(p.patches, names)) for p in (good, bad))
    found = {n: _overlay(catalog.find(n, site)) for n in _needed(good, bad, names, had)}
    for name in good.patches:
        if name not in found:
            with contextlib.suppress(FleetError):
                found[name] = _overlay(catalog.find(name, site))
    return good, bad, found


def _joined(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for part in names for n in part))


def _needed(
    good: Profile, bad: Profile, names: Sequence[str], had: Mapping[str, str] | None
) -> tuple[str, ...]:
    return _joined(bad.patches, names, () if had is not None else good.patches)


def _overlay(patch: Patch) -> Patch:
    """Return a patch as trials push it: the files are the serving unit's as well."""
    return replace(patch, rung=Rung.OVERLAY) if patch.rung is Rung.EDIT else patch


def digests(
    patches: Mapping[str, Patch], needed: Iterable[str], version: str | None, where: str
) -> dict[str, str]:
    """Return what each patch does on a version, by its hash.

    Raises RefusedError for one that is ``needed`` and not meant for that version; others are left out.
    """
    must = set(needed)
    found: dict[str, str] = {}
    for name, patch in patches.items():
        try:
            found |= deploying.digests([patch], version, where)
        except RefusedError:
            if name in must:
                raise
    return found


def had_by_good(
    good: Profile, names: Sequence[str], had: Mapping[str, str] | None, known: Mapping[str, str]
) -> tuple[Profile, dict[str, str]]:
    """Return the good end with the patches that a trial can have, and the hashes of all it ran with.

    ``names`` are in every trial as they are now, whatever the good end ran with.
    """
    ran = {n: known[n] for n in good.patches if n in known}
    ran |= {n: digest for n, digest in (had or {}).items() if n not in names}
    can = tuple(n for n in good.patches if n in known and ran.get(n) == known[n])
    return replace(good, patches=can), ran


def notes(facts: HostFacts, target: str, names: Iterable[str]) -> list[str]:
    """Return what to know beforehand of the patches that the service itself has."""
    found = active.remarks(target, facts.patch_notes)
    for note in facts.patch_notes:
        if note.problem or note.name in set(names):
            continue
        if note.rung == Rung.EDIT:
            found.append(f"{note.name} is in the files themselves: the trials have it as well")
        else:
            found.append(f"trials run without {note.name}; --patch {note.name} gives it to each")
    return found


def check_resumed(
    bisect: str, options: Mapping[str, Any], names: Sequence[str], known: Mapping[str, str]
) -> None:
    """Raise where a bisect cannot go on with the patches that its launches had.

    UsageError ``other-patches``: others are asked for. RefusedError ``patches-changed``.
    """
    before: Mapping[str, str] = options.get("patches") or {}
    if names and set(names) != set(before):
        raise UsageError(
            "other-patches",
            f"{bisect} runs with {', '.join(before) or 'no patch'}, not with {', '.join(names)}",
            hint="its launches would not compare: start a new bisect",
        )
    changed = [n for n, digest in before.items() if known.get(n) != digest]
    if changed:
        raise RefusedError(
            "patches-changed",
            f"{', '.join(changed)} would do something else now than in the launches of {bisect}",
            hint="put the patch back, or start a new bisect",
        )


# --- what they said ---


def said(
    result: Mapping[str, Any], status: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """Return each patch of a trial: ``name``, ``state``, ``markers``, ``result``, ``capture``.

    From the triage of a launch that failed, else from ``status``: what the host said while it ran.
    """
    captured = (result.get("triage") or {}).get("captured") or {}
    last = {m.get("patch"): m for m in captured.get("patch_markers") or ()}
    rows = [dict(r, last=last.get(r.get("name"))) for r in captured.get("patches") or ()]
    if not rows:
        rows = [dict(r, last=(r.get("last_markers") or [None])[-1]) for r in status]
    return tuple(
        {
            "name": r.get("name"), "state": r.get("state"), "markers": r.get("markers") or 0,
            "result": r.get("result"),
            "capture": {k: v for k, v in (r["last"] or {}).items() if k != "patch"} or None,
        }
        for r in rows
    )  # fmt: skip
