"""Patches that a profile asks for, put there by a deploy before it starts the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.errors import RefusedError
from fleetctl.model.facts import PatchNote
from fleetctl.model.fleet import Profile, Target
from fleetctl.patching import catalog, hosts, snippets
from fleetctl.patching.hosts import Call, Wish
from fleetctl.patching.model import Patch


def asked(
    profile: Profile, names: Sequence[str], site: Path | None
) -> tuple[Profile, tuple[Patch, ...]]:
    """Return the profile with more patches, and all of its patches, loaded.

    Raises UsageError ``unknown-patch`` or what is wrong with a patch's folder.
    """
    whole = tuple(dict.fromkeys((*profile.patches, *names)))
    return replace(profile, patches=whole), tuple(catalog.find(n, site) for n in whole)


def digests(patches: Sequence[Patch], version: str | None, where: str) -> dict[str, str]:
    """Return name → digest of what each patch does on a version.

    Raises RefusedError ``no-version`` or ``version-not-meant``.
    """
    found = {}
    for patch in patches:
        if not version:
            raise RefusedError(
                "no-version", f"{patch.name} needs to know which sglang is there", where=where
            )
        if not snippets.allows(patch.sglang, version):
            raise RefusedError(
                "version-not-meant",
                f"sglang {version} is there, {patch.name} is for {patch.sglang}",
                where=where,
            )
        found[patch.name] = snippets.render(patch, version).digest()
    return found


def push_missing(
    call: Call,
    target: Target,
    patches: Sequence[Patch],
    applied: Sequence[PatchNote],
    wish: Wish,
    version: str,
) -> list[dict[str, Any]]:
    """Push the patches that are not ``applied`` as they should be; return what changed.

    ``wish.python`` names the profile's interpreter: the unit may not be there yet. What one patch
    cannot do takes back those that this call has pushed. Raises the host's faults.
    """
    wanted = digests(patches, version, str(target))
    there = {n.name: n.digest for n in applied if not n.orphaned and n.python == wish.python}
    done: list[dict[str, Any]] = []
    for patch in patches:
        if there.get(patch.name) == wanted[patch.name]:
            continue
        try:
            done.append(hosts.push(call, target, patch, wish, planned=True))
        except BaseException:
            take_back(call, target, done, wish)
            raise
    return done


def take_back(call: Call, target: Target, done: Sequence[dict[str, Any]], wish: Wish) -> None:
    """Revert what a deploy has pushed, after it failed before the service was touched."""
    names = [one["patch"] for one in done if one["changed"]]
    if names:
        hosts.revert(call, target, names, replace(wish, restart=False))
