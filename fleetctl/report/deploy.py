"""Lines for a person about a deploy: progress while it runs, and the verdict at its end. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fleetctl.model.launch import brief
from fleetctl.model.plan import span
from fleetctl.model.triage import tells_of_failure
from fleetctl.report import advice
from fleetctl.triage.patched import findings

GIB = 1024**3
MIB = 1024**2


def size(count: float) -> str:
    """Return a size as ``590 GiB`` or ``12 MiB``."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def progress_text(event: Mapping[str, Any]) -> str:
    """Return what a phase event says, without the host: ``weight-load 3/23 shards, 1.2 GiB/s, ETA 40 s``."""
    parts = [str(event["phase"])]
    progress = event.get("progress") or {}
    if progress.get("of") == "bytes":
        parts.append(f"{size(progress['done'])} of {size(progress['total'])} read")
    elif progress:
        parts.append(f"{progress['done']}/{progress['total']} {progress['of']}")
    life = event.get("life") or {}
    rate = life.get("read_bytes_per_second", 0)
    if rate >= MIB:
        parts.append(f"{size(rate)}/s")
    if life.get("gpu_bytes"):
        parts.append(f"{size(life['gpu_bytes'])} on the GPUs")
    if life and not rate >= MIB and not progress:
        parts.append(f"CPU {life.get('cpu', 0):.1f}")
    if progress.get("eta"):
        parts.append(f"ETA {span(progress['eta'])}")
    if event.get("note"):
        parts.append(str(event["note"]))
    return ", ".join(parts)


def event_line(event: Mapping[str, Any]) -> str:
    """Return one line for an event of a deploy, or "" where there is nothing to say."""
    if event["event"] in ("rolling", "rollout", "rolled-back"):
        return rolling_line(event)
    where = f"{event['host']}/{event['service']}"
    match event["event"]:
        case "phase":
            text = progress_text(event)
            return f"{where}: {event['seconds']:7.1f} s  {text}"
        case "step":
            return _step_line(where, event)
        case "ready":
            return f"{where}: {event['seconds']:7.1f} s  ready"
        case "crash":
            return f"{where}: CRASH (first look) in {event['phase']}: {crash_text(event)}"
        case "request":
            said = event.get("status") or event.get("error")
            return f"{where}: request {event['number']} {event['path']}: {said} after {event['seconds']:.1f} s"
        case "connection":
            if event["state"] == "back":
                return f"{where}: connected again; the watch goes on"
            return f"{where}: connection lost, trying again ({event['attempt']})"
        case "waiting" if event.get("for") == "restart":
            return f"{where}: it has ended, and systemd starts it again: waiting for that"
        case "waiting":
            why = f" ({event['why']})" if event.get("why") else ""
            return f"{where}: waiting for the lock of {event['who']}{why}, {event['seconds']:.0f} s"
        case "warning":
            return f"{where}: warning: {event['message']}"
    return ""


def rolling_line(event: Mapping[str, Any]) -> str:
    """Return what a rolling deploy says between its hosts, and the report at its end."""
    if event["event"] == "rolled-back":
        where = f"{event['host']}/{event['service']}"
        if event["state"] == "not-possible":
            return f"{where}: not rolled back: {event['message']}"
        return f"{where}: rolled back to revision {event['to']}: {event['state']}"
    if event["event"] == "rollout":
        return "\n".join(_rollout_lines(event))
    match event["do"]:
        case "batch":
            what = "canary" if event["canary"] else "next"
            return f"rolling: {what}: {', '.join(event['hosts'])}"
        case "soak":
            return f"rolling: {event['host']} must stay ready for {span(event['seconds'])}"
        case "pause":
            return f"rolling: pause of {span(event['seconds'])}"
        case "drain":
            return f"{event['host']}/{event['service']}: drained"
        case "undrain":
            return f"{event['host']}/{event['service']}: undrained"
    return ""


def _rollout_lines(event: Mapping[str, Any]) -> list[str]:
    head = {"done": "DONE", "stopped": "STOPPED", "interrupted": "INTERRUPTED"}[event["state"]]
    why = f": {event['why']}" if event["why"] and event["state"] == "stopped" else ""
    lines = [f"rolling: {head} after {span(event['seconds'])}{why}"]
    for name, text in (
        ("ready", "changed and ready"),
        ("unchanged", "had it already"),
        ("failed", "failed"),
        ("starting", "still starting"),
        ("untouched", "not touched"),
    ):
        if event.get(name):
            lines.append(f"  {text:<18} {', '.join(event[name])}")
    for where, number in event["rolled_back"].items():
        lines.append(f"  {'back at revision':<18} {number} on {where}")
    if event["untouched"]:
        lines.append(
            "  the same command goes on, --resume without a second canary; what is ready stays"
        )
    return lines


def _step_line(where: str, event: Mapping[str, Any]) -> str:
    if event["do"] in ("restart-unit", "start-unit") and event["state"] == "issued":
        verb = "restart" if event["do"] == "restart-unit" else "start"
        return f"{where}: {event['seconds']:7.1f} s  {verb} issued"
    if event["do"] == "stop-unit" and event["state"] == "issued":
        return f"{where}: {event['seconds']:7.1f} s  stopping {event['target']}"
    return ""


def crash_text(crash: Mapping[str, Any]) -> str:
    """Return ``IndexError: index out of range (TP3) at embedding.py:12 in forward``."""
    text = str(crash.get("line") or crash.get("message") or "")
    ranks = ", ".join(crash.get("ranks") or ())
    if ranks:
        text += f" ({ranks})"
    if crash.get("file"):
        text += f" at {short_path(crash['file'])}:{crash['file_line']} in {crash['function']}"
    return text


def short_path(path: str) -> str:
    """Return a path without what stands before the package that it lies in."""
    for mark in ("site-packages/", "dist-packages/"):
        if mark in path:
            return path.rpartition(mark)[2]
    return path


_HEADLINES = {
    "ready": "READY",
    "ready-wrong-config": "READY, BUT NOT WHAT WAS ASKED FOR",
    "failed-start": "CRASHED",
    "crash-loop": "CRASHES AGAIN AND AGAIN",
    "hung": "HANGS",
    "timed-out": "NOT READY IN TIME",
    "unreachable": "UNREACHABLE",
    "refused": "REFUSED",
    "locked": "LOCKED",
    "apply-failed": "NOT DEPLOYED",
    "interrupted": "INTERRUPTED",
    "unchanged": "UNCHANGED, and it runs",
    "started": "STARTED, not watched",
}


def verdict_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the end of a deploy on one host for a tired person: what, where, why, what next."""
    head = _HEADLINES.get(result["state"], result["state"])
    if result["error"] == "stopped":
        head = "STOPPED by somebody while it started"
    elif result["error"] == "replaced":
        head = "RESTARTED by somebody else while it started"
    elif result["error"] == "not-running":
        head = "NOT RUNNING"
    elif result["error"] == "host-rebooted":
        head = "GONE: the host was restarted"
    elif result.get("status") not in (None, "ready"):
        head = f"UNCHANGED, and it runs, but it is {result['status']}"
    where = f"{result['host']}/{result['service']}"
    in_phase = f" in {result['phase']}" if result["phase"] not in ("unknown", "serving") else ""
    during = (
        " while serving"
        if result["state"] == "failed-start" and result["phase"] == "serving"
        else ""
    )
    lines = [f"{where}: {head}{in_phase}{during} after {result['seconds']:.1f} s{_label(result)}"]
    if result.get("message") and result["state"] == "ready-wrong-config":
        lines.append(f"  why       {result['message']}")
    lines += [f"  {name:<9} {text}" for name, text in _details(result)]
    return lines


def _label(result: Mapping[str, Any]) -> str:
    triage = result.get("triage")
    return f"  [{triage['label']}, {triage['verdict']}]" if triage else ""


def _details(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    failed = result["state"] in ("failed-start", "crash-loop", "hung", "timed-out")
    triage = result.get("triage") or {}
    if triage.get("root"):
        rows += _root(triage["root"], "root" if tells_of_failure(triage) else "seen")
    elif result.get("crash"):
        rows.append(("root", f"{crash_text(result['crash'])} (first look)"))
    elif failed and result.get("last_line"):
        rows.append(("last line", str(result["last_line"])))
    rows += [("patch", text) for text in findings(triage.get("captured") or {})]
    if failed or result["state"] == "ready":
        rows += _changed(result, failed)
    names = {
        "HOST": result["host"],
        "PROFILE": result.get("profile"),
        "P": shlex.join([*filter(None, [result.get("profile")]), *(result.get("overrides") or ())]),
        "VERSION": result.get("sglang"),
        "ID": result.get("incident"),
    }
    for step in (triage.get("advice") or ())[:3]:
        rows.append(("advice", str(step.get("why") or step["action"])))
        rows += [("", line) for line in [advice.command_line(step, names)] if line]
    rows += _places(result)
    return rows


def _root(root: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    kind = f"{root['exception_type']}: " if root.get("exception_type") else ""
    if str(root["message"]).startswith(kind):
        kind = ""
    ranks = f" ({', '.join(root['ranks'])})" if root.get("ranks") else ""
    rows = [(name, f"{kind}{root['message']}{ranks}")]
    frames = root.get("frames") or ()
    own = [f for f in frames if f.get("in_app")] or frames
    if own:
        frame = own[-1]
        rows.append(("", f"{short_path(frame['file'])}:{frame['line']} in {frame['function']}"))
    worker = [w for w in (root.get("worker"), root.get("step")) if w]
    if worker:
        rows.append(("", ", ".join(worker)))
    return rows


def _changed(result: Mapping[str, Any], failed: bool) -> list[tuple[str, str]]:
    if "changed_since_ready" not in result:
        return []
    atoms = result["changed_since_ready"]
    if atoms is None:
        return [("changed", "nothing was ever ready here before")] if failed else []
    if not atoms:
        return [("changed", "nothing since the last ready launch")] if failed else []
    noun = "atom" if len(atoms) == 1 else "atoms"
    rows = [
        (
            "changed",
            f"{len(atoms)} {noun} since the last ready launch: {', '.join(map(brief, atoms))}",
        )
    ]
    good, bad = result.get("last_ready_profile"), result.get("profile")
    if failed and len(atoms) > 1 and good and bad:
        rows += [("", line) for line in _bisect(result, good, bad)]
    return rows


def _bisect(result: Mapping[str, Any], good: str, bad: str) -> list[str]:
    """Return what to type to bisect this very launch; one with --set or --unset is no profile yet."""
    began = f"fleetctl bisect-flags {result['host']}"
    changes = result.get("overrides") or ()
    if changes:
        new = f"{bad}-crashed"
        return [
            "a bisect would tell which; keep this launch as a profile first:",
            f"$ fleetctl profiles save-as {new} -p {bad} {shlex.join(changes)}",
            f"$ {began} --good-last-ready --bad {new}",
        ]
    end = "--good-last-ready" if good == bad else f"--good {good}"
    return [f"a bisect would tell which: {began} {end} --bad {bad}"]


def _places(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    where = f"{result['host']}/{result['service']}"
    if result["state"] == "unchanged" and result.get("status") == "unhealthy":
        rows.append(("advice", "--restart starts it again; `fleetctl logs` says what it does now"))
    slow = result["state"] == "timed-out" and not result.get("triage")
    if (slow or result["state"] == "interrupted") and result.get("invocation_id"):
        rows.append(("running", f"the service goes on starting ({result['invocation_id']})"))
        rows.append(("", f"$ fleetctl wait {where}   or   fleetctl stop {where}"))
    if result.get("restarts_after") is not None:
        seconds = span(float(result["restarts_after"]))
        rows.append(("goes on", f"systemd starts it again after {seconds}; to leave it down:"))
        rows.append(("", f"$ fleetctl stop {where}"))
    if result.get("restarts"):
        rows.append(("restarts", f"systemd has restarted it {result['restarts']} times"))
    if result.get("bundle"):
        rows.append(("bundle", str(result["bundle"])))
    if result.get("evidence"):
        rows.append(("evidence", str(result["evidence"])))
    if result.get("incident"):
        rows.append(
            ("incident", f"{result['incident']}   $ fleetctl incidents show {result['incident']}")
        )
    failed = result["state"] in ("failed-start", "crash-loop", "hung", "timed-out")
    if failed and result.get("invocation_id"):
        rows.append(("log", f"$ fleetctl logs {where} --invocation {result['invocation_id']}"))
    return rows
