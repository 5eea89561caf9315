"""From a command to a running bisect, and back to a host that is as it was."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.apply import audit, standing
from fleetctl.apply.session import Session
from fleetctl.apply.wish import token
from fleetctl.bisect.estimate import floor
from fleetctl.bisect.model import Outcome, Purpose
from fleetctl.bisect.state import Stage, State
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config.site import Site
from fleetctl.errors import FleetError, RefusedError, UsageError
from fleetctl.model.fleet import Profile, Service, Target
from fleetctl.trials import downtime, patched, store
from fleetctl.trials.host import MODULES_HERE, Rules, TrialHost, uninterrupted
from fleetctl.trials.runner import Bisect, How
from fleetctl.trials.setup import Ground, became_ready, good_from_record, paid, survey

Event = dict[str, Any]
Tell = Callable[[Event], None]
LAST_READY = "(last ready)"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    good: str = ""
    bad: str = ""
    good_last_ready: bool = False
    max_trials: int | None = None
    bad_runs: int = 6
    strategy: str = "adaptive"
    rules: Rules = field(default_factory=Rules)
    how: How = field(default_factory=How)
    take_down: tuple[str, ...] = ()
    drain: str = ""
    undrain: str = ""
    protected: tuple[str, ...] = ()  # hosts whose names were typed
    use_paid: bool = True
    patches: tuple[str, ...] = ()  # in every trial


@dataclass(slots=True)
class Job:
    """A bisect that is ready to run; nothing was changed on a host yet."""

    state: State
    ground: Ground
    targets: list[Target]
    asked: Asked
    serving: dict[str, list[Target]] = field(default_factory=dict)  # host → what goes down
    failing: set[str] = field(
        default_factory=set
    )  # of those: in a crash loop, not to be started again


def trial_of(target: Target, rules: Rules) -> Target:
    """Return the trial service beside a service: own name, own port, the same GPUs."""
    own = target.service
    port = rules.port or own.port + 7
    return Target(target.host, Service(f"{own.name}-trial", port, own.gpus))


def plan(site: Site, targets: Sequence[Target], asked: Asked) -> Job:
    """Look at hosts and profiles and return the job. Raises what speaks against it; changes nothing."""
    _check_targets(targets)
    first = targets[0]
    bad = site.profile(asked.bad)
    with Session(first.host, modules=MODULES_HERE) as session:
        records = _records(session, first)
        good, had = _good(site, asked, records, bad, first)
        good, bad, patches = patched.shared(good, bad, asked.patches, had, site.root)
        ground = survey(
            session, first, trial_of(first, asked.rules), good, bad, site.templates(),
            patches=patches, always=asked.patches, had=had,
        )  # fmt: skip
    asked = replace(asked, rules=replace(asked.rules, patches=patches))
    state = _new_state(ground, targets, asked)
    if asked.use_paid:
        _pay(state, ground, records)
    job = Job(state, ground, list(targets), asked)
    _check_budget(job)
    _check_others(job)
    return job


def _check_targets(targets: Sequence[Target]) -> None:
    if not targets:
        raise UsageError("no-host", "no host was named")
    if len({t.service.name for t in targets}) > 1 or len({t.host.name for t in targets}) < len(
        targets
    ):
        raise UsageError(
            "one-service",
            "the hosts of a bisect launch the same service, one each",
            where=", ".join(str(t) for t in targets),
        )


def _records(session: Session, target: Target) -> list[Mapping[str, Any]]:
    """Return earlier launches of service and trials, the newest first: the host's, with our triage."""
    from fleetctl.incidents.store import open_store

    known: list[Mapping[str, Any]] = []
    for service in (target.service.name, f"{target.service.name}-trial"):
        known += session.call("records.launches", {"service": service, "limit": 50})["launches"]
    log = open_store()
    try:
        ours = {r.id: r for r in log.launches(host=target.host.name)}
    finally:
        log.close()
    out = []
    for record in known:
        mine = ours.get(str(record.get("id")))
        told = {} if mine is None else {
            k: getattr(mine, k) for k in ("label", "signature", "fingerprint", "phase") if getattr(mine, k)
        }  # fmt: skip
        out.append({**record, **told})
    return sorted(out, key=lambda r: str(r.get("started_at")), reverse=True)


def _good(
    site: Site, asked: Asked, records: list[Mapping[str, Any]], bad: Profile, target: Target
) -> tuple[Profile, Mapping[str, str] | None]:
    """Return the good end, and the patches that it ran with where it is an earlier launch."""
    if not asked.good_last_ready:
        return site.profile(asked.good), None
    trials = f"{target.service.name}-trial"
    for record in records:
        if became_ready(record) and record.get("service") != trials:
            return good_from_record(record, bad), dict(record["config"].get("patches") or {})
    raise UsageError(
        "never-ready",
        f"no launch of {target} became ready that is still known",
        hint="name a profile with --good",
    )


def _new_state(ground: Ground, targets: Sequence[Target], asked: Asked) -> State:
    now = SystemClock().now()
    good = LAST_READY if asked.good_last_ready else asked.good
    return State(
        id=f"b{now:%Y%m%d-%H%M%S}-{token()[:4]}",
        created_at=rfc3339(now),
        by=audit.who(),
        service=targets[0].service.name,
        hosts=[t.host.name for t in targets],
        good=good,
        bad=asked.bad,
        sglang=str(ground.facts.interpreter.sglang),
        stages=[Stage(ground.space)],
        good_config=asdict(ground.rendered(ground.good).config),
        bad_config=asdict(ground.rendered(ground.bad).config),
        options={
            "max_trials": asked.max_trials,
            "bad_runs": asked.bad_runs,
            "strategy": asked.strategy,
            "check": asked.how.check,
            "patches": {n: ground.digests[n] for n in asked.patches},
            "space": ground.space.digest(),
        },
        updated_at=rfc3339(now),
    )


def _pay(state: State, ground: Ground, records: Sequence[Mapping[str, Any]]) -> None:
    """Take earlier launches as trials. A check or a request could have judged them otherwise: then none."""
    if state.options.get("check"):
        return
    entries, hunted = paid(ground, records)
    if any(e.outcome == Outcome.SAME for e in entries):
        state.hunted = hunted
    else:
        entries = [e for e in entries if e.outcome == Outcome.PASS]
    good_crashed = any(not e.on and e.outcome == Outcome.SAME for e in entries)
    for entry in entries if not good_crashed else ():
        state.add(entry)


def _check_budget(job: Job) -> None:
    least = floor(job.state.problem()) - sum(
        1 for e in job.state.trials if e.purpose == Purpose.PAID
    )
    limit = job.asked.max_trials
    if limit is not None and limit < least:
        raise UsageError(
            "budget-too-small",
            f"{len(job.state.space.switches)} differences need {least} trials at the very least, not {limit}",
            where="--max-trials",
            hint="give more, or a good profile that is nearer to the bad one",
        )


def _check_others(job: Job) -> None:
    """Look at every host: the same SGLang, and nothing that serves unless it may be taken down."""
    for target in job.targets:
        with Session(target.host) as session:
            facts = standing.facts_of(session, target, job.ground.bad.python)
        found = str(facts.interpreter.sglang)
        if found != job.state.sglang:
            raise RefusedError(
                "other-version",
                f"{target.host.name} has sglang {found}, {job.state.hosts[0]} {job.state.sglang}",
                hint="hosts of one bisect must run the same code",
            )
        trial = trial_of(target, job.asked.rules)
        stands = downtime.serving(target, trial, facts)
        job.serving[target.host.name] = downtime.check(
            target, stands, list(job.asked.take_down), estimate="the whole bisect"
        )
        if facts.unit.alive and not facts.unit.active:
            job.failing.add(str(target))
        _check_protected(target, job)


def _check_protected(target: Target, job: Job) -> None:
    host = target.host
    if job.serving[host.name] and host.protected and host.name not in job.asked.protected:
        raise RefusedError(
            "protected-host",
            f"{host.name} is protected, and a serving unit would go down",
            where=str(target),
            hint=f"type its name when asked, or give --yes-protected {host.name}",
        )


# --- going on with one that was there ---


def resume(site: Site, state: State, hosts: Sequence[str], asked: Asked) -> Job:
    """Return the job of a state that was interrupted. Refuses another host, version or pair of profiles."""
    targets = site.select([f"{h}/{state.service}" for h in (hosts or state.hosts)])
    if sorted(t.host.name for t in targets) != sorted(state.hosts):
        raise RefusedError(
            "other-host",
            f"{state.id} is of {', '.join(state.hosts)}",
            where=", ".join(t.host.name for t in targets),
            hint="start a bisect of its own there; the launches do not carry over",
        )
    bad = site.profile(state.bad)
    with Session(targets[0].host, modules=MODULES_HERE) as session:
        had = None
        if state.good == LAST_READY:
            good = good_from_record({"config": state.good_config}, bad)
            had = dict(state.good_config.get("patches") or {})
        else:
            good = site.profile(state.good)
        names = tuple(state.options.get("patches") or ())
        good, bad, patches = patched.shared(good, bad, names, had, site.root)
        ground = survey(
            session, targets[0], trial_of(targets[0], asked.rules), good, bad, site.templates(),
            patches=patches, always=names, had=had,
        )  # fmt: skip
    patched.check_resumed(state.id, state.options, asked.patches, ground.digests)
    asked = replace(asked, rules=replace(asked.rules, patches=patches))
    found = str(ground.facts.interpreter.sglang)
    if found != state.sglang:
        raise RefusedError(
            "other-version",
            f"{state.id} is of sglang {state.sglang}, {state.hosts[0]} has {found} now",
            hint="its launches say nothing of this version: start a new bisect",
        )
    if ground.space.digest() != state.options.get("space"):
        raise RefusedError(
            "profiles-changed",
            f"{state.good} or {state.bad} differ from what {state.id} began with",
            hint="put them back, or start a new bisect",
        )
    state.options["max_trials"] = asked.max_trials or state.options.get("max_trials")
    state.options["bad_runs"] = max(asked.bad_runs, int(state.options.get("bad_runs") or 0))
    how = replace(asked.how, check=asked.how.check or state.options.get("check") or "")
    job = Job(state, ground, targets, replace(asked, how=how))
    _check_others(job)
    return job


def newest(session_hosts: Sequence[TrialHost], state: State) -> State:
    """Return the newer of our copy and the host's: somebody else may have gone on with it."""
    for host in session_hosts:
        there = host.load(state.id)
        if there is not None and int(there.get("version", 0)) > state.version:
            return State.from_json(there, f"{host.name}:/var/lib/fleetctl/bisect/{state.id}.json")
    return state


# --- running ---


def run(job: Job, tell: Tell) -> dict[str, Any]:
    """Run the job and return the verdict. Whatever happens, the hosts are left as they were found."""
    stop = threading.Event()
    hosts = [TrialHost(t, job.state.id, job.asked.rules, stop) for t in job.targets]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_downtime(job, tell))
        _occupy(stack, hosts, job)
        return Bisect(job.state, job.ground, hosts, job.asked.how, tell).run()


def abandon(job: Job, tell: Tell) -> None:
    """Put the hosts in order for a bisect that nobody goes on with, and bring back what it took down."""
    hosts = [TrialHost(t, job.state.id, job.asked.rules, threading.Event()) for t in job.targets]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_downtime(job, tell))
        _occupy(stack, hosts, job)


def _occupy(stack: contextlib.ExitStack, hosts: Sequence[TrialHost], job: Job) -> None:
    """Take the locks, take the newer of two states, and end what a client that died left running."""
    for host in hosts:
        stack.callback(host.release)
    for host in hosts:
        host.take()
    job.state = newest(hosts, job.state)
    stack.callback(_leave, hosts, job)
    for host in hosts:
        host.end(at_once=True)
        host.unpatch()


def _leave(hosts: Sequence[TrialHost], job: Job) -> None:
    """End every trial, wait for a clean room, take the trial's files away, keep the state."""
    with uninterrupted():
        for host in hosts:
            try:
                host.end(at_once=True)
                host.clean()
                host.remove()
            except FleetError as error:
                job.state.more["left_behind"] = f"{host.name}: {error}"
        job.state.more.pop("running", None)
        if job.state.status == "running":
            job.state.status = "stopped"
        store.save(job.state)


@contextlib.contextmanager
def _downtime(job: Job, tell: Tell) -> Iterator[None]:
    """Take down what stands in the way, and bring it back on every way out."""
    mine = {t.host.name: t.host for t in job.targets}
    down = [
        Target(mine[d["host"]], mine[d["host"]].service(d["service"]) or Service(d["service"]))
        for d in job.state.taken_down  # by a client that died
    ]
    try:
        for target in (t for host in job.serving.values() for t in host):
            allow = f"--yes-protected={target.host.name}" if target.host.protected else ""
            failing = str(target) in job.failing
            if not failing:
                down.append(target)
            name = {"host": target.host.name, "service": target.service.name}
            tell({"event": "take-down", "failing": failing} | name)
            with Session(target.host) as session:
                downtime.take_down(session, target, tell, drain=job.asked.drain, allow=allow)
            if not failing:
                job.state.taken_down.append(name)
                store.save(job.state)
        yield
    finally:
        with uninterrupted():
            for target in reversed(down):
                _bring_back(job, target, tell)


def _bring_back(job: Job, target: Target, tell: Tell) -> None:
    with Session(target.host) as session:
        try:
            event = downtime.bring_back(session, target, tell, undrain=job.asked.undrain)
        except FleetError as error:
            event = {"state": "not-back", "error": error.reference, "message": str(error)}
    back = event["state"] == "ready"
    tell({
        "event": "brought-back", "host": target.host.name, "service": target.service.name,
        "state": event["state"], "error": event.get("error"),
    })  # fmt: skip
    if back:
        mine = {"host": target.host.name, "service": target.service.name}
        job.state.taken_down = [d for d in job.state.taken_down if d != mine]
        store.save(job.state)
