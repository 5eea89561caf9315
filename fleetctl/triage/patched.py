"""A traceback from a patched file, with the lines of the original: what a person has open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleetctl.model.triage import Frame, Root
from fleetctl.remote import patch_lines


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
        for one in patches.get("patches") or ()
        if isinstance(one, dict)
    ]
    return {"patches": rows} if rows else {}


def _original(frame: Frame, patches: Mapping[str, Any]) -> Frame:
    if frame.line is None:
        return frame
    place = patch_lines.original(patches, frame.file, frame.line)
    return replace(frame, line=place.line) if place.patched else frame
