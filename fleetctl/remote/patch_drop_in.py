"""The drop-in of a service's patches, as a function of their state: overlays and variables.

An overlay lies only over the very bytes that it was made from. Before each start a small unit compares
them; where a package was upgraded since, it takes the sources away and systemd passes over the line,
so that no old file is laid over a new package. (A command of the service's own unit would be too late:
it sees the overlays already, and systemd has made an empty file where the new package has none.)
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from typing import Any

from fleetctl.remote import patch_store, places
from fleetctl.remote.agent import AgentError

PATH = re.compile(r"/[A-Za-z0-9_./+@=,~-]+\Z")  # what needs no quoting in a unit file
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
OVERLAY = "overlay"  # folder of what is laid over; the kept bytes lie in another


def text_of(state: dict[str, Any]) -> str:
    """Return the drop-in's text for a state, "" when none is needed. AgentError: odd-path."""
    overlays = _overlays(state)
    variables: dict[str, str] = {}
    for patch in state["patches"]:
        variables.update(patch.get("environment") or {})
    if not overlays and not variables:
        return ""
    names = ", ".join(p["name"] for p in state["patches"])
    lines = [
        "# Written by fleetctl for its patches: %s. `fleetctl patch revert` takes it away." % names
    ]
    if overlays:
        look = os.path.basename(look_path(state["service"]))
        lines += ["[Unit]", "Wants=" + look, "After=" + look]
    lines.append("[Service]")
    if overlays:
        lines.append("Environment=PYTHONDONTWRITEBYTECODE=1")
    for path, entry in overlays.items():
        for source, over in _binds(state["service"], path, entry):
            if not PATH.match(source) or not PATH.match(over):
                raise AgentError("odd-path", "a path that a unit file cannot hold: %r" % over)
            lines.append("BindReadOnlyPaths=-%s:%s" % (source, over))
    for name, value in sorted(variables.items()):
        lines.append("Environment=" + quoted(name, value))
    return "\n".join(lines) + "\n"


def _overlays(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {p: f for p, f in sorted(state["files"].items()) if f["rung"] == "overlay"}


def _binds(service: str, path: str, entry: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is laid over what: the file itself, then nothing over bytecode that hides it."""
    source = laid(service, path)
    blind = [("%s.%d" % (source, n), one) for n, one in enumerate(entry.get("blind", []))]
    return [(source, path), *blind]


def laid(service: str, path: str) -> str:
    """Return the file that is laid over a path; it is there only while it may be."""
    name = "%s-%s" % (patch_store.sha(path.encode())[:12], os.path.basename(path))
    return os.path.join(patch_store.folder(service), OVERLAY, name)


def groups(state: dict[str, Any]) -> list[list[str]]:
    """Return the overlaid files, those together that patches change together: all or none is laid."""
    found: list[list[str]] = []
    for patch in state["patches"]:
        mine = [p for p in patch["files"] if state["files"][p]["rung"] == "overlay"]
        joined = [g for g in found if set(g) & set(mine)]
        found = [g for g in found if g not in joined]
        if mine:
            found.append(sorted({p for g in [*joined, mine] for p in g}))
    return sorted(found)


def look_path(service: str) -> str:
    """Return where the unit lies that looks at the files before each start."""
    name = "fleetctl-overlay-%s.service" % places.safe_name(service)
    return os.path.join(places.UNITS, name)


def look_text(state: dict[str, Any]) -> str:
    """Return that unit's text, "" when there is no overlay."""
    if not _overlays(state):
        return ""
    head = (
        "# Written by fleetctl. Before each start: an overlay goes where the package has changed since.\n"
        "[Unit]\nDescription=Look at what the patches of %s lie over\nStartLimitIntervalSec=0\n"
        "[Service]\nType=oneshot\n" % state["service"].replace("%", "%%")
    )
    return head + "".join(_look(state, group) + "\n" for group in groups(state))


def _look(state: dict[str, Any], group: list[str]) -> str:
    service = state["service"]
    sums = " ".join('echo "%s  %s";' % (state["files"][p]["pristine"], p) for p in group)
    lay, take = [], []
    for path in group:
        entry = state["files"][path]
        kept = patch_store.kept(service, entry["current"])
        (source, _), *blind = _binds(service, path, entry)
        lay.append("[ %s -ef %s ] || ln -f %s %s;" % (kept, source, kept, source))
        lay += [": > %s;" % empty for empty, _ in blind]
        take += [source, *(empty for empty, _ in blind)]
    names = ", ".join(p["name"] for p in state["patches"] if set(p["files"]) & set(group))
    told = "fleetctl-patches: not laid, for the package has changed since (orphaned): " + names
    return (
        "ExecStart=-/bin/sh -c '"
        'if { %s } | sha256sum -c --status; then %s else rm -f %s; echo "%s" >&2; fi\''
        % (sums, " ".join(lay), " ".join(take), told)
    )


def quoted(name: str, value: str) -> str:
    """Return an assignment for Environment=. AgentError: wrong-variable."""
    if not VARIABLE.match(name) or any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise AgentError("wrong-variable", "%r=%r cannot be set" % (name, value))
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"%s=%s"' % (name, text)


def write(state: dict[str, Any]) -> bool:
    """Make the units' files, and what is laid over, what the state says; return whether to reload."""
    path, text = patch_store.drop_in_path(state["unit"]), text_of(state)
    if _overlays(state) and text:
        _lay(state)
    changed = [_put(look_path(state["service"]), look_text(state)), _put(path, text)]
    if not text:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
    return any(changed)


def _put(path: str, text: str) -> bool:
    """Make a unit file hold a text, or be gone for none; return whether it changed."""
    data = text.encode("utf-8")
    before = patch_store.read(path) if os.path.exists(path) else b""
    if data == before:
        return False
    if data:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        patch_store.put(path, data, 0o644)
    else:
        os.unlink(path)
    return True


def _lay(state: dict[str, Any]) -> None:
    """Give each overlay its source, for the next start. One of a file that changed since gets none."""
    service = state["service"]
    base = os.path.join(patch_store.folder(service), OVERLAY)
    os.makedirs(base, mode=0o755, exist_ok=True)
    lost = {p for r in state["patches"] for p in patch_store.changed(state, r)}
    wanted = set()
    for group in groups(state):
        if lost & set(group):
            continue
        for path in group:
            entry = state["files"][path]
            (source, _), *blind = _binds(service, path, entry)
            _link(patch_store.kept(service, entry["current"]), source)
            for empty, _ in blind:
                open(empty, "wb").close()
            wanted |= {source, *(empty for empty, _ in blind)}
    for name in os.listdir(base):
        one = os.path.join(base, name)
        if one not in wanted:
            os.unlink(one)


def _link(kept: str, source: str) -> None:
    """Put a second name of kept bytes in place in one step."""
    if os.path.exists(source) and os.path.samefile(kept, source):
        return
    fresh = "%s.new" % source
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)
    os.link(kept, fresh)
    os.replace(fresh, source)


def forget(state: dict[str, Any]) -> None:
    """Drop the sources of a state that has no overlay any more."""
    if not _overlays(state):
        base = os.path.join(patch_store.folder(state["service"]), OVERLAY)
        shutil.rmtree(base, ignore_errors=True)
