"""``reproduce``: deploy the launch of an incident again, with its request, and count the crashes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetctl.errors import FleetError, UsageError
from fleetctl.model.fleet import FlagValue, Profile, SecretRef
from fleetctl.model.incident import Occurrence
from fleetctl.model.nodes import rank_of
from fleetctl.patching import catalog, deploying
from fleetctl.patching.model import Patch

_SECRET = re.compile(r"\(secret: (env|file|command) (.+)\)")
OWN = ("port", "nnodes", "node-rank")  # of the target, not of the profile
MEETING = "dist-init-addr"
MADE = ("PATH", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES")  # by render, for the target


def profile_of(occurrence: Occurrence, elsewhere: bool = False) -> Profile:
    """Return the profile that renders to the launch of an incident. UsageError ``no-launch``.

    ``elsewhere``: on other hosts, so that nodes meet at another address than they did.
    """
    config = occurrence.config
    if not config:
        raise UsageError(
            "no-launch",
            f"{occurrence.id} does not know what was launched",
            hint="only launches by `fleetctl deploy` can be made again",
        )
    flags, secret_flags = _split(config.get("flags") or {})
    env, secret_env = _split(config.get("env") or {})
    unit = dict(config.get("unit") or {})
    place = rank_of(flags)
    own = (*OWN, MEETING) if elsewhere and place is not None else OWN
    python = str(unit.pop("python", "/opt/sglang/.venv/bin/python"))
    return Profile(
        name=str(config.get("profile") or "reproduce"),
        model=str(config.get("model") or ""),
        flags={k: _flag(v) for k, v in flags.items() if k not in own},
        env={k: str(v) for k, v in env.items() if k not in MADE},
        secret_flags=secret_flags,
        secret_env=secret_env,
        python=python,
        unit=unit | {"restart": "no"},  # each try is ours to count
        patches=tuple(config.get("patches") or ()),
        nodes=1 if place is None else place.count,
    )


def places_of(occurrence: Occurrence, nodes: int) -> list[str]:
    """Return the services that the launch ran on, rank by rank. UsageError ``nodes-unknown``."""
    if nodes == 1:
        return [f"{occurrence.host}/{occurrence.service}"]
    told = sorted(occurrence.triage.get("nodes") or (), key=lambda node: int(node["rank"]))
    if len(told) != nodes:
        raise UsageError(
            "nodes-unknown",
            f"{occurrence.id} does not know the {nodes} hosts that it ran on",
            hint="name them, rank 0 first: --on HOST --on HOST",
        )
    return [f"{node['host']}/{occurrence.service}" for node in told]


def _split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, SecretRef]]:
    plain, secret = {}, {}
    for name, value in values.items():
        match = _SECRET.fullmatch(value) if isinstance(value, str) else None
        if match:
            secret[name] = SecretRef(match.group(1), match.group(2))
        else:
            plain[name] = value
    return plain, secret


def _flag(value: Any) -> FlagValue:
    return tuple(value) if isinstance(value, list) else value


def requests_of(occurrence: Occurrence) -> tuple[dict[str, Any], ...]:
    """Return what was sent after ready when it failed; empty where nothing was recorded."""
    return tuple(json.loads(occurrence.request)) if occurrence.request else ()


def patches_of(
    occurrence: Occurrence, site: Path | None
) -> tuple[tuple[Patch, ...], tuple[str, ...]]:
    """Return the patches of an incident's launch, with the parameters that they had there.

    Second, a line for each that cannot be had, or not as it was, with how to go on.
    """
    config = occurrence.config or {}
    version = (config.get("versions") or {}).get("sglang")
    told = (occurrence.triage.get("captured") or {}).get("patches") or ()
    had = {one["name"]: one.get("parameters") or {} for one in told}
    found, lines = [], []
    for name, digest in sorted((config.get("patches") or {}).items()):
        try:
            patch = _with_values(catalog.find(name, site), had.get(name, {}))
            now = deploying.digests([patch], version, occurrence.id)[name] if version else digest
        except FleetError as error:
            lines.append(
                f"without the patch {name}, which that launch had: {error}; "
                f"for tries with it put patches/{name} back into the site and run this again"
            )
            continue
        found.append(patch)
        if now != digest:
            lines.append(
                f"with the patch {name} as it is now: it does something else than in that launch"
            )
    return tuple(found), tuple(lines)


def _with_values(patch: Patch, values: Mapping[str, Any]) -> Patch:
    """Return the patch with the values that its parameters had as their defaults."""
    given = {k: v for k, v in values.items() if patch.parameter(k) is not None}
    own = (replace(p, default=given.get(p.name, p.default)) for p in patch.parameters)
    return replace(patch, parameters=tuple(own))


@dataclass(slots=True)
class Tally:
    """How often it happened. ``same`` counts the incident's own fingerprint."""

    wanted: str
    patches: tuple[str, ...] = ()  # in every try
    same: int = 0
    others: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    unclear: int = 0

    def add(self, result: dict[str, Any]) -> str:
        """Count one ``result`` event; return same, other, pass or unclear."""
        triage = result.get("triage") or {}
        if result["state"] in ("ready", "unchanged"):
            self.passed += 1
            return "pass"
        if not triage.get("fingerprint"):
            self.unclear += 1
            return "unclear"
        if triage["fingerprint"] == self.wanted:
            self.same += 1
            return "same"
        self.others[str(triage.get("signature") or triage["fingerprint"])] += 1
        return "other"

    def to_json(self, incident: str) -> dict[str, Any]:
        """Return the documented object of ``reproduce --json``."""
        return {
            "event": "reproduced",
            "schema": "fleetctl.reproduced/1",
            "incident": incident,
            "fingerprint": self.wanted,
            "patches": list(self.patches),
            "tries": self.tries,
            "same": self.same,
            "passed": self.passed,
            "unclear": self.unclear,
            "others": [{"signature": s, "count": n} for s, n in self.others.most_common()],
        }

    @property
    def tries(self) -> int:
        """Return how many launches were counted."""
        return self.same + self.passed + self.unclear + sum(self.others.values())

    def lines(self) -> Iterable[str]:
        """Return the result for a person."""
        yield f"crashed the same way {self.same} of {self.tries} times"
        if self.passed:
            yield f"  {self.passed} became ready and stayed so"
        for signature, count in self.others.most_common():
            yield f"  {count} failed in another way: {signature}"
        if self.unclear:
            yield f"  {self.unclear} gave no answer"
