"""The triage as a tired person wants it: verdict first, then the root, then what to do."""

from __future__ import annotations

import re
import textwrap

from fleetctl.cli.show import safe_line
from fleetctl.model.triage import Root, State, Triage, Verdict
from fleetctl.triage.engine import Explained
from fleetctl.triage.patched import findings

_SENTENCES = {
    State.CRASHED: "The server crashed",
    State.HUNG: "The server hangs; it did not crash",
    State.DEGRADED: "Part of the server failed; the rest goes on",
    State.STOPPED: "The server was stopped; it did not crash",
    State.HEALTHY: "No crash",
}
_SURE = {
    Verdict.ESTABLISHED: "established",
    Verdict.SUPPORTED: "supported, not proven",
    Verdict.HYPOTHESIS: "a hypothesis",
    Verdict.UNKNOWN: "unknown: this log does not hold the root",
}
_OPEN = re.compile(r"(?<![\w.])(?:[A-Z][A-Z]+|[NP])\b")
_PUT_IN = {
    "HOST": "the host of the server",
    "P": "its profile",
    "PROFILE": "its profile",
    "N": "a number of your choice",
    "SIZE": "a size such as 200G",
    "UNIT": "its systemd unit",
    "PID": "the process of each scheduler (pgrep -f sglang::scheduler)",
    "MODEL": "the folder of the model",
    "REPO": "the model's name on the hub",
    "PATH": "the path that is meant",
    "PORT": "the port that is meant",
    "GPU": "the card's index or PCI id (nvidia-smi -L)",
    "VERSION": "a release of SGLang, or of the package named",
    "PACKAGE": "the package in the message above",
    "URL": "the address of a mirror",
    "ID": "the number of the incident (fleetctl incidents list)",
    "ADAPTER": "the folder of the LoRA adapter",
    "METHOD": "a quantization method that the checkpoint has",
}
_WIDTH = 100
_SHOWN_CASCADES = 6
_SHOWN_FRAMES = 4


def render(path: str, found: Explained, *, parts: bool = False) -> str:
    """Return the text for one path."""
    triage = found.triage
    during = "" if triage.phase == "unknown" else f" in {triage.phase}"
    lines = [
        f"{safe_line(path)}: {_SENTENCES[triage.state]}{during}: {triage.label} ({_SURE[triage.verdict]})"
    ]
    if found.answer.why:
        lines.append(f"  {safe_line(found.answer.why)[:300]}")
    if triage.root is not None:
        lines += _root(triage.root, triage, "root" if found.answer.root is not None else "seen")
    lines += [f"  patch    {safe_line(x)[:300]}" for x in findings(triage.captured)]
    lines += _passed_over(found)
    lines += _cascades(triage)
    lines += _advice(triage)
    lines.append(f"  group    {triage.fingerprint}  {safe_line(triage.signature)[:140]}")
    if parts:
        lines += [f"           {name}: {safe_line(value)}" for name, value in found.identity.parts]
    lines += _coverage(triage)
    return "\n".join(lines)


def _root(root: Root, triage: Triage, name: str) -> list[str]:
    where = f"line {root.line}" + (f", {_ranks(root.ranks)}" if root.ranks else "")
    extra = ", ".join(
        x
        for x in (root.worker and f"{root.worker} worker", root.step and f"graph {root.step}")
        if x
    )
    lines = [f"  {name}     {where}{', ' + extra if extra else ''}   [{root.rule}]"]
    text = [t for t in root.message.split("\n") if t.strip()][:6]
    lines += [f"           {safe_line(t)[:300]}" for t in text]
    shown = [f for f in root.frames if f.in_app][-_SHOWN_FRAMES:] or list(
        root.frames[-_SHOWN_FRAMES:]
    )
    for frame in reversed(shown):
        lines.append(
            f"           at {safe_line(frame.file)}:{frame.line or '?'} in {safe_line(frame.function)}"
        )
    if triage.entity:
        lines.append(f"  exactly  {safe_line(triage.entity)}")
    return lines


def _ranks(ranks: tuple[str, ...]) -> str:
    return (
        "ranks " + ", ".join(safe_line(r) for r in ranks)
        if len(ranks) > 1
        else f"rank {safe_line(ranks[0])}"
    )


def _passed_over(found: Explained) -> list[str]:
    """Say why louder lines are not the root: wrappers and later errors."""
    root = found.answer.root or found.answer.seen
    seen: set[str] = set()
    lines: list[str] = []
    for candidate in found.answer.candidates:
        if (
            candidate is root
            or not candidate.lost
            or (root is not None and candidate.rule.id == root.rule.id)
        ):
            continue
        name = (
            candidate.unit.raised.name
            if candidate.unit.raised is not None and candidate.unit.raised.type
            else candidate.rule.id
        )
        if name not in seen and len(lines) < 4:
            seen.add(name)
            lines.append(
                f"  not it   line {candidate.unit.line} {safe_line(name)}: {candidate.lost}"
            )
    return lines


def _cascades(triage: Triage) -> list[str]:
    lines = []
    for cascade in triage.cascades[:_SHOWN_CASCADES]:
        times = f" ×{cascade.count}" if cascade.count > 1 else ""
        lines.append(f"  follows  line {cascade.line}{times} {safe_line(cascade.message)[:110]}")
    left = len(triage.cascades) - _SHOWN_CASCADES
    if left > 0:
        lines.append(f"           and {left} more kinds (--json shows all)")
    return lines


def _advice(triage: Triage) -> list[str]:
    lines = []
    for number, advice in enumerate(triage.advice, 1):
        mark = " (disruptive)" if advice.disruptive else ""
        lines += textwrap.wrap(
            f"{advice.why}{mark}",
            _WIDTH,
            initial_indent=f"  next {number}   ",
            subsequent_indent=" " * 11,
        )
        if advice.command:
            lines.append(f"           $ {safe_line(advice.command)}")
    return [*lines, *_legend([a.command for a in triage.advice if a.command])]


def _legend(commands: list[str]) -> list[str]:
    """Return what to put in for the words in capitals that no log tells."""
    words = dict.fromkeys(w for c in commands for w in _OPEN.findall(c))
    told = ", ".join(f"{word}: {_PUT_IN[word]}" for word in words if word in _PUT_IN)
    if not told:
        return []
    return textwrap.wrap(told, _WIDTH, initial_indent="  put in   ", subsequent_indent=" " * 11)


def _coverage(triage: Triage) -> list[str]:
    lost = [
        f"{triage.coverage.suppressed_messages} messages were suppressed by journald"
        if triage.coverage.suppressed_messages
        else "",
        f"{triage.coverage.truncated_lines} lines were cut"
        if triage.coverage.truncated_lines
        else "",
    ]
    return [f"  read     {'; '.join(x for x in lost if x)}"] if any(lost) else []
