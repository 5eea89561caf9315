"""Before the first launch: what differs, what SGLang says of it, what was launched before. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.apply import prepare as preparing
from fleetctl.apply.reproduce import profile_of
from fleetctl.apply.session import Session
from fleetctl.bisect import space as spaces
from fleetctl.bisect.model import Outcome, Purpose
from fleetctl.bisect.space import Space, Switch
from fleetctl.bisect.state import Entry, Hunted, names_of
from fleetctl.engines.sglang import schema as schemas
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import ConfigError, FleetError, UsageError
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Profile, Target
from fleetctl.model.incident import Occurrence
from fleetctl.model.launch import LaunchConfig
from fleetctl.patching.model import Patch
from fleetctl.render import Rendered, render
from fleetctl.trials import patched
from fleetctl.trials.classify import INFRA_LABELS
from fleetctl.trials.resolve import MOST, Resolver, companions, engine_sets

READY = "ready"
LATELY = 3


@dataclass(slots=True)
class Ground:
    """What a bisect stands on: the two ends as they render on this host, and what lies between."""

    target: Target
    trial: Target
    good: Profile
    bad: Profile
    facts: HostFacts
    space: Space
    schema: Schema | None
    resolver: Resolver
    templates: Mapping[str, str] = field(default_factory=dict)
    base: tuple[Switch, ...] = ()
    notes: list[str] = field(default_factory=list)
    digests: Mapping[str, str] = field(default_factory=dict)  # of the patches that trials may push

    def profile(self, switches: Iterable[Switch]) -> Profile:
        """Return the good profile with these switches, and those of the stage, at the bad value."""
        return spaces.compose(self.good, self.bad, [*self.base, *switches], self.schema)

    def rendered(self, profile: Profile, version: str | None = None) -> Rendered:
        """Return a profile as the trial service would run it."""
        return render(
            profile,
            self.trial,
            version=version or self.facts.interpreter.sglang,
            versions=preparing.versions(self.facts),
            systemd=self.facts.systemd,
            templates=self.templates,
            patches={n: self.digests[n] for n in profile.patches},
        )

    def set_of(self, mask: int) -> list[Switch]:
        """Return the switches of a set."""
        return [s for i, s in enumerate(self.space.switches) if mask >> i & 1]


def facts_for(
    session: Session, target: Target, profile: Profile, templates: Mapping[str, str]
) -> HostFacts:
    """Return the host's facts for a profile. UnreachableError, RemoteError."""
    first = render(profile, target, templates=templates)
    facts, _ = preparing.gather(session, target, preparing.request_for(first))
    if not facts.interpreter.exists or not facts.interpreter.sglang:
        raise FleetError(
            "no-sglang",
            facts.interpreter.error or "no SGLang there",
            where=str(target),
            hint=f"sglang.python of profile {profile.name} is {profile.python}",
        )
    return facts


def schema_for(version: str | None) -> Schema | None:
    """Return the flag schema of a release, of the nearest shipped one where it is not shipped."""
    if version is None:
        return None
    try:
        return schemas.load(version)
    except ConfigError:
        return schemas.load(schemas.nearest_version(version))


def survey(
    session: Session,
    target: Target,
    trial: Target,
    good: Profile,
    bad: Profile,
    templates: Mapping[str, str],
    *,
    label: str = "",
    patches: Mapping[str, Patch] | None = None,
    always: Sequence[str] = (),
    had: Mapping[str, str] | None = None,
) -> Ground:
    """Return the ground of a bisect. UsageError for ends that cannot be bisected; nothing is changed.

    ``patches``: all that trials may push; ``always``: those of every trial; ``had``: the good end's own,
    where it is an earlier launch.
    """
    facts = facts_for(session, target, bad, templates)
    version = facts.interpreter.sglang
    schema = schema_for(version)
    needed = (*bad.patches, *always, *(() if had is not None else good.patches))
    digests = patched.digests(patches or {}, needed, version, str(target)) if patches else {}
    good, ran = patched.had_by_good(good, always, had, digests)
    one = _config(good, trial, facts, templates, ran)
    other = _config(bad, trial, facts, templates, {n: digests[n] for n in bad.patches})
    if good.python != bad.python:
        there = facts_for(session, target, good, templates)
        one = replace(one, versions=preparing.versions(there))
    space = spaces.build(one, other, schema, label=label, patches=digests)
    resolver = Resolver(session, schema)
    ground = Ground(
        target, trial, good, bad, facts, space, schema, resolver, templates, digests=digests
    )
    ground.notes += patched.notes(facts, str(target), {*good.patches, *bad.patches})
    _resolve(ground)
    if not ground.space.switches:
        raise UsageError(
            "equal-profiles",
            f"{good.name} and {bad.name} resolve to the same launch",
            hint="a crash of one and not of the other is then not in the flags",
        )
    if ground.space.fixed:
        found = ", ".join(str(a) for a in ground.space.fixed)
        ground.notes.append(f"the code differs too ({found}): the flags are not the only suspects")
    return ground


def _config(
    profile: Profile,
    trial: Target,
    facts: HostFacts,
    templates: Mapping[str, str],
    patches: Mapping[str, str],
) -> LaunchConfig:
    return render(
        profile,
        trial,
        versions=preparing.versions(facts),
        templates=templates,
        patches=patches,
    ).config


def _resolve(ground: Ground) -> None:
    """Let SGLang resolve both ends and each switch: refuse, merge and drop what that shows."""
    switches = ground.space.switches
    ends = [ground.rendered(ground.good), ground.rendered(ground.bad)]
    singles = [ground.rendered(ground.profile([s])) for s in switches]
    answers = ground.resolver.ask(ends + singles[: MOST - 2])
    alone = {s.name: a for s, a in zip(switches, answers[2:], strict=False)}
    for end, answer in zip(("good", "bad"), answers, strict=False):
        if answer.error:
            profile = ground.good if end == "good" else ground.bad
            blamed = [n for n, a in alone.items() if a.error] if end == "bad" else []
            raise UsageError(
                f"{end}-invalid",
                f"SGLang refuses the arguments of {profile.name}: {answer.error}",
                where=str(ground.target),
                hint=f"that needs no bisect: {', '.join(blamed)} is refused by itself"
                if blamed
                else "that needs no bisect: `fleetctl lint` says which flag",
            )
    if ground.resolver.missing:
        ground.notes.append(
            f"SGLang's own resolver cannot be asked ({ground.resolver.missing}): "
            "refused combinations are then only found by the flag schema, or by a launch"
        )
        return
    same = [n for n, a in alone.items() if not a.error and a.digest == answers[0].digest]
    refused = [s for s in switches if alone.get(s.name) and alone[s.name].error]
    paired = {}
    if refused and len(refused) * len(switches) <= MOST:
        pairs = [(a, b) for a in refused for b in switches if a is not b]
        found = ground.resolver.ask([ground.rendered(ground.profile(p)) for p in pairs])
        paired = {(a.name, b.name): r for (a, b), r in zip(pairs, found, strict=True)}
    needs = companions(alone, paired)
    follows = engine_sets(alone, answers[0])
    merged = needs + follows
    ground.space = spaces.join(ground.space, merged)
    ground.notes += [f"{one} needs {other}: they are switched together" for one, other in needs]
    ground.notes += [f"{other} sets {one}: they are switched together" for one, other in follows]
    alive = {name for name, _ in merged}
    ground.space = spaces.without(ground.space, [n for n in same if n not in alive])


# --- what was launched before ---


def paid(ground: Ground, records: Iterable[Mapping[str, Any]]) -> tuple[list[Entry], Hunted]:
    """Return earlier launches that are trials already, and the crash that the bad end showed in them.

    They are of this host and of the same code, and lie between the two ends. ``records``: the newest
    first. A failure counts where its fingerprint is known; the bad end's newest one is the hunted.
    Of equal launches the newest ``LATELY`` count: hosts change.
    """
    good = ground.rendered(ground.good).config
    full = (1 << len(ground.space.switches)) - 1
    placed: list[tuple[int, Mapping[str, Any]]] = []
    for record in records:
        config = _known_config(record.get("config"))
        if config is not None and _same_code(config, good):
            on = spaces.place(ground.space, good, config, ground.schema)
            if on is not None:
                placed.append((on, record))
    bad = next((r for on, r in placed if on == full and r.get("fingerprint")), {})
    hunted = Hunted(
        fingerprint=str(bad.get("fingerprint") or ""),
        signature=str(bad.get("signature") or ""),
        label=str(bad.get("label") or ""),
        phase=str(bad.get("phase") or "unknown"),
    )
    entries: list[Entry] = []
    for on, record in placed:
        entry = _paid(ground, on, record, hunted)
        if entry is not None and sum(1 for e in entries if e.on == entry.on) < LATELY:
            entries.append(entry)
    return entries[::-1], hunted


def _paid(ground: Ground, on: int, record: Mapping[str, Any], hunted: Hunted) -> Entry | None:
    outcome = _outcome(record, hunted)
    if outcome is None:
        return None
    return Entry(
        0, 0, names_of(ground.space, on), Purpose.PAID.value, outcome.value,
        phase=str(record.get("phase") or "unknown"),
        signature=str(record.get("signature") or ""),
        label=str(record.get("label") or ""),
        fingerprint=str(record.get("fingerprint") or ""),
        host=ground.target.host.name, started_at=str(record.get("started_at") or ""),
        seconds=float(record.get("ready_seconds") or 0.0),
        launch_id=record.get("id"), invocation_id=record.get("invocation_id"),
        note="launched before",
    )  # fmt: skip


def _known_config(body: Any) -> LaunchConfig | None:
    if not isinstance(body, Mapping):
        return None
    try:
        return LaunchConfig(**{k: body[k] for k in LaunchConfig.__dataclass_fields__ if k in body})
    except TypeError:
        return None


def _same_code(one: LaunchConfig, other: LaunchConfig) -> bool:
    return one.versions == other.versions and one.model == other.model


def _outcome(record: Mapping[str, Any], hunted: Hunted) -> Outcome | None:
    """Return what an earlier launch tells; one without a known failure tells nothing."""
    if became_ready(record) and record.get("outcome") in (READY, "stopped"):
        return Outcome.PASS
    if not record.get("fingerprint") or record.get("label") in INFRA_LABELS:
        return None
    if record["fingerprint"] == hunted.fingerprint:
        return Outcome.SAME
    return Outcome.OTHER if hunted.fingerprint else None


def became_ready(record: Mapping[str, Any]) -> bool:
    """Return whether a launch was ready once, whatever became of it later."""
    return bool(record.get("ready_at")) or record.get("outcome") == READY


def good_from_record(record: Mapping[str, Any], bad: Profile) -> Profile:
    """Return the profile of an earlier launch: ``--good-last-ready``."""
    occurrence = Occurrence(
        id=str(record.get("id")), host="", service="", observed_at="", triage={},
        config=dict(record["config"]),
    )  # fmt: skip
    found = profile_of(occurrence)
    unit = {k: v for k, v in found.unit.items() if k in bad.unit}
    return replace(found, unit=unit, schema=bad.schema)


def with_dummy_weights(profile: Profile, layers: int | None) -> Profile:
    """Return the profile with dummy weights, and fewer layers where that was asked for."""
    flags = profile.flags | {"load-format": "dummy"}
    if layers:
        given = flags.get("json-model-override-args")
        own = dict(given) if isinstance(given, dict) else {}
        flags["json-model-override-args"] = own | {"num_hidden_layers": layers}
    return replace(profile, flags=flags)


def config_json(config: LaunchConfig) -> dict[str, Any]:
    """Return a launch configuration as it is stored."""
    return asdict(config)
