"""From what a patch says to the bytes of files: find the places, and build each file from its original.

One implementation for the host and for the operator's side. A file is always built from its pristine
bytes with everything that is active on it: first the diffs, then the blocks, in the order of pushing.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from fleetctl.remote import instrument, source_tree, unidiff
from fleetctl.remote.instrument import InstrumentError


class Built(NamedTuple):
    """The new bytes, the line maps (the last one was made last), and where everything was found."""

    data: bytes
    line_maps: list[list[list[int]]]
    anchors: list[dict[str, Any]]


class Places(NamedTuple):
    """Files by their path inside the tree, with what a patch does in each; and what was not found."""

    files: dict[str, bytes]
    targets: dict[str, list[dict[str, Any]]]
    hunks: dict[str, list[list[Any]]]
    missing: list[dict[str, str]]

    def work(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Return what one patch does in one file, as JSON."""
        return {
            "name": patch["name"],
            "digest": patch["digest"],
            "targets": self.targets.get(path, []),
            "hunks": self.hunks.get(path, []),
            "beacon": patch["beacon"],
        }


def locate(tree: source_tree.FolderTree | source_tree.WheelTree, patch: dict[str, Any]) -> Places:
    """Return every place of a patch in a tree. Nothing is raised for a place that is not there."""
    found = Places({}, {}, {}, [])
    for target in patch["targets"]:
        files = source_tree.find(tree, target["module"], target["symbol"])
        for file in files:
            found.files[file.path] = file.data
            entry = {"symbol": target["symbol"], "block": target["block"]}
            found.targets.setdefault(file.path, []).append(entry)
        if not files and not target.get("optional"):
            what = target["module"] + ":" + target["symbol"]
            found.missing.append(
                {"what": what, "message": "no such function in " + target["module"]}
            )
    for text in patch["diffs"]:
        for diff in unidiff.parse(text):
            try:
                found.files[diff.path] = tree.read(diff.path)
            except (OSError, KeyError):
                found.missing.append({"what": diff.path, "message": "no such file"})
                continue
            found.hunks.setdefault(diff.path, []).extend([list(h) for h in diff.hunks])
    return found


def build(data: bytes, works: Sequence[dict[str, Any]]) -> Built:
    """Return a file with the work of several patches in it. Raises InstrumentError.

    ``data`` are the pristine bytes; ``works`` come from ``Places.work``, in the order of pushing.
    """
    held = instrument.patches_in(data)
    if held:
        raise InstrumentError("already-patched", "holds blocks of " + ", ".join(held))
    maps: list[list[list[int]]] = []
    anchors: list[dict[str, Any]] = []
    for work in works:
        if work["hunks"]:
            hunks = [
                unidiff.Hunk(h[0], tuple(h[1]), tuple(h[2]), h[3], h[4]) for h in work["hunks"]
            ]
            data, line_map, lines = unidiff.apply(data, hunks)
            maps.append(line_map)
            anchors += [{"patch": work["name"], "symbol": "(hunk)", "line": n} for n in lines]
    edits = [
        instrument.Edit(w["name"], t["symbol"], t["block"]) for w in works for t in w["targets"]
    ]
    edits += [instrument.Edit(w["name"], "", w["beacon"]) for w in works if w["beacon"]]
    done = instrument.compose(data, edits)
    return Built(done.data, [*maps, done.line_map], anchors + done.anchors)


def original_line(line_maps: Sequence[Sequence[Sequence[int]]], line: int) -> int | None:
    """Return the line of the pristine file for a line of the built one; None inside a patch."""
    found: int | None = line
    for line_map in reversed(line_maps):
        if found is not None:
            found = instrument.original_line(line_map, found)
    return found
