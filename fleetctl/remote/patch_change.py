"""One step from a state of patches to the next: all of it, or what was there before."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fleetctl.remote import files, patch_drop_in, patch_expiry, patch_store, unit


def move(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Make the host what the new state says, and write it. What fails is taken back and raised."""
    edits = _edits(old, new)
    step = _Step(edits, old["service"])
    try:
        if edits:
            patch_store.save(dict(old, pending={"files": edits}))
        step.stage()
        step.replace()
        if patch_drop_in.write(new):
            unit.reload_units()
        patch_expiry.schedule(new)
        patch_store.save(new)
    except BaseException:
        step.undo()
        _put_back(old)
        raise
    step.finish()
    patch_store.clean(new)
    patch_drop_in.forget(new)


def _edits(old: dict[str, Any], new: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the files that must change on disk: from which hash to which."""
    found = {}
    for path in sorted(set(old["files"]) | set(new["files"])):
        before, after = old["files"].get(path), new["files"].get(path)
        entry = after or before
        edited = after is not None and after["rung"] == "edit"
        target, now = entry["current" if edited else "pristine"], patch_store.disk_hash(path)
        ours = edited or (before is not None and before["rung"] == "edit")
        if ours and now is not None and now != target:
            found[path] = {
                "old": now,
                "new": target,
                "mode": entry["mode"],
                "owner": entry["owner"],
            }
    return found


def _put_back(old: dict[str, Any]) -> None:
    """After a failure: the drop-in and the state as they were, as far as the host lets us."""
    with contextlib.suppress(Exception):  # the first fault is told; recover() finishes the rest
        if patch_drop_in.write(old):
            unit.reload_units()
        patch_expiry.schedule(old)
        if os.path.exists(os.path.join(patch_store.folder(old["service"]), "state.json")):
            patch_store.save(old)
        patch_store.clean(old)
        patch_drop_in.forget(old)


class _Step:
    """The renames of one change. A second name of each old file makes the way back need no space."""

    def __init__(self, edits: dict[str, dict[str, Any]], service: str) -> None:
        self.edits = edits
        self.service = service
        self.staged: dict[str, str] = {}
        self.olds: dict[str, str] = {}
        self.done: list[str] = []

    def stage(self) -> None:
        for path, edit in self.edits.items():
            data = patch_store.read(patch_store.kept(self.service, edit["new"]))
            owner = (edit["owner"][0], edit["owner"][1])
            self.staged[path] = patch_store.stage(path, data, edit["mode"], owner)
            _copy_attributes(path, self.staged[path])
            old = os.path.join(os.path.dirname(path), ".fleetctl-old-" + os.path.basename(path))
            if os.path.lexists(old):
                os.unlink(old)
            os.link(path, old, follow_symlinks=False)
            self.olds[path] = old

    def replace(self) -> None:
        for path in self.edits:
            os.replace(self.staged[path], path)
            del self.staged[path]
            self.done.append(path)
        for folder in sorted({os.path.dirname(p) for p in self.edits}):
            files.sync_folder(folder)
        for path in self.edits:
            patch_store.forget_bytecode(path)

    def undo(self) -> None:
        for path in reversed(self.done):
            os.replace(self.olds.pop(path), path)
            patch_store.forget_bytecode(path)
        self.finish()

    def finish(self) -> None:
        for path in [*self.staged.values(), *self.olds.values()]:
            if os.path.lexists(path):
                os.unlink(path)


def _copy_attributes(source: str, target: str) -> None:
    """Copy extended attributes (SELinux label, ACL) where the file system has them."""
    try:
        for name in os.listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
    except OSError:
        pass


def recover(state: dict[str, Any]) -> list[str]:
    """Take back what a process left half done when it died; return the files that were restored."""
    pending = state.pop("pending", None)
    if pending is None:
        return []
    restored = []
    for path, edit in sorted(pending["files"].items()):
        base, name = os.path.split(path)
        for leftover in _leftovers(base, name):
            os.unlink(os.path.join(base, leftover))
        if patch_store.disk_hash(path) == edit["new"]:
            data = patch_store.read(patch_store.kept(state["service"], edit["old"]))
            owner = (edit["owner"][0], edit["owner"][1])
            patch_store.put(path, data, edit["mode"], owner)
            patch_store.forget_bytecode(path)
            restored.append(path)
    if patch_drop_in.write(state):
        unit.reload_units()
    patch_store.save(state)
    patch_store.remember(state["service"], {"event": "recovered", "files": restored})
    return restored


def _leftovers(base: str, name: str) -> list[str]:
    try:
        names = os.listdir(base)
    except OSError:
        return []
    marks = (".fleetctl-%s-" % name[:100], ".fleetctl-old-" + name)
    return [n for n in names if n.startswith(marks)]
