"""Find which rules match which units. A rule's expressions run only where their literals stand."""

from __future__ import annotations

import builtins
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from fleetctl.evidence.reader import DIGITS
from fleetctl.triage.rule import Pattern, Rule
from fleetctl.triage.units import EXCEPTION, HEAD, LINE, Unit

_LOOKED_AT = 64_000  # characters of a unit that expressions see
_MANY = 4000  # units that a rule may match
_COMMON = (
    "alive",
    "batch",
    "health-ok",
)  # signs of life are many, and only the ends of them matter
_ENOUGH = 300
# A project derives its own classes from these; a rule that takes one of them takes the derived, too.
_BASES = ("Exception", "RuntimeError", "ValueError")


@dataclass(slots=True)
class Match:
    """A rule, the unit that it matched, and what its groups took out of the text."""

    rule: Rule
    unit: Unit
    captured: dict[str, str]
    start: int = 0


class _Index:
    """Finds the units that hold a literal, among some of the units."""

    def __init__(self, units: Sequence[Unit], numbers: Iterable[int]) -> None:
        shapes: dict[str, list[int]] = {}
        for number in numbers:
            shape = units[number].text[:_LOOKED_AT].lower().translate(DIGITS)
            shapes.setdefault(shape, []).append(number)
        # Most lines of a long log differ in digits alone: literals are looked for once in each shape.
        self._members = list(shapes.values())
        self._blob = "\n".join(shapes)
        self._starts: list[int] = []
        at = 0
        for shape in shapes:
            self._starts.append(at)
            at += len(shape) + 1
        self._hits: dict[str, list[int]] = {}

    def candidates(self, pattern: Pattern) -> list[int]:
        """Return the numbers of the units that may match a pattern."""
        if not pattern.literals:
            return sorted(number for members in self._members for number in members)
        lists = [self._where(literal) for literal in pattern.literals]
        if len(lists) == 1:
            return lists[0]
        return sorted({number for numbers in lists for number in numbers})

    def _where(self, literal: str) -> list[int]:
        """Return the numbers of the units that may hold a literal, digits aside."""
        known = self._hits.get(literal)
        if known is not None:
            return known
        wanted = literal.translate(DIGITS)
        found: list[int] = []
        at = self._blob.find(wanted)
        while at >= 0:
            shape = bisect_right(self._starts, at) - 1
            found += self._members[shape]
            if shape + 1 >= len(self._starts):
                break
            at = self._blob.find(wanted, self._starts[shape + 1])
        found.sort()
        self._hits[literal] = found
        return found


class Matcher:
    """Finds the matches of rules in a fixed list of units."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._all = _Index(units, range(len(units)))
        exceptions = (n for n, unit in enumerate(units) if unit.kind == EXCEPTION)
        self._exceptions = _Index(units, exceptions)
        self._named: frozenset[str] = frozenset()

    def run(self, rules: Iterable[Rule]) -> list[Match]:
        """Return all matches, in the order of the log."""
        rules = list(rules)
        self._named = frozenset(name for rule in rules for name in rule.type)
        found = [match for rule in rules for match in self._rule(rule)]
        found.sort(key=lambda m: (m.unit.index, m.unit.kind == EXCEPTION))
        return found

    def _rule(self, rule: Rule) -> list[Match]:
        found: dict[int, Match] = {}
        index = self._exceptions if rule.on == EXCEPTION or rule.type else self._all
        for pattern in rule.any:
            numbers = index.candidates(pattern)
            if rule.means in _COMMON and len(numbers) > 2 * _ENOUGH:
                numbers = numbers[:_ENOUGH] + numbers[-_ENOUGH:]
            for number in numbers:
                if number not in found:
                    match = _try(rule, pattern, self._units[number], self._named)
                    if match is not None:
                        found[number] = match
            if len(found) > _MANY:
                break
        return list(found.values())


@lru_cache(maxsize=4096)
def expression(regex: str) -> re.Pattern[str]:
    """Return a compiled expression; ``^`` and ``$`` mean lines."""
    return re.compile(regex, re.MULTILINE)


def _try(rule: Rule, pattern: Pattern, unit: Unit, named: frozenset[str]) -> Match | None:
    if not _fits(rule, unit, named):
        return None
    text = unit.text[:_LOOKED_AT]
    first = expression(pattern.regex).search(text)
    if first is None:
        return None
    if any(expression(p).search(text) for p in rule.none):
        return None
    captured = {k: v for k, v in first.groupdict().items() if v}
    for regex in rule.all:
        more = expression(regex).search(text)
        if more is None:
            return None
        captured |= {k: v for k, v in more.groupdict().items() if v}
    if (rule.frames or rule.frames_none or rule.innermost) and not _frames_fit(rule, unit):
        return None
    return Match(rule, unit, captured, first.start())


def _fits(rule: Rule, unit: Unit, named: frozenset[str]) -> bool:
    if rule.origin not in ("any", unit.origin):
        return False
    if rule.on != "any" and rule.on != unit.kind:
        return False
    if rule.on == "any" and unit.kind == HEAD:
        return rule.role != "root"
    if rule.type:
        return (
            unit.raised is not None
            and unit.kind == EXCEPTION
            and (
                unit.raised.name in rule.type
                or unit.raised.type in rule.type
                or (_of_a_project(unit.raised.name, named) and _takes_derived(rule))
            )
        )
    return not (
        rule.role == "root"
        and unit.kind == LINE
        and unit.level in ("INFO", "DEBUG")
        and rule.means == ""
    )


def _of_a_project(name: str, named: frozenset[str]) -> bool:
    """Return whether a class is none of Python's and none that some rule names."""
    return name not in named and not hasattr(builtins, name)


def _takes_derived(rule: Rule) -> bool:
    return any(base in rule.type for base in _BASES)


def _frames_fit(rule: Rule, unit: Unit) -> bool:
    where = unit.where
    if rule.frames and not any(expression(p).search(where) for p in rule.frames):
        return False
    inner = where.rpartition("\n")[2]
    if rule.innermost and not any(expression(p).search(inner) for p in rule.innermost):
        return False
    return not any(expression(p).search(where) for p in rule.frames_none)
