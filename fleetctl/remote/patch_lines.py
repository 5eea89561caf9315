"""Lines of tracebacks from patched files, shown as the lines of the original files.

``patches`` is patches.json of an evidence bundle (``fleetctl.patches/1``), which holds the line maps.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from fleetctl.remote import patch_files


class Place(NamedTuple):
    """Where a line of a patched file comes from. ``line`` is None inside a patch's own code."""

    line: int | None
    patched: bool  # whether the file had patches in that invocation


def original(patches: Mapping[str, Any] | None, file: str, line: int) -> Place:
    """Return the original place of a traceback's line; the line itself where nothing was patched."""
    entry = ((patches or {}).get("files") or {}).get(file)
    if not isinstance(entry, dict) or not any(_active(p, file) for p in (patches or {})["patches"]):
        return Place(line, False)
    return Place(patch_files.original_line(entry.get("line_maps") or [], line), True)


def _active(patch: Mapping[str, Any], file: str) -> bool:
    inside = any(f.get("path") == file for f in patch.get("files") or ())
    return inside and patch.get("state") == "active"
