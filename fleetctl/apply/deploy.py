"""One deploy on one host: plan, apply, watch, evidence, record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fleetctl.apply import afterwards, audit, collector, evidence, locking
from fleetctl.apply.outcome import Outcome, State, state_of
from fleetctl.apply.prepare import Prepared, prepare
from fleetctl.apply.session import Event, Interrupted, Session
from fleetctl.apply.watching import watch, watch_args
from fleetctl.apply.wish import Wish, token
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.errors import FleetError, ManyErrors, RefusedError, RemoteError, UnreachableError
from fleetctl.model.fleet import Target
from fleetctl.model.launch import LaunchRecord
from fleetctl.model.plan import MASK, WriteFile
from fleetctl.patching import active, deploying, hosts
from fleetctl.render.restore import body_of

Tell = Callable[[Event], None]
APPLY_MARGIN = 120.0  # seconds on top of what the stops may take


class Deployment:
    """A deploy on its way. ``prepare`` changes nothing; ``carry_out`` does."""

    def __init__(self, target: Target, wish: Wish, session: Session, tell: Tell) -> None:
        self.target = target
        self.wish = wish
        self.session = session
        self.prepared: Prepared | None = None
        self.launch: LaunchRecord | None = None
        self.watch_more: dict[str, Any] = {}
        self._tell = tell
        self._began = time.monotonic()
        self._lock = {
            "token": token(),
            "who": audit.who(),
            "why": _why(wish),
            "command": audit.command_line(),
        }

    def tell(self, event: Event) -> None:
        """Send an event with the name of host and service."""
        name = event.pop("event")
        head = {"event": name, "host": self.target.host.name, "service": self.target.service.name}
        self._tell(head | event)

    def prepare(self, *allow: str) -> Outcome | None:
        """Make the plan and tell it; return an outcome when it ends here. ``allow``: more overrides."""
        self.wish = replace(self.wish, allow=self.wish.allow | frozenset(allow))
        try:
            locking.wait(self.session, self.target, self.wish.lock_wait, self.tell)
            prepared = self.prepared = prepare(self.session, self.target, self.wish)
        except FleetError as error:
            return self.failed(error)
        plan = prepared.plan
        body = plan.to_json()
        body["changed_since_ready"] = _texts(prepared)
        body["findings"] = [finding.to_json() for finding in prepared.findings]
        body["texts"] = [step.describe() for step in plan.steps]
        body["warnings"] = [
            *body["warnings"], *active.remarks(str(self.target), prepared.facts.patch_notes)
        ]  # fmt: skip
        for step in body["steps"]:
            if step.get("path") == collector.PATH:
                step["content"] = None  # the program's own file: long, and the same for all
        self.tell({"event": "plan"} | body)
        if plan.empty:
            return self._unchanged(prepared)
        if plan.refusals:
            first = plan.refusals[0]
            more = tuple(f"{r.reference}: {r.message}" for r in plan.refusals[1:])
            return self.failed(
                RefusedError(
                    first.reference, first.message, where=first.where, hint=first.hint, context=more
                )
            )
        return None

    def carry_out(self) -> Outcome:
        """Apply the plan and watch what comes of it; every end is an outcome."""
        assert self.prepared is not None
        self.launch = self._new_launch(self.prepared)
        try:
            outcome = self._go(self.prepared)
        except FleetError as error:
            outcome = self.failed(error)
        self._record(outcome)
        return outcome

    # --- the way ---

    def _go(self, prepared: Prepared) -> Outcome:
        pushed = self._push(prepared)
        try:
            applied = self._apply(prepared)
        except (RemoteError, UnreachableError) as error:
            if pushed and not _may_run(error):
                deploying.take_back(self.session.call, self.target, pushed, self._patcher())
            raise
        invocation = str(applied["invocation_id"])
        if not self.wish.wait:
            return self._outcome(State.STARTED, invocation_id=invocation)
        evidence.warm_up()
        args = watch_args(self.target, prepared.rendered.config, invocation) | {
            "launch_id": self.launch.id if self.launch else None,
            "lock": self._lock,
            "requests": list(self.wish.requests),
            "limits": self.wish.limits(),
            "boot_id": prepared.facts.boot_id,
        } | self.watch_more  # fmt: skip
        try:
            result = watch(self.session, args, self.tell)
        except Interrupted:  # between two words of its host: what was restarted is restarted
            return self._outcome(State.INTERRUPTED, error="interrupted", invocation_id=invocation)
        return self._settle(result, invocation)

    def _push(self, prepared: Prepared) -> list[dict[str, Any]]:
        """Put the patches of the profile there, before anything starts."""
        if not self.wish.patches:
            return []
        facts = prepared.facts
        version = str(facts.interpreter.sglang)
        done = deploying.push_missing(
            self.session.call,
            self.target,
            self.wish.patches,
            facts.patch_notes,
            self._patcher(),
            version,
        )
        for one in done:
            self.tell(
                {"event": "step", "do": "push-patch", "state": "done", "target": one["patch"]}
            )
        return done

    def _patcher(self) -> hosts.Wish:
        return hosts.Wish(
            self._lock["who"], self._lock["command"], self.wish.reason or self._lock["why"],
            break_lock=self.wish.break_lock, python=self.wish.profile.python, token=self._lock["token"],
        )  # fmt: skip

    def _apply(self, prepared: Prepared) -> dict[str, Any]:
        assert self.launch is not None
        steps = prepared.plan.to_json(masked=False)["steps"]
        assert not any(_is_mask(s) for s in prepared.plan.steps), "secrets were not fetched"
        facts = prepared.facts
        args = {
            "service": facts.service,
            "unit": prepared.plan.unit,
            "steps": steps,
            "lock": self._lock,
            "break_lock": self.wish.break_lock,
            "reason": self.wish.reason,
            "watch": self.wish.wait,
            "launch": evidence.launch_body(
                self.launch, unit=prepared.plan.unit, changed_since_ready=_texts(prepared)
            ),
            "revision": body_of(prepared.rendered, self._restores()),
            "expect": {
                "invocation_id": facts.unit.invocation_id,
                "last_launch": facts.last_launch.id if facts.last_launch else None,
            },
        }
        stops = sum(getattr(s, "timeout", 0.0) for s in prepared.plan.steps)
        with audit.change({
            "do": "deploy", "host": facts.host, "service": facts.service, "launch": self.launch.id,
            "summary": prepared.plan.summary(), "reason": self.wish.reason,
        }):  # fmt: skip
            return self._send(args, stops + APPLY_MARGIN)

    def _send(self, args: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Have the plan carried out; return what came of it, also where the connection was lost on the way."""
        assert self.launch is not None
        try:
            return self.session.call("apply.run", args, on_event=self.tell, timeout=seconds)
        except (UnreachableError, RemoteError) as error:
            if isinstance(error, RemoteError) and error.reference != "agent-died":
                raise
            invocation = afterwards.invocation_of(
                self.session, self.target, self.launch.id, self._lock, error, self.tell, seconds
            )
            return {"invocation_id": invocation}

    def _restores(self) -> int | None:
        return None if self.wish.revision is None else self.wish.revision.number

    def _settle(self, result: dict[str, Any], invocation: str) -> Outcome:
        state = State(result["state"])
        outcome = self._outcome(
            state,
            error=result["error"],
            phase=result["phase"],
            invocation_id=invocation,
        )
        for name in ("ready_seconds", "crash", "requests", "last_line", "message", "restarts"):
            if result.get(name) not in (None, [], ""):
                outcome.more[name] = result[name]
        settings = self.prepared.rendered.settings if self.prepared else {}
        if outcome.error == "crashed" and not self.watch_more and settings.get("restart") != "no":
            outcome.more["restarts_after"] = settings.get("restart_sec")
        evidence.settle(self.session, outcome, result, self.wish.requests)
        return outcome

    def _unchanged(self, prepared: Prepared) -> Outcome:
        """Say also how it is: what runs unchanged may hang."""
        outcome = self._outcome(State.UNCHANGED, invocation_id=prepared.facts.unit.invocation_id)
        service = self.target.service
        args = {"service": service.name, "unit": service.unit, "port": service.port}
        with contextlib.suppress(FleetError):
            outcome.more["status"] = self.session.call("status.look", args)["state"]
        return outcome

    # --- results ---

    def failed(self, error: FleetError) -> Outcome:
        """Return the outcome of a fault."""
        if isinstance(error, Interrupted) and not error.hint:
            error.hint = "nothing was restarted: the host has its old launch"
        first = error.errors[0] if isinstance(error, ManyErrors) else error
        outcome = self._outcome(state_of(error), error=first.reference)
        outcome.fault = error
        return outcome

    def _outcome(self, state: State, **fields: Any) -> Outcome:
        more: dict[str, Any] = {}
        if self.prepared is not None:
            since = _texts(self.prepared)
            more = {
                "changed": [str(a) for a in self.prepared.plan.changed],
                "changed_since_ready": since,
                "last_ready_profile": self.prepared.last_ready_profile or None,
                "profile": self.wish.profile.name,
                "overrides": list(self.wish.overrides),
                "sglang": self.prepared.facts.interpreter.sglang,
            }
        return Outcome(
            self.target.host.name,
            self.target.service.name,
            state,
            launch_id=self.launch.id if self.launch else None,
            seconds=time.monotonic() - self._began,
            more=more,
            **fields,
        )

    def _new_launch(self, prepared: Prepared) -> LaunchRecord:
        now = SystemClock().now()
        return LaunchRecord(
            id=f"{now:%Y%m%dT%H%M%S}-{token()}",
            host=self.target.host.name,
            service=self.target.service.name,
            config=prepared.rendered.config,
            started_at=rfc3339(now),
            changed=tuple(str(a) for a in prepared.plan.changed),
            by=audit.who(),
            reason=self.wish.reason,
        )

    def _record(self, outcome: Outcome) -> None:
        assert self.launch is not None
        triage = outcome.triage or {}
        ended = None if outcome.state in (State.READY, State.STARTED, State.INTERRUPTED) else True
        self.launch = replace(
            self.launch,
            invocation_id=outcome.invocation_id,
            outcome=outcome.state.value,
            phase=outcome.phase,
            label=triage.get("label"),
            signature=triage.get("signature"),
            fingerprint=triage.get("fingerprint"),
            incident=outcome.incident,
            ended_at=rfc3339(SystemClock().now()) if ended else None,
            ready_seconds=outcome.more.get("ready_seconds"),
        )
        try:
            evidence.record_launch(self.launch)
        except FleetError as error:
            outcome.more["log"] = f"{error.reference}: {error}"


def _may_run(error: FleetError) -> bool:
    """Return whether the new launch may run in spite of a fault."""
    issued = error.reference in ("start-failed", "systemd-silent")
    return issued or isinstance(error, afterwards.EitherError)


def _texts(prepared: Prepared) -> list[str] | None:
    if prepared.since_ready is None:
        return None
    return [str(a) for a in prepared.since_ready]


def _why(wish: Wish) -> str:
    if wish.revision is not None:
        return f"rollback to revision {wish.revision.number}"
    return f"deploy {wish.profile.name}"


def _is_mask(step: object) -> bool:
    return isinstance(step, WriteFile) and step.secret and step.content == MASK
