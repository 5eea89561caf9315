"""Where a patch lies in an installed tree, seen as it was before other patches edited it."""

from __future__ import annotations

import os
from typing import Any

from fleetctl.remote import patch_files, patch_store, source_tree
from fleetctl.remote.agent import AgentError


def place(
    state: dict[str, Any], patch: dict[str, Any], args: dict[str, Any], root: str
) -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Return each file of the patch with its pristine bytes and the patch's work in it."""
    service = args["service"]
    tree = _Pristine(root, {
        p: patch_store.kept(service, e["pristine"])
        for p, e in state["files"].items() if e["rung"] == "edit"
    })  # fmt: skip
    places = patch_files.locate(tree, patch)
    if places.missing:
        raise AgentError(
            "anchor-missing",
            "; ".join("%s: %s" % (m["what"], m["message"]) for m in places.missing),
            where=root,
            hint="`fleetctl patch check %s --sglang %s` shows where it lies in the released version"
            % (patch["name"], args.get("version")),
        )
    return {
        os.path.realpath(os.path.join(root, relative)): (data, places.work(relative, patch))
        for relative, data in places.files.items()
    }


class _Pristine(source_tree.FolderTree):
    """The installed tree with the files that other patches edited as they were before."""

    def __init__(self, root: str, pristine: dict[str, str]) -> None:
        super().__init__(root)
        self.pristine = pristine

    def read(self, path: str) -> bytes:
        """Return the pristine bytes of one file."""
        real = os.path.realpath(os.path.join(self.root, path))
        return patch_store.read(self.pristine.get(real, real))
