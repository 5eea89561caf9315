"""The plan of a deploy and of a stop: wanted and found go in, steps and refusals come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Target
from fleetctl.model.launch import diff_configs
from fleetctl.model.plan import (
    DaemonReload,
    EnableUnit,
    Holder,
    Plan,
    RemoveFile,
    ResetFailed,
    RestartUnit,
    StartUnit,
    Step,
    StopUnit,
    VerifyUnit,
    WaitReady,
    WriteFile,
)
from fleetctl.plan import guards
from fleetctl.plan.diff import differs, file_diffs
from fleetctl.plan.holders import holders
from fleetctl.render.launch import Rendered

STOP_MARGIN = 30.0  # seconds on top of the unit's own, for ExecStopPost= and systemd


def plan_deploy(
    rendered: Rendered,
    facts: HostFacts,
    *,
    allow: frozenset[str] = frozenset(),
    support: Iterable[WriteFile] = (),
    restart: bool = False,
) -> Plan:
    """Return what would be done, what it changes, what it stops, and what speaks against it.

    ``allow`` holds the options that override guards, ``support`` the files that any launch needs
    (the collector), ``restart`` asks for a restart even of what is unchanged and active.
    """
    support = tuple(support)
    wanted = (*support, *rendered.files)
    writes = tuple(_write(w, facts) for w in wanted if _needed(w, facts, rendered.complete))
    removes = tuple(
        RemoveFile(path, facts.file(path).sha256)
        for path in rendered.obsolete
        if facts.file(path).exists
    )
    last = facts.last_launch
    changed = diff_configs(last.config, rendered.config) if last else ()
    shared = {s.path for s in support}
    own = tuple(w for w in writes if w.path not in shared)
    unchanged = last is not None and not changed and not own and not removes
    settled = unchanged and facts.unit.active and not restart and not _stale(facts)
    others = holders(rendered.target, facts)
    stops = tuple(h for h in others if h.unit and guards.STOP_OTHERS in allow)
    steps: tuple[Step, ...] = ()
    if not settled:
        steps = (
            *_verify(rendered, writes),
            *writes,
            *removes,
            *_reload(rendered, facts, writes),
            *_stop_others(stops, rendered),
            *_launch(rendered, facts),
        )
    interrupts = not settled and (facts.unit.active or bool(stops))
    case = guards.Case(
        facts, rendered.target.host, allow, () if settled else others, steps, interrupts, rendered
    )
    return Plan(
        host=facts.host,
        service=facts.service,
        unit=rendered.unit,
        steps=steps,
        changed=changed,
        first=last is None,
        holders=() if settled else others,
        stops=() if settled else stops,
        refusals=() if settled else guards.check(guards.DEPLOY, case),
        diffs=file_diffs((*own, *removes) if steps else (), facts),
        unchanged=unchanged,
        interrupts=interrupts,
        warnings=(*rendered.warnings, *_warnings(rendered, facts, settled)),
    )


def plan_stop(
    target: Target,
    facts: HostFacts,
    *,
    allow: frozenset[str] = frozenset(),
    reason: str = "",
    timeout: float = 180.0,
) -> Plan:
    """Return the plan that stops a service; nothing to do where it is down and not failed."""
    steps: list[Step] = []
    if facts.unit.alive:
        steps.append(StopUnit(facts.unit.name, reason, timeout + STOP_MARGIN))
    # A stop that was asked for ends a healthy SGLang as failed, by signal 9.
    if facts.unit.alive or facts.unit.active_state == "failed":
        steps.append(ResetFailed(facts.unit.name))
    interrupts = facts.unit.active
    case = guards.Case(facts, target.host, allow, steps=tuple(steps), interrupts=interrupts)
    return Plan(
        host=facts.host,
        service=facts.service,
        unit=facts.unit.name,
        verb="stop",
        steps=tuple(steps),
        first=facts.last_launch is None,
        refusals=guards.check(guards.STOP, case) if steps else (),
        unchanged=not steps,
        interrupts=interrupts,
    )


def _needed(wanted: WriteFile, facts: HostFacts, complete: bool) -> bool:
    return differs(wanted, facts.file(wanted.path), complete=complete)


def _write(wanted: WriteFile, facts: HostFacts) -> WriteFile:
    there = facts.file(wanted.path)
    return replace(wanted, before=there.sha256 if there.exists else None)


def _stale(facts: HostFacts) -> bool:
    """Return whether the unit may run what was there before its files were last written.

    A record without an invocation is that of a launch which ended before its restart.
    """
    last = facts.last_launch
    return facts.unit.need_daemon_reload or (last is not None and last.invocation_id is None)


def _verify(rendered: Rendered, writes: tuple[WriteFile, ...]) -> tuple[Step, ...]:
    if any(w.path == rendered.unit_path for w in writes):
        return (VerifyUnit(rendered.unit, rendered.unit_text),)
    return ()


def _reload(
    rendered: Rendered, facts: HostFacts, writes: tuple[WriteFile, ...]
) -> tuple[Step, ...]:
    steps: list[Step] = []
    if facts.unit.need_daemon_reload or _verify(rendered, writes):
        steps.append(DaemonReload())
    if rendered.settings["enable"] and (_verify(rendered, writes) or _left_out(rendered, facts)):
        steps.append(EnableUnit(rendered.unit))
    return tuple(steps)


def _left_out(rendered: Rendered, facts: HostFacts) -> bool:
    """Return whether a boot would leave the unit out although its profile says ``enable``."""
    return bool(rendered.settings["enable"]) and facts.unit.file_state not in ("enabled", "")


def _stop_others(stops: tuple[Holder, ...], rendered: Rendered) -> tuple[Step, ...]:
    reason = f"makes room for {rendered.target}"
    steps: list[Step] = []
    for holder in stops:
        steps += [StopUnit(holder.unit, reason), ResetFailed(holder.unit)]
    return tuple(steps)


def _launch(rendered: Rendered, facts: HostFacts) -> tuple[Step, ...]:
    timeout = float(rendered.settings["timeout_stop"]) + STOP_MARGIN
    start: Step = (
        RestartUnit(rendered.unit, timeout) if facts.unit.alive else StartUnit(rendered.unit)
    )
    served = rendered.profile.flags.get("served-model-name")
    wait = WaitReady(
        rendered.unit,
        rendered.target.service.port,
        rendered.profile.model,
        None if served is None else str(served),
        facts.interpreter.sglang,
        rendered.profile.flags.get("skip-server-warmup") is True,
    )
    # Also clears the counter of starts, which one by hand adds to as well.
    known = facts.unit.load_state != "not-found"
    return (ResetFailed(rendered.unit), start, wait) if known else (start, wait)


def _warnings(rendered: Rendered, facts: HostFacts, settled: bool) -> tuple[str, ...]:
    found = [f"drop-in {path} changes the unit" for path in facts.unit.drop_ins]
    host = rendered.target.host
    if host.gpus and not facts.gpus:
        found.append(f"the driver lists no GPU; the inventory says {host.gpus}")
    if not rendered.complete and any(f.secret for f in rendered.files):
        found.append(
            "secrets were not fetched for this plan: one that changed shows only in a deploy"
        )
    if settled and _left_out(rendered, facts):
        found.append(
            f"a boot leaves it out until its next restart: systemctl enable {rendered.unit}"
        )
    if facts.lock is not None:
        found.append(f"locked by {facts.lock.who} since {facts.lock.since}: {facts.lock.why}")
    return tuple(found)
