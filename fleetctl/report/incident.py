"""One incident as text: for the terminal, and as an issue to paste upstream. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetctl.model.incident import Group, Occurrence
from fleetctl.model.launch import brief
from fleetctl.model.triage import tells_of_failure
from fleetctl.report import advice
from fleetctl.triage.patched import findings


def row(occurrence: Occurrence, group: Group) -> dict[str, Any]:
    """Return the documented line of ``incidents list --json``."""
    triage = occurrence.triage
    return {
        "schema": "fleetctl.incident-row/1",
        "id": occurrence.id,
        "launch_id": occurrence.launch_id,
        "host": occurrence.host,
        "service": occurrence.service,
        "invocation_id": occurrence.invocation_id,
        "label": triage.get("label"),
        "phase": triage.get("phase"),
        "signature": triage.get("signature"),
        "fingerprint": occurrence.fingerprint,
        "count": group.count,
        "first_seen": group.first_seen,
        "last_seen": group.last_seen,
        "observed_at": occurrence.observed_at,
        "status": group.status.value,
    }


def full_text(occurrence: Occurrence, group: Group) -> str:
    """Return everything known of an incident, for a terminal."""
    triage = occurrence.triage
    times = "once" if group.count == 1 else f"{group.count} times since {group.first_seen}"
    lines = [
        f"incident {occurrence.id}  {triage.get('label')}  ({triage.get('verdict')})",
        f"  service     {occurrence.host}/{occurrence.service}, invocation {occurrence.invocation_id or '-'}",
        f"  when        {occurrence.observed_at}, phase {triage.get('phase')}, state {triage.get('state')}",
        f"  seen        {times} on {', '.join(group.hosts)}; {group.status.value}",
        f"  group       {occurrence.fingerprint}",
        f"  signature   {triage.get('signature')}",
        *_root_lines(triage),
        *_cascade_lines(triage),
    ]
    if occurrence.changed_since_ready:
        count = len(occurrence.changed_since_ready)
        atoms = "1 atom" if count == 1 else f"{count} atoms"
        texts = ", ".join(map(brief, occurrence.changed_since_ready))
        lines.append(f"  changed     {atoms} since the last ready launch: {texts}")
    lines += _captured_lines(triage)
    if occurrence.launch_id:
        lines.append(f"  launch      {occurrence.launch_id}")
    if occurrence.bundle:
        lines.append(f"  evidence    {occurrence.bundle}")
    lines += [f"  owner       {group.owner}"] if group.owner else []
    lines += [f"  link        {link}" for link in group.links]
    lines += [f"  {event.at} {event.by}: {event.text}" for event in group.comments]
    lines += _advice_lines(occurrence)
    return "\n".join(lines)


def _root_lines(triage: dict[str, Any]) -> list[str]:
    root = triage.get("root")
    if not root:
        return ["  root        not in this log"]
    lines = [f"  {'root' if tells_of_failure(triage) else 'seen':11} {titled(root)}"]
    where = [f"line {root['line']}"]
    if root.get("ranks"):
        where.append("ranks " + ", ".join(root["ranks"]))
    where += [f"{name} {root[name]}" for name in ("worker", "step") if root.get(name)]
    lines.append(f"              {', '.join(where)}")
    frames = [f for f in root.get("frames") or () if f.get("in_app")][-3:]
    lines += [f"              at {f['file']}:{f['line']} in {f['function']}" for f in frames]
    return lines


def titled(root: dict[str, Any]) -> str:
    """Return the root's message with the exception's type in front, once."""
    kind, message = root.get("exception_type") or "", str(root["message"])
    return message if kind.rsplit(".", 1)[-1] in message.split(":", 1)[0] else f"{kind}: {message}"


def _cascade_lines(triage: dict[str, Any]) -> list[str]:
    lines = []
    told = [c for c in triage.get("cascades") or () if not str(c["kind"]).startswith("unit-")]
    for cascade in told[:6]:
        count = f" ×{cascade['count']}" if cascade.get("count", 1) > 1 else ""
        lines.append(f"  followed by {cascade['kind']}{count}: {cascade['message'][:120]}")
    return lines


# Told elsewhere, or, as systemd's word for how a unit ended, no more than ``ended`` says.
_TOLD = ("patch_markers", "patches", "exit_kind", "exit_status", "unit_result")


def _captured_lines(triage: dict[str, Any]) -> list[str]:
    captured = triage.get("captured") or {}
    ended = [str(captured[name]) for name in ("exit_kind", "exit_status") if captured.get(name)]
    lines = [f"  ended       {', '.join(ended)}"] if ended else []
    return (
        lines
        + [f"  patch       {text}" for text in findings(captured)]
        + [
            f"  captured    {key} = {value}"
            for key, value in sorted(captured.items())
            if key not in _TOLD
        ]
    )


def _advice_lines(occurrence: Occurrence) -> list[str]:
    config = occurrence.config or {}
    names = {
        "HOST": occurrence.host,
        "PROFILE": config.get("profile"),
        "P": config.get("profile"),
        "VERSION": (config.get("versions") or {}).get("sglang"),
        "ID": occurrence.id,
    }
    lines = []
    for step in occurrence.triage.get("advice") or ():
        lines.append(f"  next        {step['why'] or step['action']}")
        lines += [f"              {line}" for line in [advice.command_line(step, names)] if line]
    return lines


def issue_text(occurrence: Occurrence, group: Group, names: Iterable[str] = ()) -> str:
    """Return a bug report in the shape that SGLang asks for, without host names.

    ``names`` are further words to leave out. The parts follow SGLang's own form
    (.github/ISSUE_TEMPLATE/1-bug-report.yml): description, reproduction, environment.
    """
    triage = occurrence.triage
    root = triage.get("root") or {}
    config = occurrence.config or {}
    frames = [f"  {f['file']}:{f['line']} in {f['function']}" for f in root.get("frames") or ()]
    flags = " ".join(_flag(k, v) for k, v in sorted((config.get("flags") or {}).items()))
    versions = [f"- {k}: {v}" for k, v in sorted((config.get("versions") or {}).items())]
    text = "\n".join(
        [
            f"# [Bug] {triage.get('signature') or triage.get('label')}",
            "",
            "## Describe the bug",
            f"The server ended in phase `{triage.get('phase')}`, {triage.get('verdict')}:",
            f"{triage.get('label')}.",
            "",
            "```",
            titled(root) if root else "root not in the log",
            *frames,
            "```",
            f"Ranks: {', '.join(root.get('ranks') or ()) or 'not given'}. Seen {group.count} time(s).",
            "",
            "## Reproduction",
            "```",
            f"python -m sglang.launch_server --model-path {config.get('model', 'MODEL')} {flags}".rstrip(),
            "```",
            "",
            "## Environment",
            *(versions or ["- not recorded"]),
        ]
    )
    for name in sorted({occurrence.host, *group.hosts, *names} - {""}, key=len, reverse=True):
        text = text.replace(name, "HOST")
    return text + "\n"


def _flag(name: str, value: Any) -> str:
    if value is True:
        return f"--{name}"
    if isinstance(value, list | tuple):
        return f"--{name} {' '.join(str(v) for v in value)}"
    return f"--{name} {value}"
