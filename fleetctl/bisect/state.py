"""The state of a bisect: everything that is needed to go on, by anybody, after any interruption.

Pure: the file is written by ``fleetctl.trials.store``. ``fleetctl.bisect/1``, docs/json.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.bisect.isolate import infra_run
from fleetctl.bisect.model import (
    INFRA_IN_A_ROW,
    History,
    Observation,
    Options,
    Outcome,
    Problem,
    Purpose,
    members,
)
from fleetctl.bisect.space import Space, Switch
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.launch import Atom

SCHEMA = "fleetctl.bisect/1"
MARKS = {"good": Outcome.PASS, "bad": Outcome.SAME, "skip": Outcome.INVALID}


@dataclass(frozen=True, slots=True)
class Hunted:
    """The crash that is looked for, as its first launch showed it."""

    fingerprint: str = ""
    signature: str = ""
    label: str = ""
    phase: str = "unknown"
    sign: str = ""  # its first line as the watch saw it, without numbers


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch of a bisect, or one that was there before."""

    number: int
    stage: int
    on: tuple[str, ...]
    purpose: str
    outcome: str
    phase: str = "unknown"
    signature: str = ""
    label: str = ""
    fingerprint: str = ""
    host: str = ""
    seconds: float = 0.0
    started_at: str = ""
    launch_id: str | None = None
    invocation_id: str | None = None
    incident: str | None = None
    resolved: str = ""  # hash of what SGLang makes of the arguments
    cached: bool = False  # another launch of the same resolved configuration told it
    confounded: bool = False
    parent: tuple[str, ...] | None = None
    full: bool = True  # False: with dummy weights
    was: str | None = None  # the outcome before somebody marked it
    note: str = ""
    command: str = ""  # the command line of the launch
    patches: tuple[dict[str, Any], ...] = ()  # each with its state, and what it said

    @property
    def launched(self) -> bool:
        """Return whether the bisect itself started something for it."""
        return not self.cached and self.purpose != Purpose.PAID and self.outcome != Outcome.INVALID


@dataclass(frozen=True, slots=True)
class Stage:
    """A search: the switches, and what is on in all of its trials."""

    space: Space
    base: tuple[Switch, ...] = ()


@dataclass(slots=True)
class State:
    """A bisect."""

    id: str
    created_at: str
    by: str
    service: str
    hosts: list[str]
    good: str
    bad: str
    sglang: str
    stages: list[Stage]
    good_config: dict[str, Any] = field(default_factory=dict)
    bad_config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    hunted: Hunted = field(default_factory=Hunted)
    trials: list[Entry] = field(default_factory=list)
    status: str = "running"  # running | stopped | the verdict's status
    verdict: dict[str, Any] | None = None
    taken_down: list[dict[str, Any]] = field(default_factory=list)  # services to bring back
    updated_at: str = ""
    version: int = 0  # counts writes: the higher of two copies is the newer
    pid: int | None = None
    more: dict[str, Any] = field(default_factory=dict)  # fields of a newer fleetctl, kept

    @property
    def stage(self) -> Stage:
        """Return the search that is going on."""
        return self.stages[-1]

    @property
    def space(self) -> Space:
        """Return the switches of the search that is going on."""
        return self.stage.space

    def problem(self) -> Problem:
        """Return what the planner sees."""
        found = self.options
        spent = [e for e in self.trials if e.stage < len(self.stages) - 1 and counts(e)]
        limit = found.get("max_trials")
        return self.space.problem(
            Options(
                max_trials=None if limit is None else max(0, limit - len(spent)),
                bad_runs=found.get("bad_runs", 6),
                strategy=found.get("strategy", "adaptive"),
                infra_in_a_row=found.get("infra_in_a_row", INFRA_IN_A_ROW),
            )
        )

    def mask(self, names: tuple[str, ...] | list[str]) -> int:
        """Return the set of these switches of the current stage."""
        place = {s.name: i for i, s in enumerate(self.space.switches)}
        return sum(1 << place[n] for n in set(names))

    def history(self) -> History:
        """Return what the planner may know: the launches of the current stage, in their order."""
        return tuple(
            Observation(
                self.mask(e.on), Outcome(e.outcome), Purpose(e.purpose), e.phase, e.signature, e.label,
                e.full,
            )
            for e in self.trials
            if e.stage == len(self.stages) - 1
        )  # fmt: skip

    def forgive_host(self) -> None:
        """Let the host spoil as many launches again: whoever goes on has seen to it."""
        self.options["infra_in_a_row"] = INFRA_IN_A_ROW + infra_run(self.history())

    def add(self, entry: Entry) -> Entry:
        """Append a launch under the next number."""
        entry = replace(entry, number=self.trials[-1].number + 1 if self.trials else 1)
        self.trials.append(entry)
        return entry

    def mark(self, number: int, word: str) -> Entry:
        """Correct the outcome of a launch; an end that is skipped is launched again.

        UsageError ``no-trial``, ``bad-mark``.
        """
        if word not in MARKS:
            raise UsageError("bad-mark", f"{word!r} is none of good, bad, skip")
        for place, entry in enumerate(self.trials):
            if entry.number == number:
                changed = replace(entry, outcome=MARKS[word].value, was=entry.was or entry.outcome)
                if word == "bad":
                    changed = self._as_hunted(changed)
                if word == "skip" and self._is_end(entry):
                    changed = replace(changed, outcome=Outcome.INFRA.value)
                self.trials[place] = changed
                self._reopen()
                return changed
        raise UsageError(
            "no-trial",
            f"{self.id} has no trial {number}",
            hint=f"it has 1 to {self.trials[-1].number}" if self.trials else "it has none yet",
        )

    def _is_end(self, entry: Entry) -> bool:
        every = self.stages[max(entry.stage, 0)].space.switches
        return not entry.on or len(entry.on) == len(every)

    def _as_hunted(self, entry: Entry) -> Entry:
        hunted = self.hunted
        return replace(
            entry,
            phase=hunted.phase,
            signature=hunted.signature or entry.signature,
            label=hunted.label or entry.label,
        )

    def undo(self) -> Entry:
        """Forget the last launch. UsageError ``nothing-to-undo``."""
        if not self.trials:
            raise UsageError("nothing-to-undo", f"{self.id} has no trial yet")
        last = self.trials.pop()
        self.stages = self.stages[: last.stage + 1]
        if not any(e.outcome == Outcome.SAME for e in self.trials):
            self.hunted = Hunted()
        self._reopen()
        return last

    def _reopen(self) -> None:
        self.verdict = None
        self.status = "stopped"

    # --- stored form ---

    def to_json(self) -> dict[str, Any]:
        """Return the stored object."""
        body = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("stages", "hunted", "trials", "more")
        }
        return self.more | {"schema": SCHEMA} | body | {
            "hunted": asdict(self.hunted),
            "stages": [_stage_json(s) for s in self.stages],
            "trials": [asdict(e) for e in self.trials],
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any], where: str = "") -> State:
        """Return a state from its stored object. ConfigError ``bad-bisect-state``."""
        if body.get("schema") != SCHEMA:
            raise ConfigError(
                "bad-bisect-state",
                f"not a {SCHEMA} but {body.get('schema')!r}",
                where=where,
                hint="it may be of another fleetctl",
            )
        try:
            fields = {k: body[k] for k in cls.__dataclass_fields__ if k in body}
            fields["stages"] = [_stage(s) for s in body["stages"]]
            fields["hunted"] = Hunted(**_known(Hunted, body["hunted"]))
            fields["trials"] = [_entry(e) for e in body["trials"]]
            known = {*cls.__dataclass_fields__, "schema"}
            fields["more"] = {k: v for k, v in body.items() if k not in known}
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                "bad-bisect-state", f"it cannot be read: {error}", where=where
            ) from error


def counts(entry: Entry) -> bool:
    """Return whether a launch counts against the budget."""
    told = (Outcome.PASS, Outcome.SAME, Outcome.OTHER)
    return not entry.cached and entry.purpose != Purpose.PAID and entry.outcome in told


def names_of(space: Space, mask: int) -> tuple[str, ...]:
    """Return the names of a set's switches."""
    return tuple(space.switches[i].name for i in members(mask))


def _known(kind: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in body.items() if k in kind.__dataclass_fields__}


def _entry(body: Mapping[str, Any]) -> Entry:
    found = _known(Entry, body)
    found["on"] = tuple(found["on"])
    found["patches"] = tuple(found.get("patches") or ())
    if found.get("parent") is not None:
        found["parent"] = tuple(found["parent"])
    return Entry(**found)


def _stage_json(stage: Stage) -> dict[str, Any]:
    space = stage.space
    return {
        "switches": [s.to_json() for s in space.switches],
        "fixed": [[a.kind, a.name, a.before, a.after] for a in space.fixed],
        "equal": [[a.kind, a.name, a.before, a.after] for a in space.equal],
        "base": [s.to_json() for s in stage.base],
    }


def _stage(body: Mapping[str, Any]) -> Stage:
    space = Space(
        tuple(Switch.from_json(s) for s in body["switches"]),
        tuple(Atom(*a) for a in body["fixed"]),
        tuple(Atom(*a) for a in body["equal"]),
    )
    return Stage(space, tuple(Switch.from_json(s) for s in body["base"]))
