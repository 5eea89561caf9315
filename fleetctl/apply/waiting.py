"""``wait``: attach to what runs there, or is about to, and watch it until it is ready or has failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fleetctl.apply import evidence
from fleetctl.apply.deploy import Tell
from fleetctl.apply.outcome import Outcome, State, state_of
from fleetctl.apply.session import Event, Session
from fleetctl.apply.standing import facts_of
from fleetctl.apply.watching import watch, watch_args
from fleetctl.errors import FleetError, UnreachableError
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Target
from fleetctl.model.launch import LaunchConfig
from fleetctl.patching import active

RESTARTING = ("auto-restart", "auto-restart-queued")


class Waiting:
    """The wait for one service. ``look`` finds out what runs, ``carry_out`` watches it."""

    def __init__(
        self, target: Target, session: Session, tell: Tell, limits: dict[str, Any]
    ) -> None:
        self.target = target
        self.session = session
        self.limits = limits
        self.config = LaunchConfig("", "")
        self.rank = 0
        self.watch_more: dict[str, Any] = {}
        self.result: dict[str, Any] = {}
        # Of a server over several hosts: how this node's end is read, and who else is told of it.
        self.judge: Callable[[dict[str, Any]], tuple[State, str | None]] | None = None
        self.ended: Callable[[Outcome], None] | None = None
        self.outcome = Outcome(target.host.name, target.service.name, State.FAILED_START)
        self._facts: HostFacts | None = None
        self._tell = tell
        self._began = time.monotonic()

    def tell(self, event: Event) -> None:
        """Send an event with the name of host and service."""
        name = event.pop("event")
        head = {"event": name, "host": self.target.host.name, "service": self.target.service.name}
        self._tell(head | event)

    def look(self) -> Outcome | None:
        """Find out what is there; return an outcome where that is its end already."""
        try:
            facts = self._facts = facts_of(self.session, self.target)
        except FleetError as error:
            return self.failed(error)
        self.outcome.invocation_id = facts.unit.invocation_id or None
        for remark in active.remarks(str(self.target), facts.patch_notes):
            self.tell({"event": "warning", "message": remark})
        launch = facts.last_launch
        own = launch is not None and launch.invocation_id == facts.unit.invocation_id
        # What systemd starts again is the same unit, though no launch of ours.
        if launch is not None and launch.invocation_id and (own or facts.unit.n_restarts):
            self.config = launch.config
        self.outcome.launch_id = launch.id if launch is not None and own else None
        return None

    def carry_out(self) -> Outcome:
        """Watch to the end; every end is an outcome. ``look`` comes first."""
        assert self._facts is not None
        try:
            if self._follow(self._facts):
                self._watch()
        except FleetError as error:
            self.failed(error)
        self.outcome.seconds = time.monotonic() - self._began
        if self.ended is not None:
            self.ended(self.outcome)
        return self.outcome

    def failed(self, error: FleetError) -> Outcome:
        """Return the outcome of a fault."""
        if error.reference != "not-running":
            self.outcome.state = state_of(error)
        self.outcome.error, self.outcome.fault = error.reference, error
        self.outcome.seconds = time.monotonic() - self._began
        return self.outcome

    # --- what to watch ---

    def _follow(self, facts: HostFacts) -> bool:
        """Return whether there is an invocation to watch; after a crash, the one that systemd starts next."""
        unit = facts.unit
        if not unit.alive:
            return self._down(unit.invocation_id)
        if unit.sub_state not in RESTARTING and unit.active_state != "deactivating":
            return True
        self.tell({"event": "waiting", "for": "restart", "invocation_id": unit.invocation_id})
        args = {
            "unit": unit.name,
            "invocation_id": unit.invocation_id,
            "timeout": self.limits.get("timeout"),
        }
        found = self._await(args)
        match found["state"]:
            case "started":
                self.outcome.invocation_id = found["invocation_id"]
                self.outcome.launch_id = None
                return True
            case "down":
                return self._down(unit.invocation_id)
            case "timeout":
                self.outcome.state, self.outcome.error = State.TIMED_OUT, "timeout"
            case _:
                self._settle({"state": "interrupted", "error": "interrupted", "phase": "unknown"})
        return False

    def _await(self, args: dict[str, Any]) -> dict[str, Any]:
        """Wait on the host for what follows an invocation, also across a connection that is lost."""
        while True:
            try:
                return self.session.call("pending.next", args, timeout=None)
            except UnreachableError:
                self.session.reconnect(self.tell)

    def _down(self, invocation: str) -> bool:
        """It does not run: say why. FleetError ``not-running`` unless systemd has given up on it."""
        launch = self._facts.last_launch if self._facts else None
        known = [invocation, (launch.invocation_id or "") if launch else ""]
        name, where = self.target.service.unit, str(self.target)
        why = self.session.call("pending.ended", {"unit": name, "invocations": known})
        asked = why["stopped"]
        if asked:
            by = f" by {asked['by']}" if asked["by"] else ", not by fleetctl"
            reason = f": {asked['reason']}" if asked["reason"] else ""
            again = f" -p {launch.config.profile}" if launch and launch.config.profile else ""
            raise FleetError(
                "not-running",
                f"{name} was stopped on purpose at {asked['at']}{by}{reason}",
                where=where,
                hint=f"`fleetctl deploy {where}{again}` starts it again",
            )
        if not (why["given_up"] and invocation):
            raise FleetError(
                "not-running",
                f"{name} does not run: {why['how']}",
                where=where,
                hint=f"`fleetctl collect {where}` brings the evidence of its end",
            )
        self._gave_up(invocation, why["restarts"])
        return False

    def _gave_up(self, invocation: str, restarts: int) -> None:
        """Systemd starts it no more: what its last start died of is the answer."""
        outcome, service = self.outcome, self.target.service
        outcome.state, outcome.error = State.CRASH_LOOP, "crash-loop"
        outcome.more["restarts"] = restarts
        outcome.more["message"] = "systemd has given up: the unit's start limit is reached"
        args = {"service": service.name, "unit": service.unit, "invocation_id": invocation}
        self.result = self.session.call("collect.freeze", args)
        if self.judge is None:
            evidence.settle(self.session, outcome, self.result)
        outcome.phase = (outcome.triage or {}).get("phase") or "unknown"

    # --- the watch ---

    def _watch(self) -> None:
        outcome = self.outcome
        assert outcome.invocation_id is not None
        args = watch_args(self.target, self.config, outcome.invocation_id)
        limits = dict(self.limits)
        if limits.get("timeout") is not None:  # of the whole wait
            limits["timeout"] = max(1.0, limits["timeout"] - (time.monotonic() - self._began))
        args |= {"limits": limits, "attached": True, "launch_id": outcome.launch_id}
        if outcome.launch_id is None:  # somebody may have changed the unit's arguments
            args["warms_up"] = False
        self.result = watch(self.session, args | self.watch_more, self.tell)
        self._settle(self.result)

    def _settle(self, result: dict[str, Any]) -> None:
        outcome = self.outcome
        outcome.state, outcome.error = State(result["state"]), result["error"]
        if self.judge is not None:
            outcome.state, outcome.error = self.judge(result)
        outcome.phase = result["phase"]
        wanted = ("crash", "message", "last_line", "restarts")
        outcome.more |= {k: result[k] for k in wanted if result.get(k)}
        if self.judge is None:  # else the evidence of all nodes is looked at together
            evidence.settle(self.session, outcome, result)
