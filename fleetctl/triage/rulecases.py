"""Run rules on the logs that lie beside them: what must match and what must not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetctl.evidence import reader
from fleetctl.evidence.record import UNIT, Evidence, Record
from fleetctl.triage.engine import Explained, examine
from fleetctl.triage.rule import Rule, Rules


@dataclass(frozen=True, slots=True)
class Fault:
    """A case that a rule does not live up to."""

    rule: str
    path: Path
    why: str


def logs(place: Path) -> tuple[list[Path], list[Path]]:
    """Return the logs that must match and those that must not, of the rule in the TOML file ``place``."""
    found = sorted(place.with_suffix("").glob("*.log"))
    refused = [p for p in found if p.name.endswith(".not.log")]
    return [p for p in found if p not in refused], refused


def check(rules: Rules, places: dict[str, Path]) -> Iterator[Fault]:
    """Yield the faults of all rules that have a file in ``places``."""
    for rule in rules.rules:
        if rule.id in places:
            yield from _check(rule, rules, places[rule.id])


def _check(rule: Rule, rules: Rules, place: Path) -> Iterator[Fault]:
    wanted, refused = logs(place)
    if not wanted:
        yield Fault(rule.id, place, "no log that must match lies beside it")
    if not refused:
        yield Fault(rule.id, place, "no log that must not match lies beside it")
    for path in wanted:
        found = run(path, rule, rules)
        root = found.answer.root or found.answer.seen
        if not any(m.rule.id == rule.id for m in found.matches):
            yield Fault(rule.id, path, "the rule does not match")
        elif rule.role == "root" and (root is None or root.rule.id != rule.id):
            other = root.rule.id if root is not None else "no root"
            yield Fault(rule.id, path, f"the root is {other}")
    for path in refused:
        if any(m.rule.id == rule.id for m in run(path, rule, rules).matches):
            yield Fault(rule.id, path, "the rule matches")


def run(path: Path, rule: Rule, rules: Rules) -> Explained:
    """Return the triage of one case. A rule on unit properties reads it as ``systemctl show`` output."""
    data = path.read_bytes()
    if rule.origin == UNIT:
        lines = data.decode("utf-8", "replace").splitlines()
        evidence = Evidence([Record(n, line, origin=UNIT) for n, line in enumerate(lines, 1)])
    else:
        evidence = reader.from_bytes(data)
    return examine(evidence, rules)
