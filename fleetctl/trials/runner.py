"""The loop of a bisect: ask the planner, launch, judge, write down, until there is a verdict."""

from __future__ import annotations

import concurrent.futures
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.estimate import remaining
from fleetctl.bisect.model import Options, Outcome, Purpose, Status, Trial, Verdict
from fleetctl.bisect.planner import next_round
from fleetctl.bisect.refine import refine
from fleetctl.bisect.space import Space, reweigh
from fleetctl.bisect.state import Entry, Stage, State, counts, names_of
from fleetctl.clock import Clock, SystemClock, rfc3339
from fleetctl.errors import FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Profile
from fleetctl.trials import store
from fleetctl.trials.checking import checked
from fleetctl.trials.classify import INFRA_LABELS, SILENT, Judged, hunted_by, judge
from fleetctl.trials.host import Launched, TrialHost, uninterrupted
from fleetctl.trials.setup import Ground, with_dummy_weights
from fleetctl.trials.words import entry_json, seconds_each

Event = dict[str, Any]
Tell = Callable[[Event], None]
REBOOTED = {"state": "failed-start", "error": "host-rebooted", "phase": "unknown"}
FAST_STAGE = -1  # launches that only ask whether dummy weights show the same crash


@dataclass(frozen=True, slots=True)
class How:
    """What was asked for besides the two profiles."""

    check: str = ""
    max_minutes: float | None = None
    fast: bool = False
    fast_layers: int | None = None
    split: bool = True


class Bisect:
    """A bisect on its way. ``run`` returns the verdict; every way out leaves a state that resumes."""

    def __init__(
        self,
        state: State,
        ground: Ground,
        hosts: list[TrialHost],
        how: How,
        tell: Tell,
        clock: Clock | None = None,
    ) -> None:
        self.state = state
        self.ground = ground
        self.hosts = hosts
        self.how = how
        self.tell = tell
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._mutex = threading.Lock()
        self._new_label = ""
        self._use_stage()

    # --- the loop ---

    def run(self) -> dict[str, Any]:
        """Launch until there is a verdict; return it as the contract has it."""
        self.state.status = "running"
        self.save()
        while True:
            step = self._next()
            if isinstance(step, Verdict):
                if self._refine(step):
                    continue
                return self._finish(step)
            if self._told_for_nothing(step):
                self.save()
                continue
            self._round(step)
            self._weigh_again()
            self._tell_remaining()

    def _next(self) -> tuple[Trial, ...] | Verdict:
        problem = self.state.problem()
        spent = (self._clock.monotonic() - self._began) / 60.0
        limit = self.how.max_minutes
        if limit is not None and spent >= limit:
            problem = replace(problem, options=Options(max_trials=0))
            step = next_round(problem, self.state.history(), 1)
            if isinstance(step, Verdict) and step.status is Status.BUDGET:
                return replace(step, reason=f"the {limit:g} minutes are over")
            return step
        return next_round(problem, self.state.history(), len(self.hosts))

    def _use_stage(self) -> None:
        self.ground.space = self.state.space
        self.ground.base = self.state.stage.base

    # --- what costs no launch ---

    def _told_for_nothing(self, step: tuple[Trial, ...]) -> bool:
        """Note what the resolver refuses, and what an equal configuration told already."""
        found = False
        for trial in step:
            names = names_of(self.state.space, trial.on)
            stage = len(self.state.stages) - 1
            seen = [e for e in self.state.trials if e.stage == stage]
            if any(e.on == names and e.outcome != Outcome.INFRA for e in seen):
                continue  # a repeat, on purpose
            profile = self._profile(trial)
            (resolved,) = self.ground.resolver.ask([self.ground.rendered(profile)])
            told = [e for e in seen if e.resolved == resolved.digest and e.launched and e.full]
            told = [e for e in told if e.outcome != Outcome.INFRA]
            if resolved.error:
                entry = self._entry(trial, Judged(Outcome.INVALID, note=resolved.error), "", 0.0)
                self._add(replace(entry, resolved=resolved.digest))
                found = True
            elif told and trial.purpose is Purpose.SEARCH:
                note = f"resolves to the launch of trial {told[-1].number}"
                copy = replace(
                    told[-1], on=names, purpose=trial.purpose.value, cached=True, note=note,
                    confounded=trial.confounded,
                )  # fmt: skip
                self._add(copy)
                found = True
        return found

    # --- launches ---

    def _round(self, step: tuple[Trial, ...]) -> None:
        """Launch the trials of a round, one a host, and write down each as it comes."""
        pairs = list(zip(step, self.hosts, strict=False))
        if len(pairs) == 1:
            self._one(*pairs[0])
            return
        with concurrent.futures.ThreadPoolExecutor(len(pairs)) as pool:
            futures = [
                pool.submit(self._launch, trial, host, place)
                for place, (trial, host) in enumerate(pairs)
            ]
            try:
                pending = set(futures)
                while pending:
                    _, pending = concurrent.futures.wait(pending, timeout=0.2)
            except KeyboardInterrupt:
                for _, host in pairs:
                    host.stop.set()
                    host.session.cancel()
                concurrent.futures.wait(futures)
                raise
        # The planner puts the bad end first: what it shows is what the others are compared with.
        for (trial, host), future in zip(pairs, futures, strict=True):
            self._judged(trial, host, *future.result())

    def _one(self, trial: Trial, host: TrialHost) -> None:
        self._judged(trial, host, *self._launch(trial, host))

    def _profile(self, trial: Trial) -> Profile:
        return self.ground.profile(self.ground.set_of(trial.on))

    def _launch(
        self, trial: Trial, host: TrialHost, place: int = 0
    ) -> tuple[Launched, float, Judged | None]:
        """Launch one trial and leave the host clean; also what ``--check`` said of it."""
        proof = trial.purpose is not Purpose.SEARCH
        fast = self.state.options.get("fast") == "on" and not proof
        profile = self._profile(trial)
        number = len(self.state.trials) + 1 + place
        event = {
            "event": "trial-start", "number": number, "host": host.name,
            "on": list(names_of(self.state.space, trial.on)), "purpose": trial.purpose.value,
        }  # fmt: skip
        with self._mutex:
            self.state.more["running"] = event
            self.save()
        self.tell(event)
        chosen = with_dummy_weights(profile, self.how.fast_layers) if fast else profile
        sign = "" if proof else self.state.hunted.sign
        return self._attempt(
            host, chosen, self._words(trial), sign=sign, full=proof, check=self.how.check
        )

    def _attempt(
        self, host: TrialHost, profile: Profile, what: str, *, sign: str, full: bool, check: str
    ) -> tuple[Launched, float, Judged | None]:
        """Launch a profile, judge what serves by ``check``, leave the host clean; also the seconds it took."""
        began = self._clock.monotonic()
        launched, said = Launched({}), None
        try:
            host.clean()
            try:
                reason = f"bisect {self.state.id}: {what}"
                launched = host.launch(profile, sign=sign, full=full, reason=reason, tell=self.tell)
                if check and launched.result["state"] == "ready":
                    said = checked(check, host)
            finally:
                with uninterrupted():
                    self._end(host, launched)
            if host.rebooted():
                launched, said = Launched(REBOOTED), None
        except (UnreachableError, RemoteError) as error:
            launched, said = _spoiled(error), None
        return launched, self._clock.monotonic() - began, said

    def _end(self, host: TrialHost, launched: Launched) -> None:
        launch = launched.result.get("launch_id") if launched.cut else None
        hunted = self.state.hunted
        try:
            host.end(
                at_once=launched.cut or not launched.result,
                launch=launch,
                outcome="failed-start",
                phase=hunted.phase,
                signature=hunted.signature,
            )
        except RemoteError as error:
            if error.reference != SILENT:  # what it told before stands; the next launch waits
                raise

    def _words(self, trial: Trial) -> str:
        names = names_of(self.state.space, trial.on)
        return " + ".join(names) if names else "the good end"

    # --- judging ---

    def _judged(
        self, trial: Trial, host: TrialHost, launched: Launched, seconds: float, said: Judged | None
    ) -> None:
        judged = said or self._judge(trial, launched)
        if judged.outcome is Outcome.SAME and not self.state.hunted.fingerprint:
            self._found_the_hunted(judged, launched.sign)
        self._add(self._entry(trial, judged, host.name, seconds, launched))
        if trial.on == self.state.problem().full and judged.outcome is Outcome.SAME:
            self._ask_fast(host)

    def _judge(self, trial: Trial, launched: Launched) -> Judged:
        hunted = self.state.hunted
        if launched.cut:
            return Judged(
                Outcome.SAME, hunted.phase, hunted.signature, hunted.label, hunted.fingerprint,
                "decided at its first line",
            )  # fmt: skip
        known = hunted if hunted.fingerprint else None
        judged = judge(launched.result, known)
        if judged.outcome is Outcome.INFRA and launched.fault is not None:
            return replace(judged, note=f"{launched.fault.reference}: {launched.fault.message}")
        if (
            known is None
            and judged.outcome is Outcome.SAME
            and trial.on != self.state.problem().full
        ):
            # Only the bad end says what is hunted; another set's failure waits for it.
            return replace(judged, outcome=Outcome.OTHER)
        if self._twice(trial, judged):
            return replace(judged, outcome=Outcome.SAME, note="the bad end fails so each time")
        return judged

    def _twice(self, trial: Trial, judged: Judged) -> bool:
        """Return whether what looks like the host's fault is what the bad end does each time."""
        if judged.outcome is not Outcome.INFRA or judged.label not in INFRA_LABELS:
            return False
        names = names_of(self.state.space, trial.on)
        full = trial.on == self.state.problem().full
        before = [e for e in self.state.trials if e.on == names and e.outcome == Outcome.INFRA]
        return full and any(e.fingerprint == judged.fingerprint for e in before)

    def _found_the_hunted(self, judged: Judged, sign: str) -> None:
        """Remember the crash; what its label says of the flags counts from the next look on."""
        self.state.hunted = hunted_by(judged, sign)
        self._new_label = judged.label

    def _weigh_again(self) -> None:
        """Put the switches into the order that the crash's label asks for; between rounds only."""
        if self._new_label and len(self.state.stages) == 1:
            stage = self.state.stage
            space = _by_weight(reweigh(stage.space, self._new_label))
            self.state.stages[-1] = Stage(space, stage.base)
            self._use_stage()
        self._new_label = ""

    def _ask_fast(self, host: TrialHost) -> None:
        """Try the bad end with dummy weights: they are used only if they show the very same crash."""
        if not self.how.fast or self.state.options.get("fast") is not None:
            return
        if any(p.name == "load-format" for s in self.state.space.switches for p in s.parts):
            self.state.options["fast"] = "off"
            return
        trial = Trial(self.state.problem().full, Purpose.CALIBRATE)
        profile = with_dummy_weights(self._profile(trial), self.how.fast_layers)
        what = "the bad end with dummy weights"
        launched, seconds, _ = self._attempt(host, profile, what, sign="", full=False, check="")
        judged = judge(launched.result, self.state.hunted)
        self.state.options["fast"] = "on" if judged.outcome is Outcome.SAME else "off"
        entry = self._entry(trial, judged, host.name, seconds, launched)
        self._add(replace(entry, stage=FAST_STAGE, full=False, note="dummy weights"))

    # --- writing down ---

    def _entry(
        self,
        trial: Trial,
        judged: Judged,
        host: str,
        seconds: float,
        launched: Launched | None = None,
    ) -> Entry:
        result = launched.result if launched else {}
        space = self.state.space
        rendered = self.ground.rendered(self._profile(trial))
        fast = self.state.options.get("fast") == "on" and trial.purpose is Purpose.SEARCH
        digest = ""
        if launched is not None:
            (resolved,) = self.ground.resolver.ask([rendered])
            digest = resolved.digest
        return Entry(
            0, len(self.state.stages) - 1, names_of(space, trial.on), trial.purpose.value,
            judged.outcome.value, judged.phase, judged.signature, judged.label,
            judged.fingerprint, host, round(seconds, 3), rfc3339(self._clock.now()),
            result.get("launch_id"), result.get("invocation_id"), result.get("incident"),
            resolved=digest, confounded=trial.confounded,
            parent=None if trial.parent is None else names_of(space, trial.parent),
            full=not fast, note=judged.note, command=_typed(rendered.profile.env, rendered.argv),
            patches=launched.patches if launched else (),
        )  # fmt: skip

    def _add(self, entry: Entry) -> None:
        with self._mutex:
            self.state.more.pop("running", None)
            entry = self.state.add(entry)
            self.save()
        self.tell({"event": "trial"} | entry_json(entry))

    def save(self) -> None:
        """Write the state here and on every host; a host that is away gets it the next time."""
        self.state.version += 1
        self.state.updated_at = rfc3339(self._clock.now())
        store.save(self.state)
        for host in self.hosts:
            try:
                host.save(self.state.to_json())
            except UnreachableError:
                continue

    def _tell_remaining(self) -> None:
        step = remaining(self.state.problem(), self.state.history(), len(self.hosts))
        self.tell({
            "event": "remaining", "rounds": round(step.mean, 1), "at_most": step.high,
            "seconds": round(step.mean * seconds_each(self.state), 1), "text": str(step),
            "time": step.minutes(seconds_each(self.state)),
        })  # fmt: skip

    # --- the end ---

    def _refine(self, step: Verdict) -> bool:
        """Go on inside a switch of several differences that turned out to be guilty."""
        if not self.how.split or not refine(self.state, step):
            return False
        self._use_stage()
        self.tell({"event": "split", "flags": [s.name for s in self.state.space.switches]})
        self.save()
        return True

    def _finish(self, step: Verdict) -> dict[str, Any]:
        coarse = self.state.verdict if len(self.state.stages) > 1 else None
        said = verdicts.to_json(self.state, step)
        if coarse is not None and step.status is not Status.FOUND:
            said = coarse | {
                "reason": f"its parts could not be told apart: {step.reason or step.status}"
            }
            said["trials"] = sum(1 for e in self.state.trials if counts(e))
        said["state_file"] = str(store.path_of(self.state.id))
        self.state.verdict = said
        self.state.status = said["status"]
        self.save()
        return said


def _spoiled(error: FleetError) -> Launched:
    """Return a launch of which nothing is known; raise what ends the bisect instead of one launch."""
    if not isinstance(error, UnreachableError) and error.reference != SILENT:
        raise error
    state = "unreachable" if isinstance(error, UnreachableError) else "apply-failed"
    return Launched({"state": state, "error": error.reference, "phase": "unknown"}, fault=error)


def _typed(env: Mapping[str, str], argv: Sequence[str]) -> str:
    """Return a launch as a person types it, with what the profile sets in the environment."""
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in sorted(env.items())), shlex.join(argv)])


def _by_weight(space: Space) -> Space:
    order = sorted(space.switches, key=lambda s: (-s.weight, s.name))
    return replace(space, switches=tuple(order))
