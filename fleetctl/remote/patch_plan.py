"""What a push or a revert makes of a service's state: which files, from which bytes, to which bytes."""

from __future__ import annotations

import base64
import os
import stat
import zlib
from typing import Any

from fleetctl.remote import patch_resolve, patch_store
from fleetctl.remote.agent import AgentError

REFUSED = 7  # exit code of the command line
SHOWN = 120  # lines of a difference


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a state without one patch; its files are built anew from what is left."""
    new = dict(state, patches=[p for p in state["patches"] if p["name"] != name], files={})
    for path, entry in state["files"].items():
        works = [w for w in entry["works"] if w["name"] != name]
        if works:
            new["files"][path] = dict(entry, works=works)
            if len(works) != len(entry["works"]):
                _rebuild(state["service"], new["files"][path])
    return new


def _rebuild(service: str, entry: dict[str, Any], original: tuple[bytes, str] = (b"", "")) -> None:
    """Build a file from its pristine bytes and the work on it; the result is kept.

    ``original`` is what a diff was made from, where that is known: bytes, or their hash alone.
    """
    from fleetctl.remote import (
        instrument,
        patch_files,
    )  # parsing is not needed where bytes are given

    data = patch_store.read(patch_store.kept(service, entry["pristine"]))
    try:
        built = patch_files.build(data, entry["works"])
    except instrument.InstrumentError as error:
        raise AgentError(error.reference, error.message, context=_unlike(data, *original))
    entry["current"] = patch_store.keep(service, built.data)
    entry["line_maps"] = built.line_maps
    entry["anchors"] = built.anchors


def _unlike(data: bytes, original: bytes, digest: str) -> list[str]:
    """Return how a file differs from the one that a diff was made from."""
    wanted = patch_store.sha(original) if original else digest
    if not wanted or wanted == patch_store.sha(data):
        return []
    head = "the file here (%s) is not the one that the diff was made from (%s)"
    lines = [head % (patch_store.sha(data)[:12], wanted[:12])]
    return lines + (_diff(original, data) if original else [])


def prepare(
    new: dict[str, Any],
    files: dict[str, tuple[bytes, dict[str, Any]]],
    seen: dict[str, Any],
    root: str,
    name: str,
) -> dict[str, Any] | None:
    """Return what another host with the same installation need not work out again, or None.

    The same installation is the same RECORD of the package; the same Python has compiled the result.
    """
    entries = {p: new["files"][p] for p in files}
    alone = all(len(e["works"]) == 1 and not e["symlink"] for e in entries.values())
    if not files or not alone or not seen["record"] or seen["editable"]:
        return None
    return {
        "record": seen["record"], "python": seen["python"], "digest": files_digest(new, name),
        "files": {
            os.path.relpath(p, root): {
                "pristine": e["pristine"], "work": e["works"][0], "anchors": e["anchors"],
                "line_maps": e["line_maps"], "current": e["current"],
                "data": pack(patch_store.read(patch_store.kept(new["service"], e["current"]))),
            }
            for p, e in entries.items()
        },
    }  # fmt: skip


def files_digest(new: dict[str, Any], name: str) -> str:
    """Return the digest of a patch by the work that it has in the state's files."""
    works = (w for e in new["files"].values() for w in e["works"])
    return next((str(w["digest"]) for w in works if w["name"] == name), "")


def pack(data: bytes) -> str:
    """Return bytes as text for the wire."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def originals_of(args: dict[str, Any]) -> dict[str, tuple[bytes, str]]:
    """Return what the client knows of the files that diffs were made from: bytes, hash."""
    known = {path: (b"", digest) for path, digest in (args.get("bases") or {}).items()}
    for path, text in (args.get("originals") or {}).items():
        known[path] = (zlib.decompress(base64.b64decode(text)), "")
    return known


def prepared(
    new: dict[str, Any], args: dict[str, Any], seen: dict[str, Any], root: str
) -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Return the files of a patch when another host's work fits this one exactly, else nothing.

    Every file must have the recorded hash, and no other patch on it.
    """
    given = args.get("prepared")
    if not given or given["record"] != seen["record"] or given["python"] != seen["python"]:
        return {}
    if given["digest"] != args["patch"]["digest"]:
        return {}
    found = {}
    for relative, ready in given["files"].items():
        path = os.path.realpath(os.path.join(root, relative))
        data = patch_store.read(path) if os.path.exists(path) else b""
        if path in new["files"] or patch_store.sha(data) != ready["pristine"]:
            return {}
        work = dict(ready["work"], ready=ready)
        found[path] = (data, work)
    return found


def forgetting(state: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Return a state that knows nothing of some files."""
    return dict(
        state,
        files={p: e for p, e in state["files"].items() if p not in paths},
        patches=[
            dict(r, files=[p for p in r["files"] if p not in paths]) for r in state["patches"]
        ],
    )


def admit(
    new: dict[str, Any],
    path: str,
    args: dict[str, Any],
    found: patch_resolve.Unit,
    seen: dict[str, Any],
) -> None:
    """Raise AgentError where this file must not be changed this way."""
    rung = args["rung"]
    known = new["files"].get(path)
    if known is not None and known["rung"] != rung:
        raise AgentError(
            "other-rung", "%s has patches by %s already" % (path, known["rung"]),
            hint="push this one the same way, or revert the others first", exit_code=REFUSED,
        )  # fmt: skip
    if known is not None:
        require_ours(new, path)
    if rung == "overlay":
        if found.load_state != "loaded" and not args.get("planned"):
            raise AgentError(
                "no-unit", "an overlay lies over the files of one unit, and there is none",
                hint="--rung edit changes the file itself", exit_code=REFUSED,
            )  # fmt: skip
        return
    if not path.startswith(os.path.dirname(os.path.realpath(seen["locations"][0])) + "/"):
        raise _no_edit(path, "is reached through a link: others may use it")
    kind = patch_resolve.file_system(path)
    if patch_resolve.is_network(kind):
        raise _no_edit(path, "lies on %s, where other hosts use it" % kind)
    others = patch_resolve.other_units(seen["prefix"], found.name)
    if others:
        raise _no_edit(path, "is used by %s as well" % ", ".join(others[:5]))


def require_ours(state: dict[str, Any], path: str) -> None:
    """Raise AgentError ``orphaned`` when a file is neither the original nor what we made of it."""
    entry = state["files"][path]
    ours = {entry["pristine"]} | ({entry["current"]} if entry["rung"] == "edit" else set())
    if patch_store.disk_hash(path) not in ours:
        raise orphaned(state["service"], path, entry)


def _no_edit(path: str, why: str) -> AgentError:
    return AgentError(
        "edit-refused", "%s %s" % (path, why), hint="use --rung overlay: it is for this unit only",
        exit_code=REFUSED,
    )  # fmt: skip


def orphaned(service: str, path: str, entry: dict[str, Any]) -> AgentError:
    """Return the fault of a file that changed since it was patched, with both differences."""
    pristine = patch_store.read(patch_store.kept(service, entry["pristine"]))
    built = patch_store.read(patch_store.kept(service, entry["current"]))
    try:
        now = patch_store.read(path)
    except OSError:
        now = b""
    return AgentError(
        "orphaned",
        "%s changed since it was patched (was the package upgraded?)" % path,
        where=path,
        hint="`fleetctl patch revert HOST --leave` forgets the patch and leaves the file as it is",
        context=[
            "--- what the patch did",
            *_diff(pristine, built),
            "--- what happened since",
            *_diff(built, now),
        ],
        exit_code=REFUSED,
    )


def _diff(left: bytes, right: bytes) -> list[str]:
    import difflib

    a, b = (x.decode("utf-8", "replace").splitlines() for x in (left, right))
    lines = list(difflib.unified_diff(a, b, "before", "after", lineterm="", n=1))
    return lines[:SHOWN] + (["… %d more" % (len(lines) - SHOWN)] if len(lines) > SHOWN else [])


def build(
    new: dict[str, Any],
    files: dict[str, tuple[bytes, dict[str, Any]]],
    rung: str,
    root: str,
    originals: dict[str, tuple[bytes, str]],
) -> dict[str, str]:
    """Put the patch's work into the state's files; return what must compile: path → hash."""
    service = new["service"]
    for path, (data, work) in files.items():
        entry = new["files"].get(path)
        if entry is None:
            info = os.stat(path)
            entry = {
                "rung": rung, "pristine": patch_store.keep(service, data), "works": [],
                "mode": stat.S_IMODE(info.st_mode), "owner": [info.st_uid, info.st_gid],
                "links": info.st_nlink, "symlink": not path.startswith(root + "/"),
            }  # fmt: skip
        ready = work.pop("ready", None)
        entry = dict(entry, works=[*entry["works"], work])
        entry["blind"] = [c for c in patch_store.bytecode_of(path) if patch_store.unchecked(c)]
        if ready is None:
            _rebuild(service, entry, originals.get(os.path.relpath(path, root), (b"", "")))
        else:
            data = zlib.decompress(base64.b64decode(ready["data"]))
            if patch_store.keep(service, data) != ready["current"]:
                raise AgentError("bytes-differ", "%s came as other bytes" % path)
            entry.update({k: ready[k] for k in ("current", "anchors", "line_maps")})
        new["files"][path] = entry
    return {p: new["files"][p]["current"] for p in files}
