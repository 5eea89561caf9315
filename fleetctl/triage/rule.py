"""What a rule is, and the built-in rules. See docs/reference/rules.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

STRENGTHS = ("outcome", "symptom", "default", "generic", "specific", "cause")
ROLES = ("root", "cascade", "confirmation", "teardown", "advice", "benign")
MEANINGS = (
    "",
    "ready",
    "alive",
    "batch",
    "health-ok",
    "health-failed",
    "health-refused",
    "stop",
    "stop-timeout",
    "stop-weak",
    "dead",
    "killed",
    "platform",
    "stacks",
    "fatal-head",
    "request",
    "wrapper",
)
CRASH = ("unless-alive", "yes", "if-dead", "no")
Patterns = tuple[str, ...]
_ANY_EXCEPTION = ("rror", "xception", "systemexit")


@dataclass(slots=True, frozen=True)
class Pattern:
    """A regular expression and literals (lower case) of which each text that matches holds one."""

    regex: str
    literals: Patterns


@dataclass(slots=True, frozen=True)
class RuleAdvice:
    """One next step of a rule."""

    action: str
    why: str
    command: str = ""
    disruptive: bool = False


@dataclass(slots=True, frozen=True)
class Rule:
    """One rule; the fields are described in docs/reference/rules.md."""

    id: str
    title: str
    role: str
    label: str = ""
    strength: str = "specific"
    on: str = "any"  # exception, line, head, any
    origin: str = "app"  # app, kernel, systemd, unit, any
    any: tuple[Pattern, ...] = ()
    all: Patterns = ()
    none: Patterns = ()
    type: Patterns = ()
    frames: Patterns = ()
    frames_none: Patterns = ()
    innermost: Patterns = ()
    phases: Patterns = ()
    labels: tuple[tuple[str, str], ...] = ()
    phase: str = ""
    phase_is: str = ""
    beats: Patterns = ()
    explains: Patterns = ()
    needs: Patterns = ()
    means: str = ""
    crash: str = "unless-alive"
    notable: bool = False
    async_frames: bool = False
    state: str = ""
    fingerprint: Patterns = ()
    entity: str = ""
    since: str = ""
    until: str = ""
    advice: tuple[RuleAdvice, ...] = field(default=())

    @property
    def rank(self) -> int:
        """How near to a cause the rule is: higher is nearer."""
        return STRENGTHS.index(self.strength)

    @property
    def by_place(self) -> bool:
        """Return whether the frames alone make it match, whatever the message says."""
        return bool(self.frames or self.innermost) and all(
            literal.strip(": ").endswith(_ANY_EXCEPTION) for p in self.any for literal in p.literals
        )

    def label_in(self, phase: str) -> str:
        """Return the label for a failure in ``phase``."""
        return next((label for name, label in self.labels if name == phase), self.label)


@dataclass(slots=True, frozen=True)
class Rules:
    """An ordered set of rules with a hash that changes whenever one of them does."""

    rules: tuple[Rule, ...]
    digest: str

    def get(self, name: str) -> Rule | None:
        """Return one rule by its id, or None."""
        return next((r for r in self.rules if r.id == name), None)

    def of_version(self, version: str) -> Rules:
        """Return the rules that are for a version of SGLang; all of them when it is not known."""
        if not version:
            return self
        here = release(version)
        kept = tuple(
            r
            for r in self.rules
            if (not r.since or release(r.since) <= here)
            and (not r.until or here < release(r.until))
        )
        return Rules(kept, self.digest)

    def with_more(self, more: tuple[Rule, ...], digest: str) -> Rules:
        """Return these rules and others; an id of the others replaces ours."""
        names = {r.id for r in more}
        return Rules(
            (*(r for r in self.rules if r.id not in names), *more), f"{self.digest}+{digest}"
        )


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparison: 0.5.12.post1 → (0, 5, 12, 1)."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0])[:5])


@lru_cache(maxsize=1)
def builtin() -> Rules:
    """Return the rules that ship with the program, compiled when it was built."""
    from fleetctl.triage import compiled

    return Rules(tuple(unpack(row) for row in compiled.RULES), compiled.DIGEST)


_TUPLES = (
    "all",
    "none",
    "type",
    "frames",
    "frames_none",
    "innermost",
    "phases",
    "beats",
    "explains",
    "needs",
    "fingerprint",
)


def unpack(row: dict[str, object]) -> Rule:
    """Return a rule from the plain values of the compiled module."""
    values: dict[str, object] = dict(row)
    values["any"] = tuple(Pattern(*p) for p in row.get("any", ()))  # type: ignore[attr-defined]
    values["advice"] = tuple(RuleAdvice(*a) for a in row.get("advice", ()))  # type: ignore[attr-defined]
    return Rule(**values)  # type: ignore[arg-type]
