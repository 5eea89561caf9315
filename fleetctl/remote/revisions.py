"""What was installed for each launch: the last ten of a service, without any secret.

A revision holds the merged profile, the text of every file that is no secret, and the hash of every
file; the secrets themselves are resolved again from their references when one is brought back.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any

from fleetctl.remote import files, places, records

SCHEMA = "fleetctl.revision/1"
KEPT = 10
_NAME = re.compile(r"\d{8}\.json")


def _folder(service: str) -> str:
    return os.path.join(places.REVISIONS, places.safe_name(service))


def _names(service: str) -> list[str]:
    """Return the files of the kept revisions, the oldest first."""
    try:
        return sorted(n for n in os.listdir(_folder(service)) if _NAME.fullmatch(n))
    except OSError:
        return []


def keep(service: str, body: dict[str, Any]) -> int:
    """Write a revision down and return its number; only the newest ten stay. Raises OSError."""
    folder = _folder(service)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    names = _names(service)
    number = int(names[-1][:8]) + 1 if names else 1
    text = records.line_of(dict(body, schema=SCHEMA, number=number, at=records.now()))
    files.write_atomic(os.path.join(folder, "%08d.json" % number), text, mode=0o600)
    for name in names[: max(0, len(names) + 1 - KEPT)]:
        os.unlink(os.path.join(folder, name))
    return number


def forget(service: str, launch: str) -> None:
    """Remove the newest revision if it is that launch's: it was taken back before it ran."""
    found = newest(service)
    if found is not None and launch and found.get("launch") == launch:
        files.forget(os.path.join(_folder(service), "%08d.json" % found["number"]))


def newest(service: str) -> dict[str, Any] | None:
    """Return the newest readable revision, or None."""
    return next((r for r in everything(service)), None)


def everything(service: str) -> list[dict[str, Any]]:
    """Return the kept revisions, the newest first; unreadable ones are passed over."""
    paths = (os.path.join(_folder(service), n) for n in reversed(_names(service)))
    return [r for r in (records.read_object(p) for p in paths) if r is not None]


def drift(service: str) -> list[dict[str, Any]]:
    """Return what is not as the newest revision left it: ``{path, state, launch}``, never a content.

    ``state`` is changed, missing, mode (rights or owner) or added (a file that was taken away is back).
    """
    revision = newest(service)
    if revision is None:
        return []
    found = [(str(f["path"]), _state(f)) for f in revision.get("files", [])]
    found += [(p, "added") for p in revision.get("absent", []) if os.path.exists(p)]
    return [
        {"path": path, "state": state, "launch": revision.get("launch")}
        for path, state in found
        if state
    ]


def _state(wanted: dict[str, Any]) -> str:
    path = str(wanted["path"])
    try:
        info = os.stat(path)
        digest = files.sha256(path)
    except OSError:
        return "missing"
    if digest != wanted.get("sha256"):
        return "changed" if digest else "missing"
    same = stat.S_IMODE(info.st_mode) == wanted.get("mode") and (
        os.geteuid() != 0 or files.owner_name(info) == wanted.get("owner")
    )
    return "" if same else "mode"


def _with_result(service: str, revision: dict[str, Any]) -> dict[str, Any]:
    """Add what became of the launch, from its own record."""
    launch = records.launch(service, str(revision.get("launch") or "")) or {}
    ready = bool(launch.get("ready_at")) or launch.get("outcome") == "ready"
    wanted = ("outcome", "phase", "label", "signature", "incident", "ready_seconds", "ended_at")
    return dict(revision, result={k: launch.get(k) for k in wanted}, ready=ready)


def _list(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    service = args["service"]
    found = [_with_result(service, r) for r in everything(service)]
    if not args.get("contents"):
        for revision in found:
            for file in revision.get("files", []):
                file.pop("content", None)
    return {"revisions": found}


VERBS = {"list": _list}
