"""A rolling deploy: looks at every host, then takes batch after batch by the road of every deploy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never

from fleetctl.apply import audit, standing, together
from fleetctl.apply.crew import Crew
from fleetctl.apply.deploy import Deployment, Tell
from fleetctl.apply.outcome import FAILED, Outcome, State, state_of
from fleetctl.apply.outcome import exit_code as common
from fleetctl.apply.wish import Wish
from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import Exit, FleetError
from fleetctl.fleet import hooks as hook
from fleetctl.fleet import rollback, rollout
from fleetctl.fleet.hooks import Hooks
from fleetctl.fleet.rollout import Limits, Place, Rollout
from fleetctl.model.fleet import Target

LOOK_EVERY = 2.0  # seconds between two looks at a canary that soaks
STRIKES = 2  # looks in a row that may go wrong without the server being gone


@dataclass(frozen=True, slots=True)
class Road:
    """How a rolling change goes."""

    limits: Limits
    hooks: Hooks = field(default_factory=Hooks)
    resume: bool = False
    rollback: bool = False  # a host that failed goes back to its last ready revision
    site: Path = Path()


@dataclass(frozen=True, slots=True)
class Ill:
    """What is wrong with a canary. ``final``: seen once is enough; ``error``: it could not be asked."""

    what: str
    final: bool = False
    error: FleetError | None = None


@dataclass(slots=True)
class Roller:
    """One rolling change. ``run`` returns the outcomes and the closing report."""

    targets: Sequence[Target]
    wish: Wish
    road: Road
    tell: Tell
    done: Callable[[Outcome], None]
    confirm: Callable[[Sequence[str]], bool]
    typed: Callable[[str], bool] = lambda _: False
    hands: Crew | None = None  # on its way to the hosts already; used for the first look
    clock: Clock = field(default_factory=SystemClock)
    ends: dict[str, Outcome] = field(default_factory=dict)
    rolled_back: dict[str, int] = field(default_factory=dict)
    _by_name: dict[str, Target] = field(default_factory=dict)

    def run(self) -> tuple[list[Outcome], dict[str, Any]]:
        """Go through all batches; every end is told in the report."""
        began = time.monotonic()
        self._by_name = {str(t): t for t in self.targets}
        state = self._first()
        if state.of(Place.PENDING) and not state.why:
            asked = state.of(Place.PENDING)
            if not self.confirm(asked):
                state = state.stopped("nobody said yes")
                for name in asked:
                    self._end(name, self._refused(name))
        state = self._go(state)
        return [self.ends[n] for n in state.order if n in self.ends], self._report(state, began)

    def _refused(self, name: str) -> Outcome:
        target = self._by_name[name]
        found = Outcome(target.host.name, target.service.name, State.REFUSED)
        found.error, found.fault = "not-confirmed", together.unconfirmed()
        return found

    # --- before anything stops ---

    def _first(self) -> Rollout:
        """Look at every host and plan for it: what is unreachable or refused is known before the first stop."""
        found = self._looked_at(self.targets, self.wish)
        for name in [n for n, o in found.items() if o is not None and o.error == "protected-host"]:
            host = self._by_name[name].host.name
            if self.typed(host):
                self.wish = replace(self.wish, allow=self.wish.allow | {f"--yes-protected={host}"})
                found |= self._looked_at([self._by_name[name]], self.wish)
        places = {}
        for name, outcome in found.items():
            places[name] = Place.PENDING if outcome is None else _place(outcome)
            if outcome is not None:
                self._end(name, outcome)
        state = rollout.begin(places, self.road.limits, resume=self.road.resume)
        if any(o is not None and o.state == State.INTERRUPTED for o in found.values()):
            return state.stopped("interrupted")
        return state

    def _looked_at(self, targets: Sequence[Target], wish: Wish) -> dict[str, Outcome | None]:
        def quiet(event: dict[str, Any]) -> None:
            if event["event"] != "plan":  # told again when its turn comes
                self.tell(event)

        hands, self.hands = self.hands, None
        with together.crew() if hands is None else contextlib.closing(hands) as hosts:
            ways = [Deployment(t, wish, hosts.session(t), quiet) for t in targets]
            ends = hosts.each(lambda way: way.prepare(), ways)
        return {str(t): o for t, o in zip(targets, ends, strict=True)}

    # --- the way ---

    def _go(self, state: Rollout) -> Rollout:
        while True:
            action = state.next()
            try:
                match action:
                    case rollout.Finish():
                        return state.stopped(action.why) if action.why else state
                    case rollout.Pause(seconds):
                        self._note("pause", seconds=seconds)
                        self.clock.sleep(seconds)
                        state = state.pause_ended()
                    case rollout.Soak(name, seconds):
                        state = state.soak_ended(self._soak(name, seconds))
                    case rollout.Start(names, canary):
                        self._note("batch", hosts=list(names), canary=canary)
                        state = self._batch(state.started(names), names)
                    case rollout.Wait():
                        raise AssertionError("a batch comes to its end before the next step")
                    case _:
                        assert_never(action)
            except KeyboardInterrupt:
                state = state.stopped("interrupted")

    def _batch(self, state: Rollout, names: Sequence[str]) -> Rollout:
        targets = [self._by_name[n] for n in names]
        drained: list[Target] = []
        ends: dict[str, Outcome] = {}
        try:
            faults = self._drain(targets, drained)
            if not faults:
                for outcome in together.deploy(
                    targets, self.wish, self.tell, lambda _: True, lambda _: None
                ):
                    ends[f"{outcome.host}/{outcome.service}"] = outcome
            if self.road.rollback:
                self._roll_back(ends)
        finally:
            left = self._undrain(drained, ends)
        for name in names:
            found = self._outcome(name, faults.get(name) or left.get(name), ends.get(name))
            if found is None:
                state = state.ended(name, Place.PENDING)
                continue
            self._end(name, found)
            if found.state == State.INTERRUPTED:
                state = state.stopped("interrupted")
            state = state.ended(name, _place(found))
        return state

    def _outcome(
        self, name: str, fault: FleetError | None, outcome: Outcome | None
    ) -> Outcome | None:
        return outcome if fault is None else _faulty(self._by_name[name], fault, outcome)

    def _end(self, name: str, outcome: Outcome) -> None:
        if name in self.rolled_back:
            outcome.more["rolled_back"] = self.rolled_back[name]
        self.ends[name] = outcome
        self.done(outcome)

    # --- drain ---

    def _drain(self, targets: Sequence[Target], drained: list[Target]) -> dict[str, FleetError]:
        """Drain each; ``drained`` has those that are, also where this does not come to its end."""
        if not self.road.hooks.drain:
            return {}
        return self._hook(self.road.hooks.drain, "drain", [(t, "") for t in targets], drained)

    def _undrain(
        self, drained: Sequence[Target], ends: Mapping[str, Outcome]
    ) -> dict[str, FleetError]:
        """Undo every drain, however the deploy ended; STATE tells the command how."""
        states = [
            (t, "rolled-back" if str(t) in self.rolled_back else _state_of(ends.get(str(t))))
            for t in drained
        ]
        return self._hook(self.road.hooks.undrain, "undrain", states, [])

    def _hook(
        self, command: str, name: str, items: Sequence[tuple[Target, str]], done: list[Target]
    ) -> dict[str, FleetError]:
        def one(item: tuple[Target, str]) -> FleetError | None:
            try:
                hook.run(command, name, *item)
            except FleetError as error:
                return error
            done.append(item[0])
            if command:
                self._note(name, host=item[0].host.name, service=item[0].service.name)
            return None

        with together.crew() as crew:
            said = crew.each(one, items)
        return {str(t): e for (t, _), e in zip(items, said, strict=True) if e is not None}

    # --- canary ---

    def _soak(self, name: str, seconds: float) -> str:
        """Watch the canary; return why it is not well, or "" when it stayed ready."""
        self._note("soak", host=name, seconds=seconds)
        target, until, strikes = self._by_name[name], self.clock.monotonic() + seconds, 0
        invocation = self.ends[name].invocation_id
        with together.crew() as hosts:
            session = hosts.session(target)
            while self.clock.monotonic() < until:
                self.clock.sleep(min(LOOK_EVERY, max(0.1, until - self.clock.monotonic())))
                ill = self._look(session, target, invocation)
                strikes = strikes + 1 if ill else 0
                if ill and (ill.final or strikes >= STRIKES):
                    return self._died(name, ill)
        return ""

    @staticmethod
    def _look(session: Any, target: Target, invocation: str | None) -> Ill | None:
        try:
            line = standing.status(target, session)
        except FleetError as error:
            return Ill(error.message, error=error)
        if line["state"] in ("failed", "looping", "stopped", "absent"):
            return Ill(f"it is {line['state']}", final=True)
        if invocation and line["unit"]["invocation_id"] != invocation:
            return Ill("it was restarted", final=True)
        return None if line["state"] == "ready" else Ill(f"it is {line['state']}")

    def _died(self, name: str, ill: Ill) -> str:
        """A canary that died in its soak: its end becomes the host's result, with evidence by collect.

        One that does not answer may serve all the same: that is no crash.
        """
        before, fault = self.ends[name], ill.what
        state = State.FAILED_START if ill.error is None else state_of(ill.error)
        error = "died-in-soak" if ill.error is None else ill.error.reference
        after = replace(before, state=state, error=error, fault=ill.error, phase="serving")
        after.more = dict(before.more, message=f"ready first, then {fault}")
        if self.road.rollback:
            self._roll_back({name: after})
        self._end(name, after)
        return fault

    # --- back ---

    def _roll_back(self, ends: Mapping[str, Outcome]) -> None:
        for name, outcome in ends.items():
            if outcome.state not in (*FAILED, State.READY_WRONG_CONFIG):
                continue
            target = self._by_name[name]
            head = {"event": "rolled-back", "host": outcome.host, "service": outcome.service}
            base = replace(self.wish, requests=(), patches=(), reason="rollback on failure")
            wishes, faults = rollback.wishes([target], None, base, self.road.site)
            if faults:
                error = faults[0][1]
                self.tell(head | {"state": "not-possible", "error": error.reference,
                                  "message": error.message})  # fmt: skip
                continue
            (back,) = together.deploy([target], wishes, self.tell, lambda _: True, lambda _: None)
            number = wishes[name].revision
            assert number is not None
            self.tell(head | {
                "state": back.state.value, "to": number.number, "error": back.error,
                "launch_id": back.launch_id, "invocation_id": back.invocation_id,
            })  # fmt: skip
            if back.state in (State.READY, State.UNCHANGED):
                self.rolled_back[name] = number.number

    # --- what was and was not done ---

    def _note(self, name: str, **fields: Any) -> None:
        self.tell({"event": "rolling", "do": name} | fields)

    def _report(self, state: Rollout, began: float) -> dict[str, Any]:
        done = "interrupted" if state.why == "interrupted" else "stopped" if state.why else "done"
        event = {
            "event": "rollout",
            "state": done,
            "why": state.why,
            "ready": list(state.of(Place.READY)),
            "unchanged": list(state.of(Place.UNCHANGED)),
            "failed": list(state.of(Place.FAILED)),
            "starting": list(state.of(Place.STARTING)),
            "untouched": list(state.of(Place.PENDING)),
            "rolled_back": self.rolled_back,
            "seconds": round(time.monotonic() - began, 3),
        }
        audit.write({"do": "rollout", "summary": f"{done}: {state.why}" if state.why else done} | {
            k: event[k] for k in ("ready", "failed", "starting", "untouched")
        })  # fmt: skip
        return event


def _place(outcome: Outcome) -> Place:
    """Return where an outcome leaves a host. Unchanged but not serving is no success."""
    if outcome.state == State.READY:
        return Place.READY
    if outcome.state == State.UNCHANGED:
        well = outcome.more.get("status") in (None, "ready")
        return Place.UNCHANGED if well else Place.FAILED
    if outcome.state == State.INTERRUPTED:  # before its restart all was taken back
        return Place.STARTING if outcome.invocation_id else Place.PENDING
    return Place.FAILED


def _state_of(outcome: Outcome | None) -> str:
    return outcome.state.value if outcome else "untouched"


def _faulty(target: Target, fault: FleetError, outcome: Outcome | None) -> Outcome:
    """Return the outcome of a host whose hook failed: not restarted, or ready but out of the router."""
    state = State.REFUSED if outcome is None else outcome.state
    if outcome is not None and outcome.state not in (State.READY, State.UNCHANGED):
        return outcome  # why the deploy failed says more
    found = outcome or Outcome(target.host.name, target.service.name, state)
    return replace(found, state=State.REFUSED, error=fault.reference, fault=fault)


def exit_code(outcomes: Sequence[Outcome], report: Mapping[str, Any]) -> Exit:
    """Return 130 when interrupted, else the hosts' common code; untouched hosts are never a success."""
    if report["state"] == "interrupted":
        return Exit.INTERRUPTED
    code = common(outcomes)
    return Exit.NEGATIVE if code == Exit.OK and (report["untouched"] or report["failed"]) else code
