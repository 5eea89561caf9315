"""A patch against a tree of sources: where it anchors, and what each file becomes. No host needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.config.write import write_bytes
from fleetctl.patching import snippets
from fleetctl.patching.model import Patch
from fleetctl.remote import patch_files
from fleetctl.remote.instrument import InstrumentError
from fleetctl.remote.source_tree import FolderTree, WheelTree


@dataclass(frozen=True, slots=True)
class Anchor:
    """One place of a patch in one version: a function, or the first hunk of a diff."""

    file: str
    symbol: str
    line: int
    ok: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether a patch fits a version, place by place."""

    name: str
    version: str
    anchors: tuple[Anchor, ...]
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Return whether every place was found and the result was proven."""
        return not self.problem and all(a.ok for a in self.anchors)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``fleetctl patch check --json``."""
        return {
            "schema": "fleetctl.patch-check/1",
            "name": self.name,
            "version": self.version,
            "anchors": [
                {"file": a.file, "symbol": a.symbol, "line": a.line, "ok": a.ok}
                | ({"problem": a.problem} if a.problem else {})
                for a in self.anchors
            ],
            "problem": self.problem or None,
            "ok": self.ok,
        }


def check(
    patch: Patch, version: str, tree: FolderTree | WheelTree, given: dict[str, str] | None = None
) -> Checked:
    """Return where a patch lies in one version's sources, each file patched, proven and compiled.

    Raises ConfigError for wrong parameters or snippets.
    """
    if not snippets.allows(patch.sglang, version):
        return Checked(patch.name, version, (), f"it is for sglang {patch.sglang}")
    rendered = snippets.render(patch, version, given)
    if not rendered.edits and not rendered.diffs and not rendered.environment:
        return Checked(patch.name, version, (), "it has nothing for this version")
    found = patch_files.locate(tree, rendered.to_json())
    anchors = [Anchor("", gap["what"], 0, False, gap["message"]) for gap in found.missing]
    for path, data in sorted(found.files.items()):
        anchors += _try(path, data, found.work(path, rendered.to_json()), version)
    problem = "" if anchors or rendered.environment else "nothing to anchor"
    return Checked(patch.name, version, tuple(anchors), problem)


def _try(path: str, data: bytes, work: dict[str, Any], version: str) -> list[Anchor]:
    try:
        done = patch_files.build(data, [work])
        compile(done.data, path, "exec", dont_inherit=True)
    except (InstrumentError, SyntaxError) as error:
        reason = str(error)
        symbols = [t["symbol"] for t in work["targets"]] or ["(diff)"]
        return [Anchor(path, s, 0, False, f"{reason} ({version})") for s in symbols]
    return [Anchor(path, a["symbol"], a["line"], True) for a in done.anchors]


def write(
    patch: Patch, version: str, tree: FolderTree | WheelTree, folder: Path, given: dict[str, str]
) -> list[Path]:
    """Write the patched files of a version below a folder and return them, for a container's mounts.

    Raises ConfigError where a place cannot be built, or a file not be written.
    """
    rendered = snippets.render(patch, version, given).to_json()
    found = patch_files.locate(tree, rendered)
    written = []
    for path, data in sorted(found.files.items()):
        try:
            built = patch_files.build(data, [found.work(path, rendered)])
        except InstrumentError as error:
            raise snippets.as_fault(error, path) from error
        written.append(write_bytes(folder / path, built.data))
    return written
