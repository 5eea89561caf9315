"""What the log itself knows of the words in capitals of a command of advice: the model, a process, a port.

Only plain values are put in, so that nothing a log says can become a command of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fleetctl.evidence.record import SYSTEMD, UNIT, Evidence
from fleetctl.model.triage import Advice
from fleetctl.triage.answer import Answer

_PLACE = re.compile(r"(?<![\w.])(?:MODEL|REPO|PID|UNIT|PATH|PORT|PACKAGE|VERSION|ADAPTER)\b")
_PLAIN = re.compile(r"[A-Za-z0-9~/][\w./:@+~-]{0,300}\Z")
_MODEL = re.compile(
    r"""model_path['"]?[=:] ?['"](?P<a>[^'"]{1,300})['"]|--model(?:-path)?[= ](?P<b>[^\s'"]{1,300})"""
)
_REPO = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}\Z")
_DUMPED = re.compile(r"[Pp]y-?[Ss]py (?:dump for|failed to dump) PID (?P<pid>\d{1,9})")
_OF_UNIT = re.compile(r"(?P<unit>[\w@.:-]{1,120}\.service)\b")
_PORT = re.compile(
    r"\bport:? ?(?P<a>\d{2,5})\b|[\w\]*.]:(?P<b>\d{2,5})\b|', (?P<c>\d{2,5})\)|<(?P<d>\d{2,5})>"
)
_PEER = re.compile(r"(?P<host>\d{1,3}(?:\.\d{1,3}){3})[:<](?P<port>\d{2,5})\b")
_MASTER = re.compile(
    r"dist[-_]init[-_]addr['\"]?[=: ] ?['\"]?(?P<host>[\w.-]{1,120}):(?P<port>\d{2,5})\b"
)
_PATH = re.compile(r"""[`'"](?P<a>/[^`'"]{1,300})[`'"]|(?:^|[\s:])(?P<b>/[\w./@+-]{2,300})""")


@dataclass(frozen=True, slots=True)
class _Known:
    """Where to look: the log, its answer, and what rules took out of it."""

    evidence: Evidence
    answer: Answer

    @property
    def message(self) -> str:
        """The text of the root, or of what the answer rests on."""
        shown = self.answer.root or self.answer.seen
        return shown.unit.shown if shown is not None else ""

    def captured(self, name: str) -> str:
        """Return what the root's rule took out of its message."""
        return self.answer.root.captured.get(name, "") if self.answer.root is not None else ""

    def first(self, pattern: re.Pattern[str], texts: Iterable[str]) -> str:
        """Return the first group with a value in the first text that has one."""
        found = (match for text in texts for match in pattern.finditer(text))
        return next((v for match in found for v in match.groups() if v), "")

    def texts(self) -> Iterable[str]:
        """Return all that the log says."""
        return (r.text for r in self.evidence.records)


def filled(steps: Sequence[Advice], evidence: Evidence, answer: Answer) -> tuple[Advice, ...]:
    """Return the advice with the values that the log shows in place of MODEL, PID, UNIT, PORT and the like."""
    known = _Known(evidence, answer)
    return tuple(
        replace(s, command=_fill(s.command, known)) if s.command and _PLACE.search(s.command) else s
        for s in steps
    )


def _fill(command: str, known: _Known) -> str:
    own = command.startswith("fleetctl ")  # what is deployed instead is for a person to say
    values: dict[str, str] = {}
    if command.startswith("nc "):
        told = (_MASTER.search(text) for text in known.texts())
        peer = _PEER.search(known.message) or next((m for m in told if m is not None), None)
        return f"nc -vz {peer['host']} {peer['port']}" if peer else command
    for name in dict.fromkeys(_PLACE.findall(command)):
        value = "" if own and name not in _OWN else _FIND[name](known)
        if value and _PLAIN.match(value):
            values[name] = value
    text = _PLACE.sub(lambda word: values.get(word[0], word[0]), command)
    return text.replace("==VERSION", "") if "PACKAGE" in values else text


def _model(known: _Known) -> str:
    """Return the folder of the model: the path given, or where the hub's cache keeps the repository."""
    named = known.captured("model") or known.first(_MODEL, known.texts())
    if _REPO.match(named) and not named.startswith((".", "~")):
        return f"~/.cache/huggingface/hub/models--{named.replace('/', '--')}"
    return named if named.startswith(("/", "~", ".")) else known.first(_PATH, [known.message])


def _repo(known: _Known) -> str:
    named = known.captured("model") or known.first(_MODEL, known.texts())
    return named if _REPO.match(named) else ""


def _pid(known: _Known) -> str:
    """Return a process that hangs: the one that was dumped, or the one that said so."""
    shown = known.answer.root or known.answer.seen
    own = shown.unit.pid if shown is not None else ""
    return known.first(_DUMPED, known.texts()) or own


def _unit(known: _Known) -> str:
    texts = (r.text for r in known.evidence.records if r.origin in (SYSTEMD, UNIT))
    return known.first(_OF_UNIT, texts)


def _package(known: _Known) -> str:
    named = known.captured("package")
    return named if "." not in named and "/" not in named else ""


def _port(known: _Known) -> str:
    return known.captured("port") or known.first(_PORT, [known.message])


def _path(known: _Known) -> str:
    return known.captured("path") or known.first(_PATH, [known.message])


_OWN = ("VERSION",)
_FIND: dict[str, Callable[[_Known], str]] = {
    "MODEL": _model,
    "REPO": _repo,
    "PID": _pid,
    "UNIT": _unit,
    "PATH": _path,
    "PORT": _port,
    "PACKAGE": _package,
    "VERSION": lambda known: known.evidence.versions.get("sglang", ""),
    "ADAPTER": _path,
}
