"""A case's given state as objects, and a check that such a state can exist."""

from __future__ import annotations

from typing import Any

from fleetctl.config.secrets import Secrets
from fleetctl.model.facts import HostFacts
from fleetctl.model.fleet import Host, Profile, SecretRef, Service, Target
from fleetctl.model.launch import LaunchConfig, LaunchRecord
from fleetctl.plan.diff import sha256
from fleetctl.render import Rendered, render

INVOCATION = "0" * 31 + "1"


def rendered(case: dict[str, Any]) -> Rendered:
    """Return the wanted launch of a case."""
    wanted: dict[str, Any] = {"model": "/m"} | case.get("profile", {})
    for key in ("secret_flags", "secret_env"):
        wanted[key] = {n: SecretRef(**r) for n, r in wanted.get(key, {}).items()}
    for key in ("patches", "diag"):
        wanted[key] = tuple(wanted.get(key, ()))
    service = dict(case.get("service", {}))
    if "gpus" in service:
        service["gpus"] = tuple(service["gpus"])
    host = Host("b300-01", "10.0.0.1", **case.get("host", {}))
    secrets = case.get("secrets")
    return render(
        Profile("p", **wanted),
        Target(host, Service(**service)),
        secrets=Secrets(**secrets) if secrets else None,
        versions={"sglang": "0.5.12.post1"},
        systemd=252,
    )


def facts(case: dict[str, Any], wanted: Rendered) -> HostFacts:
    """Return the found state. ``files: as wanted`` puts the wanted launch's files there."""
    given = dict(case.get("facts", {}))
    unit = {"name": wanted.unit} | given.pop("unit", {})
    if unit.get("active_state") == "active":
        unit = {"load_state": "loaded", "sub_state": "running", "main_pid": 100,
                "invocation_id": INVOCATION} | unit  # fmt: skip
    there = _files(given.pop("files", {}), wanted)
    last = given.pop("last_launch", None)
    count = given.pop("gpus", 0)
    body = {
        "host": "b300-01",
        "service": wanted.target.service.name,
        "unit": unit,
        "interpreter": {"path": wanted.profile.python, "version": "3.12.3", "sglang": "0.5.12.post1"},
        "systemd": 252,
        "gpus": [{"index": n} for n in range(count)],
    } | given  # fmt: skip
    found = HostFacts.from_json(body | {"files": there})
    launch = _launch(last, wanted)
    return HostFacts(**{f: getattr(found, f) for f in found.__slots__} | {"last_launch": launch})


def _files(given: Any, wanted: Rendered) -> list[dict[str, Any]]:
    if given == "as wanted":
        return [_file(f.path, f.content, f.mode, f.owner, f.secret) for f in wanted.files]
    return [
        _file(path, text, 0o600 if "secrets." in path else 0o644, "root:root", "secrets." in path)
        for path, text in given.items()
    ]


def _file(path: str, text: str, mode: int, owner: str, secret: bool) -> dict[str, Any]:
    return {
        "path": path, "exists": True, "sha256": sha256(text), "size": len(text.encode()),
        "mode": mode, "owner": owner, "content": None if secret else text,
    }  # fmt: skip


def _launch(given: Any, wanted: Rendered) -> LaunchRecord | None:
    if given is None:
        return None
    given = {} if given == "as wanted" else dict(given)
    config = LaunchConfig(
        **{f: getattr(wanted.config, f) for f in wanted.config.__slots__} | given.pop("config", {})
    )
    flags = {k: v for k, v in (config.flags | given.pop("flags", {})).items() if v is not None}
    config = LaunchConfig(**{f: getattr(config, f) for f in config.__slots__} | {"flags": flags})
    fields = {"invocation_id": INVOCATION, "outcome": "ready"} | given
    return LaunchRecord("l1", "b300-01", "main", config, "2026-11-01T00:00:00Z", **fields)


def impossible(found: HostFacts) -> list[str]:
    """Return why no host can be in this state; nothing for one that can."""
    unit = found.unit
    wrong: list[str] = []
    if unit.active and not unit.main_pid:
        wrong.append("active without a main process")
    if unit.active and unit.load_state != "loaded":
        wrong.append("active without a loaded unit")
    if unit.alive and not unit.invocation_id:
        wrong.append("alive without an invocation")
    if unit.active_state == "failed" and unit.result == "success":
        wrong.append("failed with the result success")
    known = {g.index for g in found.gpus}
    holders = {p.gpu for p in found.gpu_processes}
    if not holders <= known:
        wrong.append(f"processes on GPUs that are not there: {sorted(holders - known)}")
    wrong += [
        f"port {use.port} held by a unit without a process"
        for use in found.ports
        if use.unit and not use.pid
    ]
    wrong += [
        f"{one.path}: content and hash disagree"
        for one in found.files
        if one.content is not None and sha256(one.content) != one.sha256
    ]
    if found.interpreter.sglang and not found.interpreter.exists:
        wrong.append("a version of what is not there")
    return wrong
