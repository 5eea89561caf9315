"""What SGLang itself makes of a command line, before anything is launched: refused, or the same as another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.apply.session import Session
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import FleetError
from fleetctl.render import Rendered

QUIET = frozenset({"port", "nccl_port", "dist_init_addr", "random_seed", "log_level"})
MOST = 150  # command lines in one look


@dataclass(frozen=True, slots=True)
class Resolved:
    """One command line, resolved. ``error`` says why SGLang would refuse it."""

    digest: str
    error: str = ""
    own: bool = False  # by SGLang's resolver; False: only by the flag schema
    sets: tuple[str, ...] = ()  # environment variables that the engine sets from the arguments


class Resolver:
    """Asks the host's SGLang; where it cannot be imported, the flag schema alone."""

    def __init__(self, session: Session, schema: Schema | None) -> None:
        self.session = session
        self.schema = schema
        self.missing = ""  # why SGLang's own resolver is not asked
        self._known: dict[str, Resolved] = {}

    def ask(self, launches: Sequence[Rendered]) -> list[Resolved]:
        """Return one answer a launch, in order. What was asked before is not asked again."""
        unknown = {k: r for r in launches if (k := _key(r)) not in self._known}
        for key, one in unknown.items():
            if problem := self._static(one):
                self._known[key] = Resolved(_hash(key), problem)
        open_ = {k: r for k, r in unknown.items() if k not in self._known}
        if open_:
            self._known.update(self._own(open_))
        return [self._known[_key(r)] for r in launches]

    def _static(self, launch: Rendered) -> str:
        if self.schema is None:
            return ""
        problems = self.schema.check(list(launch.argv[3:]))
        return str(problems[0].message) if problems else ""

    def _own(self, launches: dict[str, Rendered]) -> dict[str, Resolved]:
        if not self.missing:
            try:
                return self._answers(launches)
            except FleetError as error:
                if error.reference not in ("resolver-unavailable", "resolver-timeout"):
                    raise
                self.missing = error.message
        return {key: Resolved(_hash(key)) for key in launches}

    def _answers(self, launches: dict[str, Rendered]) -> dict[str, Resolved]:
        found: dict[str, Resolved] = {}
        groups: dict[tuple[str, str], list[str]] = {}
        for key, one in launches.items():
            env = json.dumps(one.env, sort_keys=True)
            groups.setdefault((one.profile.python, env), []).append(key)
        for (python, env), keys in groups.items():
            args = {
                "python": python,
                "env": json.loads(env),
                "cases": [list(launches[k].argv[3:]) for k in keys],
            }
            results = self.session.call("resolver.resolve_many", args, timeout=240.0)["results"]
            for key, result in zip(keys, results, strict=True):
                found[key] = _resolved(key, launches[key], result)
        return found


def _key(launch: Rendered) -> str:
    """Return what decides: words, environment, unit and patches, without the port."""
    words = list(launch.argv)
    if "--port" in words:
        place = words.index("--port")
        words = words[:place] + words[place + 2 :]
    unit, patches = launch.config.unit, launch.config.patches
    return json.dumps([words, launch.env, unit, patches], sort_keys=True, default=str)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _resolved(key: str, launch: Rendered, result: dict[str, Any]) -> Resolved:
    if not result["ok"]:
        error = result.get("error") or {}
        said = str(error.get("message") or error.get("type") or "refused").strip().splitlines()
        return Resolved(_hash(key), said[-1] if said else "refused", own=True)
    body = {k: v for k, v in (result.get("resolved") or {}).items() if k not in QUIET}
    changes = {n: v[1] for n, v in (result.get("env_changes") or {}).items()}
    env = {**launch.env, **changes}
    rest = [launch.config.unit, launch.config.patches]
    text = json.dumps([body, env, *rest], sort_keys=True, default=str)
    return Resolved(_hash(text), own=True, sets=tuple(sorted(changes)))


def engine_sets(alone: dict[str, Resolved], base: Resolved) -> list[tuple[str, str]]:
    """Return (variable, flag) where a flag makes the engine set a variable that is a switch too."""
    out = []
    for name, resolved in alone.items():
        mine = set(resolved.sets) - set(base.sets)
        out += [(f"env {v}", name) for v in sorted(mine) if f"env {v}" in alone]
    return [(follower, leader) for follower, leader in out if follower != leader]


def companions(
    alone: dict[str, Resolved], paired: dict[tuple[str, str], Resolved]
) -> list[tuple[str, str]]:
    """Return (follower, leader) where a switch runs with exactly one other, and not without it."""
    out = []
    for name, resolved in alone.items():
        if resolved.error:
            fits = [b for (a, b), r in paired.items() if a == name and not r.error]
            if len(fits) == 1:
                out.append((name, fits[0]))
    return out
