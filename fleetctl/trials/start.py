"""From a command to a bisect that is ready to run: what is asked, and what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.apply import audit, standing
from fleetctl.apply.session import Session
from fleetctl.apply.wish import token
from fleetctl.bisect.estimate import floor, remaining
from fleetctl.bisect.model import Outcome, Verdict
from fleetctl.bisect.planner import next_round
from fleetctl.bisect.refine import refine
from fleetctl.bisect.state import Stage, State
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.config.site import Site
from fleetctl.errors import RefusedError, UsageError
from fleetctl.model.fleet import Profile, Service, Target
from fleetctl.trials import downtime, left_down, patched, wishes, words
from fleetctl.trials.host import MODULES_HERE, Rules
from fleetctl.trials.runner import How
from fleetctl.trials.setup import Ground, became_ready, good_from_record, paid, survey

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
class Claim:
    """A bisect with its hosts and what has to go down there; nothing was changed on a host yet."""

    state: State
    targets: list[Target]
    asked: Asked
    serving: dict[str, list[Target]] = field(default_factory=dict)  # host → what goes down
    failing: set[str] = field(
        default_factory=set
    )  # of those: in a crash loop, not to be started again

    def unnamed(self) -> list[str]:
        """Return the protected hosts on which something goes down and whose name nobody typed yet."""
        return [
            t.host.name
            for t in self.targets
            if self.serving.get(t.host.name)
            and t.host.protected
            and t.host.name not in self.asked.protected
        ]


@dataclass(slots=True)
class Job(Claim):
    """A bisect that is ready to run."""

    ground: Ground = field(kw_only=True)
    settled: bool = False  # what is known is an answer already: nothing is launched


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
    state.options["seconds_each"] = _seconds_known(records)
    if asked.use_paid:
        _pay(state, ground, records)
    job = Job(state, list(targets), asked, ground=ground)
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
            "patches": {n: ground.digests[n] for n in asked.patches},
            "space": ground.space.digest(),
            **wishes.kept(asked),
        },
        updated_at=rfc3339(now),
    )


def _seconds_known(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return how long launches of this service took lately until they were ready, None where none did."""
    known = [float(r["ready_seconds"]) for r in records if r.get("ready_seconds")][:5]
    return round(sum(known) / len(known), 1) if known else None


def _pay(state: State, ground: Ground, records: Sequence[Mapping[str, Any]]) -> None:
    """Take earlier launches as trials. A check or a request could have judged them otherwise: then none."""
    if state.options.get("check") or state.options.get("requests_hash"):
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
    least = floor(job.state.problem(), job.state.history())
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
        with Session(target.host, modules=MODULES_HERE) as session:
            facts = standing.facts_of(session, target, job.ground.bad.python)
            job.ground.notes += left_down.remarks(session, target.host, job.state.id)
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
            target, stands, list(job.asked.take_down), estimate=_outage(job.state)
        )
        if facts.unit.alive and not facts.unit.active:
            job.failing.add(str(target))


def _outage(state: State) -> str:
    left = remaining(state.problem(), state.history(), len(state.hosts))
    return left.minutes(words.seconds_each(state))


def refuse_unnamed(claim: Claim) -> None:
    """Raise RefusedError ``protected-host`` where something goes down on one whose name nobody typed."""
    for name in claim.unnamed():
        raise RefusedError(
            "protected-host",
            f"{name} is protected, and a serving unit would go down",
            where=f"{name}/{claim.state.service}",
            hint=f"type its name when asked, or give --yes-protected {name}",
        )


# --- going on with one that was there ---


def resume(site: Site, state: State, hosts: Sequence[str], asked: Asked) -> Job:
    """Return the job of a state that was interrupted. Refuses another host, version or pair of profiles."""
    targets = targets_of(site, state, hosts)
    asked = wishes.again(asked, state)
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
    state.forgive_host()
    job = Job(state, targets, asked, ground=ground)
    job.settled = not state.taken_down and _settled(state)
    if not job.settled:
        _check_others(job)
    return job


def _settled(state: State) -> bool:
    """Return whether the launches that are known make a verdict, with no group left to take apart."""
    step = next_round(state.problem(), state.history(), len(state.hosts))
    return isinstance(step, Verdict) and not refine(State.from_json(state.to_json()), step)


def targets_of(site: Site, state: State, hosts: Sequence[str] = ()) -> list[Target]:
    """Return the targets of a bisect. RefusedError ``other-host`` for hosts that are not its own."""
    targets = site.select([f"{h}/{state.service}" for h in (hosts or state.hosts)])
    if sorted(t.host.name for t in targets) != sorted(state.hosts):
        raise RefusedError(
            "other-host",
            f"{state.id} is of {', '.join(state.hosts)}",
            where=", ".join(t.host.name for t in targets),
            hint="start a bisect of its own there; the launches do not carry over",
        )
    return targets
