"""What a flag really changes on a host: SGLang's own resolver, asked with it and without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.config import flagsets
from fleetctl.engines.sglang.schema import Schema
from fleetctl.errors import RemoteError, UsageError
from fleetctl.fleet.hostlint import one_target
from fleetctl.model.facts import FactsRequest, HostFacts
from fleetctl.model.fleet import Profile, Target
from fleetctl.render.arguments import flag_words
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent

SCHEMA = "fleetctl.flag-effect/1"
SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What follows from the flags that were asked for."""

    target: Target
    sglang: str
    against: str  # what it was compared with
    asked: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # the flags' own arguments
    follows: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # what SGLang changes besides
    env: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    error: dict[str, Any] | None = None  # SGLang refuses the launch
    said: tuple[str, ...] = ()  # lines of its log that are new
    engine: str | None = None  # why the engine's own variables are not looked at

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        return {
            "schema": SCHEMA,
            "host": self.target.host.name,
            "service": self.target.service.name,
            "sglang": self.sglang,
            "against": self.against,
            "asked": self.asked,
            "follows": self.follows,
            "env": self.env,
            "error": self.error,
            "log": list(self.said),
            "engine": self.engine,
        }


def effect(
    selector: str, sets: Mapping[str, Any], unsets: list[str], base: Profile | None
) -> Effect:
    """Return what the sets and unsets change on top of a profile, or of the service's last launch.

    Raises RemoteError ``resolver-refused`` when SGLang refuses the base itself.
    """
    target = one_target(selector)
    connection = connect(target.host, ask=True)
    try:
        with Agent(connection, ("facts", "flags", "resolver")) as agent:
            profile, against = (base, f"profile {base.name}") if base else _last(agent, target)
            schema = flagsets.of_host(agent, profile.python, profile.env)
            flags = dict(profile.flags)
            _has(flags, unsets, against)
            changed = {k: v for k, v in flags.items() if k not in unsets} | dict(sets)
            head = ["--model-path", profile.model, "--port", str(target.service.port)]
            cases = [[*head, *flag_words(flags)], [*head, *flag_words(changed)]]
            answer = agent.call(
                "resolver.resolve_many",
                {"python": profile.python, "env": profile.env, "cases": cases, "timeout": SECONDS},
                timeout=SECONDS + 10,
            )
    finally:
        connection.close()
    before, after = answer["results"]
    if not before["ok"]:
        raise RemoteError(
            "resolver-refused",
            f"SGLang refuses {against} even without the change: {before['error']['message']}",
            where=str(target),
            context=tuple(before["log"][-5:]),
        )
    return _compared(target, schema, against, (set(sets) | set(unsets)), before, after)


def _has(flags: Mapping[str, Any], unsets: list[str], against: str) -> None:
    missing = [name for name in unsets if name not in flags]
    if missing:
        raise UsageError(
            "unset-nothing", f"{against} has no {', '.join(missing)}",
            hint=f"it has {', '.join(flags) or 'no flags'}",
        )  # fmt: skip


def _last(agent: Agent, target: Target) -> tuple[Profile, str]:
    default = Profile(name="", model="")
    request = FactsRequest(target.service.name, target.service.unit, default.python)
    facts = HostFacts.from_json(
        {"host": target.host.name, **agent.call("facts.gather", request.to_json())}
    )
    launch = facts.last_launch
    if launch is None:
        raise UsageError(
            "no-launch",
            f"{target} was never launched by fleetctl",
            hint="--profile P says what to compare with",
        )
    config = launch.config
    flags = {k: v for k, v in config.flags.items() if k not in ("port", "model-path")}
    return Profile(config.profile, config.model, flags, dict(config.env)), f"launch {launch.id}"


def _compared(
    target: Target, schema: Schema, against: str, names: set[str], before: Any, after: Any
) -> Effect:
    own = {flag.dest for name in names if (flag := schema.find(name)) is not None}
    changes = _changes(before["resolved"], after["resolved"]) if after["ok"] else {}
    env = _changes(
        {k: v[1] for k, v in before["env_changes"].items()},
        {k: v[1] for k, v in after["env_changes"].items()},
    )
    return Effect(
        target=target,
        sglang=schema.version or schema.digest,
        against=against,
        asked={k: v for k, v in changes.items() if k in own},
        follows={k: v for k, v in changes.items() if k not in own},
        env=env if after["ok"] else {},
        error=after["error"],
        said=_new_lines(before["log"], after["log"]),
        engine=after.get("engine"),
    )


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = sorted(old.keys() | new.keys())
    return {n: (old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)}


def _new_lines(old: list[str], new: list[str]) -> tuple[str, ...]:
    """Return the lines that only the second log has, times left out."""
    seen = {line.partition("] ")[2] or line for line in old}
    return tuple(t for line in new if (t := line.partition("] ")[2] or line) not in seen)
