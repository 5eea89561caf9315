"""A traceback from a patched file, with the lines of the original: what a person has open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleetctl.model.triage import Advice, Frame, Root
from fleetctl.remote import patch_lines, patch_marker
from fleetctl.remote.patch_marker import Marker


def at_original_lines(root: Root | None, patches: Mapping[str, Any]) -> Root | None:
    """Return the root whose frames name lines of the original files.

    ``patches`` is patches.json of a bundle. A frame inside a patch's own code has no line there.
    """
    if root is None or not patches.get("files"):
        return root
    return replace(root, frames=tuple(_original(f, patches) for f in root.frames))


def told(patches: Mapping[str, Any]) -> dict[str, Any]:
    """Return what goes into ``captured``: each patch of the launch, and what it or its silence says."""
    rows = [
        {k: one.get(k) for k in ("name", "state", "markers", "result")}
        | ({"parameters": one["parameters"]} if one.get("parameters") else {})
        for one in patches.get("patches") or ()
        if isinstance(one, dict)
    ]
    return {"patches": rows} if rows else {}


def findings(captured: Mapping[str, Any]) -> list[str]:
    """Return a line for what each patch found, or for what its silence means; from ``captured``."""
    last = {m["patch"]: m for m in captured.get("patch_markers") or ()}
    lines = [f"{name}: {patch_marker.said(marker)}" for name, marker in last.items()]
    return lines + [
        f"{one['name']}: {'' if one.get('markers') else 'silent: '}{one['result']}"
        for one in captured.get("patches") or ()
        if one["name"] not in last and one.get("result")
    ]


def still_open(advice: Iterable[Advice], markers: Iterable[Marker]) -> tuple[Advice, ...]:
    """Return the advice without a push of a patch that has spoken already."""
    spoken = {f"patch push {m.patch}" for m in markers}
    return tuple(a for a in advice if not any(s in (a.command or "") for s in spoken))


def _original(frame: Frame, patches: Mapping[str, Any]) -> Frame:
    if frame.line is None:
        return frame
    place = patch_lines.original(patches, frame.file, frame.line)
    return replace(frame, line=place.line) if place.patched else frame
