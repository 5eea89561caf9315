"""From two launches to the switches of a bisect: what differs, what goes together, what cannot matter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.bisect.model import Options, Problem, members
from fleetctl.bisect.priors import Priors, shipped
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import UsageError
from fleetctl.model.fleet import Profile
from fleetctl.model.launch import Atom, LaunchConfig, diff_configs

MOST = 64  # switches; beyond that two profiles have too little in common to be compared
OWN_FLAGS = ("port", "model-path", "model")  # of the place and of the model, not of the profile
OWN_ENV = (
    "PATH",
    "PYTHONUNBUFFERED",
    "CUDA_VISIBLE_DEVICES",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH",  # what trials switch off to die at once
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH",
)
OWN_UNIT = ("restart", "restart_sec", "start_limit_burst", "start_limit_interval", "enable")


@dataclass(frozen=True, slots=True)
class Switch:
    """What a trial turns on as one: differences that make no sense apart."""

    name: str
    parts: tuple[Atom, ...]
    family: str = "other"
    weight: float = 1.0

    def __str__(self) -> str:
        return ", ".join(str(part) for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the stored object."""
        parts = [[p.kind, p.name, p.before, p.after] for p in self.parts]
        return {"name": self.name, "parts": parts, "family": self.family, "weight": self.weight}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Switch:
        """Return a switch from its stored object."""
        parts = tuple(Atom(*part) for part in body["parts"])
        return cls(body["name"], parts, body["family"], float(body["weight"]))


@dataclass(frozen=True, slots=True)
class Space:
    """Everything in which the two launches differ, most suspicious first."""

    switches: tuple[Switch, ...]
    fixed: tuple[
        Atom, ...
    ] = ()  # differs, but no trial can switch it (code versions, lost patches)
    equal: tuple[Atom, ...] = ()  # written differently, resolved alike

    def problem(self, options: Options | None = None) -> Problem:
        """Return what the planner sees."""
        return Problem(tuple(s.weight for s in self.switches), options or Options())

    def names(self, mask: int) -> list[str]:
        """Return the names of the switches in a set."""
        return [self.switches[i].name for i in members(mask)]

    def digest(self) -> str:
        """Return a short hash of what is switched."""
        text = json.dumps([s.to_json()["parts"] for s in self.switches], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def build(
    good: LaunchConfig,
    bad: LaunchConfig,
    schema: Schema | None = None,
    *,
    label: str = "",
    priors: Priors | None = None,
    patches: Mapping[str, str] | None = None,
) -> Space:
    """Return the space between two launches. UsageError ``equal-profiles``, ``too-different``.

    ``patches``: the hash of each patch that a trial can push; others that differ are told alone.
    """
    rules = priors or shipped()
    written = {canonical(n, schema): n for n in (*good.flags, *bad.flags)}
    atoms = [a for a in diff_configs(normal(good, schema), normal(bad, schema)) if _ours(a)]
    equal = tuple(a for a in atoms if _resolves_equal(a, schema))
    fixed = tuple(a for a in atoms if not _switchable(a, patches or {}))
    loose = [a for a in atoms if a not in equal and a not in fixed]
    switches = [_switch(group, rules, label, written) for group in _groups(loose, rules)]
    if not switches:
        raise UsageError(
            "equal-profiles",
            f"{good.profile} and {bad.profile} launch the same thing",
            hint="a crash of one and not of the other is then not in the flags"
            + (f"; but {fixed[0]} differs" if fixed else ""),
        )
    if len(switches) > MOST:
        raise UsageError(
            "too-different",
            f"{good.profile} and {bad.profile} differ in {len(switches)} ways, over {MOST}",
            hint="give a good profile that is nearer to the bad one",
        )
    switches.sort(key=lambda s: (-s.weight, s.name))
    return Space(tuple(switches), fixed, equal)


def normal(config: LaunchConfig, schema: Schema | None) -> LaunchConfig:
    """Return the launch with every flag under its first spelling and in its own type."""
    flags = {canonical(name, schema): _typed(name, v, schema) for name, v in config.flags.items()}
    return replace(config, flags=flags)


def canonical(name: str, schema: Schema | None) -> str:
    """Return the first spelling of a flag, also for a unique beginning of one (as argparse does)."""
    if schema is None:
        return name
    flag = schema.find(name)
    if flag is None:
        nearby = {schema.flags[n].name for n in schema.prefixed(f"--{name}")}
        return nearby.pop().lstrip("-") if len(nearby) == 1 else name
    return flag.name.lstrip("-")


def _typed(name: str, value: Any, schema: Schema | None) -> Any:
    flag = schema.find(canonical(name, schema)) if schema else None
    if flag is None or not isinstance(value, str | int | float) or isinstance(value, bool):
        return list(value) if isinstance(value, tuple) else value
    try:
        return {"int": int, "float": float}.get(flag.type or "", str)(value)
    except ValueError:
        return value


def _ours(atom: Atom) -> bool:
    own = {"flag": OWN_FLAGS, "env": OWN_ENV, "unit": OWN_UNIT}
    return atom.name not in own.get(atom.kind, ())


def _switchable(atom: Atom, patches: Mapping[str, str]) -> bool:
    """Return whether a trial can have either side of a difference."""
    if atom.kind == "patch":
        return all(side in (None, patches.get(atom.name)) for side in (atom.before, atom.after))
    return atom.kind != "version"


def _resolves_equal(atom: Atom, schema: Schema | None) -> bool:
    """Return whether a flag is only spelled out: its value is the default that it has anyway."""
    flag = schema.find(atom.name) if schema and atom.kind == "flag" else None
    if flag is None or "default" in flag.unresolved or flag.default is None:
        return False
    filled = [flag.default if v is None else v for v in (atom.before, atom.after)]
    return bool(filled[0] == filled[1]) or str(filled[0]) == str(filled[1])


def _groups(atoms: Sequence[Atom], rules: Priors) -> list[tuple[str, tuple[Atom, ...]]]:
    """Return named groups of differences that are switched as one."""
    left = list(atoms)
    out: list[tuple[str, tuple[Atom, ...]]] = []
    for rule in rules.together:
        inside = [a for a in left if rule.holds(a)]
        led = not rule.leader or any(a.name == rule.leader for a in inside)
        if len(inside) > 1 and led:
            out.append((rule.name, tuple(inside)))
            left = [a for a in left if a not in inside]
    code = [a for a in left if a.kind == "unit" and a.name == "python"]
    out += [("sglang (interpreter)", (a,)) for a in code]
    return out + [(_name(a), (a,)) for a in left if a not in code]


def _name(atom: Atom) -> str:
    return atom.name if atom.kind == "flag" else f"{atom.kind} {atom.name}"


def _switch(
    group: tuple[str, tuple[Atom, ...]], rules: Priors, label: str, written: Mapping[str, str]
) -> Switch:
    """Return a switch under the name that the person wrote, in this order: bad, then good profile."""
    name, parts = group
    # Rules know flags by any spelling: the one that was written counts as well.
    spelled = [replace(p, name=written.get(p.name, p.name)) for p in parts if p.kind == "flag"]
    family, weight = max(
        (rules.weigh(atoms, label) for atoms in (parts, spelled) if atoms), key=_by_weight
    )
    return Switch(written.get(name, name), parts, family, weight)


def _by_weight(found: tuple[str, float]) -> float:
    return found[1]


def join(space: Space, pairs: Iterable[tuple[str, str]]) -> Space:
    """Return the space with switches merged that cannot run apart: (follower, leader) by name."""
    switches = {s.name: s for s in space.switches}
    for follower, leader in pairs:
        if follower in switches and leader in switches and follower != leader:
            one, other = switches.pop(follower), switches[leader]
            switches[leader] = replace(
                other, parts=other.parts + one.parts, weight=max(other.weight, one.weight)
            )
    order = sorted(switches.values(), key=lambda s: (-s.weight, s.name))
    return replace(space, switches=tuple(order))


def split(space: Space, names: Iterable[str], only: bool = True) -> Space:
    """Return a space in which the named switches are taken apart, for a second, finer bisect."""
    wanted = set(names)
    fine: list[Switch] = []
    for switch in space.switches:
        if switch.name in wanted and len(switch.parts) > 1:
            fine += [replace(switch, name=_name(p), parts=(p,)) for p in switch.parts]
        elif not only:
            fine.append(switch)
    return replace(space, switches=tuple(fine))


def without(space: Space, names: Iterable[str]) -> Space:
    """Return the space without switches that turned out to change nothing when resolved."""
    dropped = set(names)
    gone = tuple(p for s in space.switches if s.name in dropped for p in s.parts)
    kept = tuple(s for s in space.switches if s.name not in dropped)
    return replace(space, switches=kept, equal=space.equal + gone)


def reweigh(space: Space, label: str, priors: Priors | None = None) -> Space:
    """Return the switches in their old order with what the crash's label says of their families."""
    rules = priors or shipped()
    changed = [replace(s, weight=rules.weigh(s.parts, label)[1]) for s in space.switches]
    return replace(space, switches=tuple(changed))


def compose(
    good: Profile, bad: Profile, switches: Iterable[Switch], schema: Schema | None
) -> Profile:
    """Return the good profile with these switches at the bad profile's value."""
    flags, secret_flags = dict(good.flags), dict(good.secret_flags)
    env, secret_env = dict(good.env), dict(good.secret_env)
    unit, python, model = dict(good.unit), good.python, good.model
    patches = list(good.patches)
    for atom in (part for switch in switches for part in switch.parts):
        if atom.kind == "flag":
            _take(flags, bad.flags, atom.name, schema)
            _take(secret_flags, bad.secret_flags, atom.name, schema)
        elif atom.kind == "env":
            _take(env, bad.env, atom.name, None)
            _take(secret_env, bad.secret_env, atom.name, None)
        elif atom.kind == "model":
            model = bad.model
        elif atom.kind == "patch":
            patches = [p for p in patches if p != atom.name]
            patches += [atom.name] if atom.name in bad.patches else []
        elif atom.name == "python":
            python = bad.python
        else:
            _take(unit, bad.unit, atom.name, None)
    return replace(
        good, model=model, flags=flags, secret_flags=secret_flags, env=env, secret_env=secret_env,
        unit=unit, python=python, patches=tuple(patches),
    )  # fmt: skip


def _take(
    into: dict[str, Any], source: Mapping[str, Any], name: str, schema: Schema | None
) -> None:
    """Give ``into`` what ``source`` has under a name, by whichever spelling."""
    for key in [k for k in into if canonical(k, schema) == name]:
        del into[key]
    into.update({k: v for k, v in source.items() if canonical(k, schema) == name})


def place(
    space: Space, good: LaunchConfig, config: LaunchConfig, schema: Schema | None
) -> int | None:
    """Return the set of switches that an earlier launch had on, or None when it fits none."""
    there = {
        (a.kind, a.name): a for a in diff_configs(normal(good, schema), normal(config, schema))
    }
    there = {k: a for k, a in there.items() if _ours(a) and not _resolves_equal(a, schema)}
    on = 0
    for number, switch in enumerate(space.switches):
        mine = [there.pop((p.kind, p.name), None) for p in switch.parts]
        if all(a is not None and str(a) == str(p) for a, p in zip(mine, switch.parts, strict=True)):
            on |= 1 << number
        elif any(a is not None for a in mine):
            return None
    return on if not there else None
