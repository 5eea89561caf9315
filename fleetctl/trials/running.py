"""A bisect under way: what goes down for it, its locks, and hosts that are left as they were found."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fleetctl.apply.session import Session
from fleetctl.bisect.state import State
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config.site import Site
from fleetctl.errors import FleetError, LockedError
from fleetctl.model.fleet import Service, Target
from fleetctl.trials import downtime, store, wishes
from fleetctl.trials.host import TrialHost, uninterrupted
from fleetctl.trials.runner import Bisect
from fleetctl.trials.start import Asked, Claim, Job, refuse_unnamed, targets_of

Event = dict[str, Any]
Tell = Callable[[Event], None]


def run(job: Job, tell: Tell) -> dict[str, Any]:
    """Run the job and return the verdict. Whatever happens, the hosts are left as they were found.

    RefusedError ``protected-host`` before anything is touched.
    """
    if job.settled:
        said = Bisect(job.state, job.ground, [], job.asked.how, tell).run()
        _put_on_hosts(job)
        return said
    refuse_unnamed(job)
    tell = _while_heard(tell)
    stop = threading.Event()
    hosts = [TrialHost(t, job.state.id, job.asked.rules, stop) for t in job.targets]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_downtime(job, tell))
        _occupy(stack, hosts, job)
        return Bisect(job.state, job.ground, hosts, job.asked.how, tell).run()


def abandon(site: Site, state: State, tell: Tell) -> None:
    """Put the hosts in order for a bisect that nobody goes on with, and bring back what it took down.

    Profiles and versions may have changed since: nothing is launched but what served before.
    """
    claim = Claim(state, targets_of(site, state), wishes.again(Asked(), state))
    tell = _while_heard(tell)
    hosts = [TrialHost(t, state.id, claim.asked.rules, threading.Event()) for t in claim.targets]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_downtime(claim, tell))
        _occupy(stack, hosts, claim)


def _while_heard(tell: Tell) -> Tell:
    """Return a ``tell`` that fails once where nobody listens any more, and is silent from then on.

    A closed terminal or pipe ends the bisect; it must not end the way back.
    """
    deaf = threading.Event()

    def told(event: Event) -> None:
        if deaf.is_set():
            return
        try:
            tell(event)
        except OSError:
            deaf.set()
            raise

    return told


def _occupy(stack: contextlib.ExitStack, hosts: Sequence[TrialHost], job: Claim) -> None:
    """Take the locks, take the newer of two states, and end what a client that died left running."""
    for host in hosts:
        stack.callback(host.release)
    for host in hosts:
        host.take()
    _take_newest(hosts, job)
    stack.callback(_leave, hosts, job)
    for host in hosts:
        host.end(at_once=True)
        host.unpatch()


def _take_newest(hosts: Sequence[TrialHost], job: Claim) -> None:
    """Take the newest copy of the state: somebody else may have gone on with it."""
    ours = job.state
    for host in hosts:
        there = host.load(ours.id)
        if there is not None and int(there.get("version", 0)) > job.state.version:
            where = f"{host.name}:/var/lib/fleetctl/bisect/{ours.id}.json"
            job.state = State.from_json(there, where)
    job.state.taken_down += [d for d in ours.taken_down if d not in job.state.taken_down]


def _leave(hosts: Sequence[TrialHost], job: Claim) -> None:
    """End every trial, wait for a clean room, take the trial's files away, keep the state."""
    state = job.state
    with uninterrupted():
        for host in hosts:
            try:
                host.end(at_once=True)
                host.clean()
                host.remove()
            except FleetError as error:
                state.more["left_behind"] = f"{host.name}: {error}"
        state.more.pop("running", None)
        if state.status == "running":
            state.status = "stopped"
        state.version += 1
        store.save(state)
        for host in hosts:
            with contextlib.suppress(FleetError):
                host.save(state.to_json())


@contextlib.contextmanager
def _downtime(job: Claim, tell: Tell) -> Iterator[None]:
    """Take down what stands in the way, and bring it back on every way out.

    What a client that died had taken down comes back too; not while somebody else goes on with it.
    """
    before = list(job.state.taken_down)
    theirs: list[dict[str, Any]] = []
    try:
        for target in [t for host in job.serving.values() for t in host]:
            _take_down(job, target, tell)
        yield
    except LockedError:
        theirs = before
        raise
    finally:
        with uninterrupted():
            for down in reversed([d for d in job.state.taken_down if d not in theirs]):
                _bring_back(job, down, tell)


def _take_down(job: Claim, target: Target, tell: Tell) -> None:
    allow = f"--yes-protected={target.host.name}" if target.host.protected else ""
    failing = str(target) in job.failing
    name = {"host": target.host.name, "service": target.service.name}
    known = [{k: d[k] for k in name} for d in job.state.taken_down]
    if not failing and name not in known:
        since = rfc3339(SystemClock().now())
        job.state.taken_down.append(name | {"since": since})
        store.save(job.state)  # before it stops: a client may be killed meanwhile
    tell({"event": "take-down", "failing": failing} | name)
    with Session(target.host) as session:
        downtime.take_down(session, target, tell, drain=job.asked.drain, allow=allow)


def _bring_back(job: Claim, down: dict[str, Any], tell: Tell) -> None:
    name = {k: down[k] for k in ("host", "service")}
    host = next(t.host for t in job.targets if t.host.name == name["host"])
    target = Target(host, host.service(name["service"]) or Service(name["service"]))
    try:
        with Session(host) as session:
            heard: Tell = lambda event: tell(name | event)  # noqa: E731
            event = downtime.bring_back(session, target, heard, undrain=job.asked.undrain)
    except FleetError as error:
        event = {"state": "not-back", "error": error.reference, "message": str(error)}
    with contextlib.suppress(OSError):
        tell({
            "event": "brought-back", **name, "state": event["state"], "error": event.get("error"),
            "message": event.get("message"),
        })  # fmt: skip
    if event["state"] == "ready":
        _is_back(job, down)


def _is_back(job: Claim, down: dict[str, Any]) -> None:
    state = job.state
    state.taken_down = [d for d in state.taken_down if d != down]
    state.version += 1
    store.save(state)
    _put_on_hosts(job)


def _put_on_hosts(job: Claim) -> None:
    """Give each host its copy of the state; one that is away keeps the older one."""
    state = job.state
    for target in job.targets:
        with contextlib.suppress(FleetError), Session(target.host, modules=("trial",)) as session:
            session.call("trial.save", {"state": state.to_json()})
