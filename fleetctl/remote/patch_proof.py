"""Whether a patch is active: what the running processes see, how old they are, what they printed."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from fleetctl.remote import (
    journal,
    patch_marker,
    patch_resolve,
    patch_store,
    places,
    procs,
    redact,
)

SCHEMA = "fleetctl.patches/1"
RANK = "sglang::scheduler"
KEPT_MARKERS = 20
BEFORE = 0.02  # seconds: the kernel counts the start of a process in ticks
JOURNAL_SECONDS = 8.0
JOURNAL_BYTES = 32 * 1024 * 1024


def processes(group: str, main_pid: int) -> list[dict[str, Any]]:
    """Return the processes of a unit: pid, title, rank (as the log writes it), start (epoch)."""
    now, uptime = time.time(), float(procs.read("/proc/uptime").split()[0])
    found = []
    for pid in procs.of_cgroup(group, main_pid):
        fields = procs.read("/proc/%d/stat" % pid).rpartition(")")[2].split()
        title = procs.read("/proc/%d/cmdline" % pid).split("\0")[0]
        if len(fields) > 19 and title:
            started = now - uptime + int(fields[19]) / os.sysconf("SC_CLK_TCK")
            found.append({"pid": pid, "title": title, "rank": rank_of(title), "started": started})
    return found


def rank_of(title: str) -> str | None:
    """Return ``DP1 TP3`` from ``sglang::scheduler_DP1_TP3``, "" for a lone one, None for others."""
    if not title.startswith(RANK):
        return None
    return title[len(RANK) :].strip("_").replace("_", " ")


def markers(invocation: str, names: list[str]) -> list[patch_marker.Marker]:
    """Return the marker lines that an invocation printed, those of these patches only."""
    if not invocation:
        return []
    found = []
    argv = journal.command(invocation, "--grep=fleetctl-patch ")
    for line in journal.read(argv, JOURNAL_SECONDS, JOURNAL_BYTES):
        record = journal.parse(line)
        text = journal.message(record) if record is not None else ""
        marker = patch_marker.parse(text)
        if marker is not None and marker.patch in names:
            found.append(marker)
    return found


def judge_record(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return one applied patch as it stands now: its state, why, and what it said."""
    unit = patch_resolve.read_unit(state["unit"])
    running = processes(unit.group, unit.main_pid) if unit.alive else []
    old = {p["pid"] for p in running if p["started"] < record["pushed_at"] - BEFORE}
    said = [m for m in markers(unit.invocation, [record["name"]]) if m.fields.get("pid") not in old]
    seen = {p["pid"]: _sees(p["pid"], state, record) for p in ranks_of(running)}
    verdict, why = judge(record, running, said, seen, patch_store.changed(state, record))
    return describe(state, record, verdict, why, said, unit.invocation)


def ending(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return one patch as it is taken out: where what runs now is silent, what an earlier crash told."""
    judged = judge_record(state, record)
    before = None if judged["result"] else _said_before(state["service"], record)
    if before is None:
        return judged
    return dict(judged, **{k: before.get(k) for k in ("result", "markers", "invocation_id")})


def _said_before(service: str, record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the patch's row in the newest evidence since the push, or None."""
    base = os.path.join(places.SPOOL, places.safe_name(service))
    found = []
    for name in os.listdir(base) if os.path.isdir(base) else []:
        folder = os.path.join(base, name)
        created = str(_object(os.path.join(folder, "manifest.json")).get("created_at", ""))
        if created >= patch_store.stamp(record["pushed_at"]):
            rows = _object(os.path.join(folder, "patches.json")).get("patches") or []
            found += [(created, n, r) for n, r in enumerate(rows) if _told(r, record)]
    return dict(max(found, key=lambda f: f[:2])[2]) if found else None


def _told(row: dict[str, Any], record: dict[str, Any]) -> bool:
    return row.get("digest") == record["digest"] and bool(row.get("result"))


def _object(path: str) -> dict[str, Any]:
    try:
        found = json.loads(patch_store.read(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ranks_of(running: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rank processes; before SGLang has named any, every process counts."""
    ranks = [p for p in running if p["rank"] is not None]
    return ranks or running


def judge(
    record: dict[str, Any],
    running: list[dict[str, Any]],
    said: list[patch_marker.Marker],
    seen: dict[int, str],
    changed: list[str],
) -> tuple[str, str]:
    """Return active, applied-not-active or orphaned, and why.

    ``seen`` says what each rank process sees in place of the patch ("" is the patch itself).
    """
    if changed:
        return "orphaned", "%s changed since" % ", ".join(changed)
    if not running:
        return "applied-not-active", "the unit does not run: the next start will have it"
    ranks = ranks_of(running)
    old = [p for p in ranks if p["started"] < record["pushed_at"] - BEFORE]
    if old:
        return "applied-not-active", "%s started before the push: restart the unit" % _names(old)
    blind = [(p, seen[p["pid"]]) for p in ranks if seen.get(p["pid"])]
    if blind:
        return "applied-not-active", "%s: %s" % (_names([blind[0][0]]), blind[0][1])
    if not record["files"]:
        return "active", "every process has the variables"
    if ranks[0]["rank"] is None:
        return "applied-not-active", "no rank has started yet"
    loaded = {
        m.fields.get("pid")
        for m in said
        if m.event == "loaded" and record["digest"].startswith(str(m.fields.get("digest")))
    }
    silent = [p for p in ranks if p["pid"] not in loaded]
    if silent:
        return "applied-not-active", "%s has not loaded it (no beacon)" % _names(silent)
    return "active", "every rank is younger than the push and has loaded it"


def _names(found: list[dict[str, Any]]) -> str:
    return ", ".join("%s (pid %d)" % (p["rank"] or "the server", p["pid"]) for p in found[:8])


def _sees(pid: int, state: dict[str, Any], record: dict[str, Any]) -> str:
    """Return "" when a process has the patch before its eyes, else what it sees instead."""
    for path in record["files"]:
        entry = state["files"][path]
        there = _hash_of("/proc/%d/root%s" % (pid, path))
        if there is not None and there != entry["current"]:
            which = "the original" if there == entry["pristine"] else "another file"
            return "sees %s at %s" % (which, path)
    wanted = record.get("environment") or {}
    if wanted:
        has = procs.read("/proc/%d/environ" % pid).split("\0")
        for name, value in sorted(wanted.items()):
            if "%s=%s" % (name, value) not in has:
                return "%s is not set there" % name
    return ""


def _hash_of(path: str) -> str | None:
    """Return a file's hash, None when it cannot be read."""
    try:
        return patch_store.sha(patch_store.read(path))
    except OSError:
        return None


def describe(
    state: dict[str, Any],
    record: dict[str, Any],
    verdict: str,
    why: str,
    said: list[patch_marker.Marker],
    invocation: str,
    ended: bool = False,
) -> dict[str, Any]:
    """Return the object of ``patch status`` for one patch.

    Silence is an answer only of an invocation that has ``ended``.
    """
    own = [m for m in said if m.event != "loaded"]
    silent = ended and verdict == "active" and not own and bool(record["files"])
    return {
        "name": record["name"], "digest": record["digest"], "rung": record["rung"],
        "state": verdict, "why_state": why, "summary": record.get("summary", ""),
        "expired": time.time() > record["expires_at"], "expires_at": patch_store.stamp(record["expires_at"]),
        "at_expiry": record.get("at_expiry", "warn"), "pushed_at": patch_store.stamp(record["pushed_at"]),
        "by": record["by"], "why": record["why"], "version": record["version"],
        "parameters": record["parameters"], "invocation_id": invocation,
        "files": [
            {"path": p, "original": state["files"][p]["pristine"],
             "patched": state["files"][p]["current"],
             "others": [w["name"] for w in state["files"][p]["works"] if w["name"] != record["name"]]}
            for p in record["files"]
        ],
        "markers": len(own), "last_markers": [redacted(m.fields) for m in own[-KEPT_MARKERS:]],
        "result": _result(record, silent, own), "silent_means": record.get("silent", ""),
    }  # fmt: skip


def _result(record: dict[str, Any], silent: bool, own: list[patch_marker.Marker]) -> str | None:
    """Return what was found out so far, in words; None when nothing can be said."""
    if own:
        return redact.redact(patch_marker.said(own[-1].fields))
    return record.get("silent") or "it stayed silent" if silent else None


def redacted(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a marker's fields with redacted text."""
    found: dict[str, Any] = json.loads(redact.redact(json.dumps(fields, ensure_ascii=False)))
    return found


def for_bundle(service: str, invocation: str) -> dict[str, Any] | None:
    """Return patches.json of an evidence bundle: what was active in an invocation that has ended.

    A patch counts as active when the invocation printed its beacon (environment: when it began after
    the push). With the line maps, a traceback's lines can be shown as those of the original files.
    """
    try:
        state = patch_store.load(service)
    except Exception:  # noqa: BLE001  evidence is kept whatever the state file holds
        return None
    if not state or not state["patches"]:
        return None
    said = markers(invocation, [p["name"] for p in state["patches"]])
    rows = []
    for record in state["patches"]:
        mine = [m for m in said if m.patch == record["name"]]
        loaded = any(record["digest"].startswith(str(m.fields.get("digest"))) for m in mine
                     if m.event == "loaded")  # fmt: skip
        verdict = "active" if loaded or not record["files"] else "applied-not-active"
        why = "its beacon was printed" if loaded else "no beacon in this invocation"
        rows.append(describe(state, record, verdict, why, mine, invocation, ended=True))
    maps = {
        p: {"original": e["pristine"], "line_maps": e["line_maps"]}
        for p, e in state["files"].items()
    }
    return {
        "schema": SCHEMA,
        "service": service,
        "invocation_id": invocation,
        "patches": rows,
        "files": maps,
    }
