"""Draft a rule from the root of an incident; a person narrows it and adds what it must not match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import ConfigError
from fleetctl.triage.engine import Explained
from fleetctl.triage.fingerprint import key_frames

_VARYING = re.compile(r"0x[0-9a-fA-F]+|/[^\s'\":,]+|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Draft:
    """A rule and its first case."""

    name: str
    rule: str
    case: str

    def files(self, folder: Path) -> dict[Path, str]:
        """Return what to write where."""
        return {
            folder / f"{self.name}.toml": self.rule,
            folder / self.name / "first.log": self.case,
        }


def draft(name: str, found: Explained, label: str) -> Draft:
    """Return a rule that matches the root of a triage.

    Raises:
        ConfigError: there is no root, or the name is no id.
    """
    root = found.answer.root
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{1,60}", name):
        raise ConfigError("bad-id", "an id is lower-case letters, digits and dashes", where=name)
    if root is None:
        raise ConfigError("no-root", "this log holds no root to make a rule of", where=name)
    raised = root.unit.raised
    first = (raised.message if raised is not None and raised.type else root.unit.text).split("\n")[
        0
    ]
    lines = [
        f'title = "{_plain(first)[:80]}"',
        'role = "root"',
        f'label = "{label}"',
        f'on = "{root.unit.kind}"',
        f"any = [{_literal(expression(first))}]",
    ]
    if raised is not None and raised.type:
        lines.append(f'type = ["{raised.name}"]')
        frames = key_frames(raised.frames)
        if frames:
            lines.append(f"frames = [{_literal(re.escape(frames[-1]))}]")
    if raised is not None:
        lines.append('beats = ["python-bug"]')
    lines += ["", "[[advice]]", 'action = "collect_more"', 'why = "say here what to do next"', ""]
    return Draft(name, "\n".join(lines), _case(found))


def expression(text: str) -> str:
    """Return an expression for a message in which numbers, addresses and paths may differ."""
    out, at = "", 0
    for match in _VARYING.finditer(text[:200]):
        out += _escaped(text[at : match.start()]) + r"[^ ]{1,200}"
        at = match.end()
    return out + _escaped(text[at:200])


def _escaped(text: str) -> str:
    return re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text)


def _literal(text: str) -> str:
    if "'" not in text:
        return f"'{text}'"
    if "'''" not in text and not text.endswith("'"):
        return f"'''{text}'''"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(text: str) -> str:
    return re.sub(r'[\\"\x00-\x1f]', " ", text).strip() or "A failure"


def _case(found: Explained) -> str:
    """Return the root's lines as a log of its own."""
    root = found.answer.root
    assert root is not None
    raised = root.unit.raised
    if raised is None or not raised.type:
        return root.unit.text + "\n"
    rank = f" {raised.ranks[0]}" if raised.ranks else ""
    head = raised.head or "Scheduler hit an exception:"
    lines = [f"[2026-01-01 00:00:00{rank}] {head} Traceback (most recent call last):"]
    for frame, source in zip(raised.frames, raised.sources, strict=False):
        lines.append(f'  File "{frame.file}", line {frame.line or 1}, in {frame.function}')
        lines += [f"    {source}"] if source else []
    return "\n".join([*lines, raised.text, ""])
