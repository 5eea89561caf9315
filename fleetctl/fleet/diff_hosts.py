"""What differs between hosts that should be alike: each fact's most common value is the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.fleet.doctor import Visit
from fleetctl.model.launch import shown

SCHEMA = "fleetctl.host-diff/1"
SETTINGS = ("LimitNOFILE", "LimitMEMLOCK", "User")


@dataclass(frozen=True, slots=True)
class Row:
    """One fact: value → hosts, the most common value first. "" stands for a host that has none."""

    fact: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the documented object."""
        reference, others = self.values[0], self.values[1:]
        return {
            "fact": self.fact,
            "reference": reference[0],
            "hosts": list(reference[1]),
            "others": [{"value": v, "hosts": list(h)} for v, h in others],
        }


def flat(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a look's comparable facts, name → text, without what is each host's own (names, use)."""
    kernel, python, gpu = (_group(facts, n) for n in ("kernel", "python", "gpu"))
    unit, journal = _group(facts, "unit"), _group(facts, "journal")
    found = {
        "os": kernel.get("os"),
        "kernel": kernel.get("release"),
        "machine": kernel.get("machine"),
        "systemd": _group(facts, "systemd").get("version"),
        "journal storage": journal.get("storage"),
        "ephemeral ports": shown(kernel.get("ephemeral") or ()),
        "ptrace_scope": kernel.get("ptrace_scope"),
        "memory GiB": round(_group(facts, "memory").get("total", 0) / 1024**3) or None,
        "cpus": _group(facts, "memory").get("cpus"),
        "python": python.get("version"),
        "driver": gpu.get("driver"),
        "cuda": gpu.get("cuda"),
        "gpus": _gpus(gpu),
        "nvlink multicast": gpu.get("multicast"),
        "unit hash": (unit.get("fragment_sha256") or "")[:12],
        "drop-ins": shown(sorted(unit.get("drop_ins") or ())),
        "patches": shown(sorted(str(p["name"]) for p in facts.get("patches") or [])),
    }
    limits = unit.get("limits") or {}
    if unit.get("load_state") == "loaded":
        found |= {f"unit {name}": limits.get(name) for name in SETTINGS}
    found |= {f"package {n}": v for n, v in (python.get("packages") or {}).items()}
    config = _group(facts, "launch").get("config") or {}
    found["model"] = config.get("model")
    for kind in ("flags", "env"):
        found |= {
            f"{kind[:-1] if kind == 'flags' else kind} {n}": shown(v)
            for n, v in (config.get(kind) or {}).items()
        }
    return {k: str(v) for k, v in found.items() if v not in (None, "")}


def _group(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = facts.get(name)
    return dict(value) if isinstance(value, Mapping) else {}


def _gpus(gpu: Mapping[str, Any]) -> str:
    names = [g["name"] for g in gpu.get("gpus") or []]
    return ", ".join(f"{names.count(n)} × {n}" for n in dict.fromkeys(names))


def differences(visits: Sequence[Visit]) -> list[Row]:
    """Return the facts in which answering hosts differ; several services of a host are compared too."""
    tables = {
        v.host if len(v.facts) == 1 else f"{v.host}/{service}": flat(facts)
        for v in visits
        if v.facts
        for service, facts in v.facts.items()
    }
    rows = []
    for fact in sorted({name for table in tables.values() for name in table}):
        by_value: dict[str, list[str]] = {}
        for host in sorted(tables):
            by_value.setdefault(tables[host].get(fact, ""), []).append(host)
        if len(by_value) > 1:
            order = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[0]))
            rows.append(Row(fact, tuple((value, tuple(hosts)) for value, hosts in order)))
    return rows
