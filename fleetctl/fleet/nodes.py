"""One server over several hosts: started together, judged by rank 0, explained from all their logs."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fleetctl.apply import evidence, together
from fleetctl.apply.crew import Crew
from fleetctl.apply.deploy import Deployment, Tell
from fleetctl.apply.outcome import Outcome, State
from fleetctl.apply.session import Session
from fleetctl.apply.wish import Wish
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.errors import FleetError, RefusedError
from fleetctl.model import nodes
from fleetctl.model.fleet import Target
from fleetctl.model.nodes import NodeEnd
from fleetctl.model.triage import tells_of_failure

GRACE = 20.0  # seconds for the other nodes to fail by themselves, so that their own story is told
PATIENT = 86400.0  # a node that waits for the others is no hang; rank 0 is what is judged
PHASES = (
    "startup-args", "import", "dist-init", "weight-load", "kv-alloc", "graph-capture", "warmup",
    "serving",
)  # fmt: skip


class Party:
    """What the watches of the nodes tell each other."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.sessions = sessions
        self.running = set(range(len(sessions)))
        self.ready = False
        self.failed: int | None = None  # the rank whose watch ended badly first
        self._lock = threading.Lock()

    def ended(self, rank: int, state: State) -> None:
        """A node's watch is over; rank 0 ready, or any failure, ends those of the others."""
        with self._lock:
            self.running.discard(rank)
            if state == State.READY and rank == 0:
                self.ready = True
                threading.Thread(target=self._end_others, args=(0.0,), daemon=True).start()
            elif state not in (State.READY, State.STARTED) and self.failed is None:
                self.failed = rank
                threading.Thread(target=self._end_others, args=(GRACE,), daemon=True).start()

    def _end_others(self, grace: float) -> None:
        until = time.monotonic() + grace
        while self.running and time.monotonic() < until:
            time.sleep(0.2)
        while self.running:  # again and again: a cancel between two calls is not heard
            for rank in tuple(self.running):
                self.sessions[rank].cancel()
            time.sleep(0.5)


class Way(Protocol):
    """What is done on one node, as far as the others care."""

    rank: int
    target: Target
    session: Session
    result: dict[str, Any]


def follows(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the watch of a node beyond rank 0 is told: it has no endpoint of its own."""
    patient = {"quiet": PATIENT, "phase": dict.fromkeys(PHASES, PATIENT)}
    return {"follow": True, "limits": dict(limits) | patient, "requests": []}


def settled(party: Party, session: Session, result: Mapping[str, Any]) -> tuple[State, str | None]:
    """Return how a node's watch ended; one that was called off ended as its peers did."""
    state, error = State(result["state"]), result["error"]
    if state == State.INTERRUPTED and not session.stop.is_set():
        if party.ready:
            return State.READY, None
        if party.failed is not None:
            return State.FAILED_START, "peer-failed"
    return state, error


class NodeDeployment(Deployment):
    """The deploy of one node; its evidence is left for all of them together."""

    def __init__(
        self, rank: int, party: Party, target: Target, wish: Wish, session: Session, tell: Tell
    ) -> None:
        super().__init__(target, wish, session, tell)
        self.rank = rank
        self.party = party
        self.result: dict[str, Any] = {}
        if rank:
            self.watch_more = follows({})

    def carry_out(self) -> Outcome:
        """Apply and watch; tell the others however it ended."""
        outcome = super().carry_out()
        self.party.ended(self.rank, outcome.state)
        return outcome

    def _settle(self, result: dict[str, Any], invocation: str) -> Outcome:
        self.result = result
        state, error = settled(self.party, self.session, result)
        if state != State(result["state"]):
            self._write_down(state, result["phase"])
        outcome = self._outcome(state, error=error, phase=result["phase"], invocation_id=invocation)
        for name in ("ready_seconds", "crash", "last_line", "message"):
            if result.get(name) not in (None, [], ""):
                outcome.more[name] = result[name]
        outcome.more["node_rank"] = self.rank
        return outcome

    def _write_down(self, state: State, phase: str) -> None:
        assert self.launch is not None
        now = rfc3339(SystemClock().now())
        at = {"ready_at": now} if state == State.READY else {"ended_at": now}
        args = {"service": self.target.service.name, "launch": self.launch.id,
                "outcome": state.value, "phase": phase} | at  # fmt: skip
        with contextlib.suppress(FleetError):
            self.session.call("records.outcome", args)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The hosts of one server, rank by rank, with what each is to run."""

    targets: Sequence[Target]
    wishes: Mapping[str, Wish]
    tell: Tell
    done: Callable[[Outcome], None]
    confirm: together.Confirm

    def deploy(self, hands: Crew | None = None) -> list[Outcome]:
        """Deploy to all nodes or to none; return the outcomes in the order of the ranks."""
        with (
            together.crew() if hands is None else contextlib.nullcontext(hands) as hosts,
            hosts.patient(),
        ):
            sessions = [hosts.session(t) for t in self.targets]
            party = Party(sessions)
            ways = [
                NodeDeployment(n, party, t, self.wishes[str(t)], sessions[n], self.tell)
                for n, t in enumerate(self.targets)
            ]
            stopped = self._prepare(ways, hosts)
            if stopped is not None:
                ends = stopped
            else:
                ends = hosts.each(lambda way: way.carry_out(), ways)
                explain(ways, ends, hosts, self.wishes[str(self.targets[0])].requests)
            for outcome in ends:
                self.done(outcome)
            return ends

    def _prepare(self, ways: Sequence[NodeDeployment], hosts: Crew) -> list[Outcome] | None:
        """Plan for every node. One that cannot go keeps all from going; one that must, takes all along."""
        first = hosts.each(lambda way: way.prepare(), ways)
        if all(o is not None and o.state == State.UNCHANGED for o in first):
            return [o for o in first if o is not None]
        wrong = [o for o in first if o is not None and o.state != State.UNCHANGED]
        if wrong:
            names = ", ".join(f"{o.host} ({o.error or o.state})" for o in wrong)
            return [
                o if o in wrong and o is not None else way.failed(_kept_back(way, names))
                for way, o in zip(ways, first, strict=True)
            ]
        if any(way.wish.dry_run for way in ways):
            return [o for o in first if o is not None]
        for way, outcome in zip(ways, first, strict=True):
            if outcome is not None:  # unchanged, but its peers restart
                way.wish = replace(way.wish, restart=True)
        again = [w for w, o in zip(ways, first, strict=True) if o is not None]
        hosts.each(lambda way: way.prepare(), again)
        ask = [w for w in ways if w.prepared is not None and w.prepared.plan.interrupts]
        refused = together.agreed(hosts, self.confirm, ask)
        return None if refused is None else [way.failed(refused) for way in ways]


# --- one failure, several logs ---


def explain(
    ways: Sequence[Way],
    ends: Sequence[Outcome],
    hosts: Crew,
    requests: tuple[dict[str, Any], ...] = (),
) -> None:
    """Bring the evidence of every node home, find the root among them, record one incident.

    ``requests`` were sent to rank 0 after it was ready. Slow is not broken: where nothing failed but
    somebody's patience, there is no incident.
    """
    failed = [o for o in ends if o.state not in (State.READY, State.STARTED)]
    if not failed or any(o.state == State.INTERRUPTED for o in ends):
        return
    found = hosts.each(_evidence_of, list(zip(ways, ends, strict=True)))
    left = nodes.root_of([end for end, _, _ in found])
    told = [_told(end, folder) for end, _, folder in found]
    chosen = next((f for f in found if left is not None and f[0] is left), None)
    if chosen is None:
        chosen = next((f for f in found if f[0].triage), None)
    if chosen is None:
        return
    end, manifest, folder = chosen
    assert end.triage is not None
    assert folder is not None
    if any(o.state == State.TIMED_OUT for o in ends) and not tells_of_failure(end.triage):
        return
    triage = end.triage | {"nodes": told}
    with contextlib.suppress(FleetError):
        incident, _ = evidence.record(end.host, manifest, folder, triage, requests=requests)
        for outcome in failed:
            outcome.incident, outcome.triage = incident, triage
            outcome.more["root_host"] = end.host if left is not None else None


def _evidence_of(
    item: tuple[Way, Outcome],
) -> tuple[NodeEnd, dict[str, Any], Path | None]:
    way, outcome = item
    end = NodeEnd(way.rank, way.target.host.name)
    if not outcome.invocation_id:
        return end, {}, None
    try:
        offset, unsure = clock_of(way.session)
        manifest = way.result.get("bundle") or {}
        if not manifest.get("files"):
            args = {"service": way.target.service.name, "unit": way.target.service.unit,
                    "invocation_id": outcome.invocation_id}  # fmt: skip
            manifest = way.session.call("collect.freeze", args)["bundle"]
        folder = evidence.fetch(way.session, manifest)
        outcome.more["bundle"] = str(folder)
        triage = evidence.triaged(folder)
        return replace(
            end, triage=triage, root_at=root_time(folder, triage), offset=offset, unsure=unsure
        ), manifest, folder  # fmt: skip
    except FleetError as error:
        outcome.more["evidence"] = f"{error.reference}: {error}"
        return end, {}, None


def clock_of(session: Session) -> tuple[float, float]:
    """Return a host's clock minus ours and how well that is known, in seconds: the quickest of three asks."""
    best = (0.0, float("inf"))
    for _ in range(3):
        before, began = time.time(), time.monotonic()
        there = float(session.call("records.clock", {})["time"])
        taken = time.monotonic() - began
        if taken / 2 < best[1]:
            best = (there - (before + taken / 2), taken / 2)
    return best


def root_time(folder: Path, triage: Mapping[str, Any]) -> float | None:
    """Return when the root was written, in seconds since 1970 by the clock of its host."""
    root = triage.get("root") or {}
    try:
        with (folder / "journal.jsonl").open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number == root.get("line"):
                    return int(json.loads(line)["__REALTIME_TIMESTAMP"]) / 1e6
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def _told(end: NodeEnd, folder: Path | None) -> dict[str, Any]:
    triage = end.triage or {}
    at = end.corrected
    return {
        "rank": end.rank,
        "host": end.host,
        "label": triage.get("label"),
        "signature": triage.get("signature"),
        "root_at": at,
        "clock_offset": round(end.offset, 6),
        "clock_unsure": round(end.unsure, 6),
        "bundle": str(folder) if folder else None,
    }


def _kept_back(way: Deployment, why: str) -> RefusedError:
    return RefusedError(
        "peer-not-ready",
        f"its nodes go together or not at all: {why}",
        where=str(way.target),
        hint="nothing was stopped",
    )
