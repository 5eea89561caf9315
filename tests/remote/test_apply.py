"""A plan on its way: what is left behind at each point where it can end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.remote import apply, files, lock, places, records, revisions, shell, unit
from fleetctl.remote.agent import AgentError
from tests.remote.conftest import Systemctl

UNIT = "sglang-main.service"


class Session:
    """Takes the events; ``gone`` after so many looks."""

    def __init__(self, gone_after: int | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.looks = 0
        self.gone_after = gone_after

    def emit(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def cancelled(self) -> bool:
        self.looks += 1
        return self.gone_after is not None and self.looks > self.gone_after


@pytest.fixture(autouse=True)
def _free() -> Iterator[None]:
    yield
    apply.let_go()


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan(root: Path, **more: Any) -> dict[str, Any]:
    """A deploy that writes the unit and a secret, reloads and restarts."""
    there = root / "etc/systemd/system" / UNIT
    before = sha(there.read_text()) if there.exists() else None
    unit = {"path": str(there), "content": "[Service]\n", "mode": 0o644, "owner": "root:root"}
    secret = root / "etc/fleetctl/main/secrets.env"
    steps = [
        {"do": "verify-unit", "unit": UNIT, "content": "[Service]\n"},
        {"do": "write-file", **unit, "before": before},
        {
            "do": "write-file", "path": str(secret), "content": "KEY=s3cret\n", "mode": 0o600,
            "owner": "root:root", "before": None, "secret": True,
        },
        {"do": "daemon-reload"},
        {"do": "reset-failed", "unit": UNIT},
        {"do": "restart-unit", "unit": UNIT, "timeout": 10.0},
        {"do": "wait-ready", "unit": UNIT},
    ]  # fmt: skip
    launch = {"id": "20260101T000000-abc", "service": "main", "outcome": "starting", "config": {}}
    who = {"token": "t", "who": "ann@desk", "why": "deploy", "command": "fleetctl deploy"}
    return {
        "service": "main", "unit": UNIT, "steps": steps, "lock": who, "launch": launch,
        "reason": "try",
    } | more  # fmt: skip


def run(args: dict[str, Any], session: Session | None = None) -> dict[str, Any]:
    return apply.VERBS["run"](args, session or Session())


def settled(root: Path) -> dict[str, str]:
    """The files of the service that are there, hidden leftovers among them."""
    found = [*(root / "etc").rglob("*")]
    return {str(p.relative_to(root)): p.read_text() for p in found if p.is_file()}


def test_a_deploy_writes_restarts_and_leaves_its_records(
    host_root: Path, systemctl: Systemctl
) -> None:
    systemctl.show(InvocationID="old", ActiveState="active")
    session = Session()
    result = run(plan(host_root), session)
    assert result["invocation_id"] == "old"
    assert settled(host_root) == {
        f"etc/systemd/system/{UNIT}": "[Service]\n",
        "etc/fleetctl/main/secrets.env": "KEY=s3cret\n",
    }
    secret = host_root / "etc/fleetctl/main/secrets.env"
    assert secret.stat().st_mode & 0o777 == 0o600
    asked = [line for line in systemctl.asked if " show " not in line and "journalctl" not in line]
    quiet = [a.replace("--no-pager ", "").replace("--no-ask-password ", "") for a in asked[1:]]
    assert quiet == [
        "systemctl daemon-reload", f"systemctl reset-failed -- {UNIT}",
        f"systemctl restart -- {UNIT}",
    ]  # fmt: skip
    assert asked[0].startswith("systemd-analyze verify")
    assert records.asked_stop("old") is not None, "the stop of the old one is no crash"
    launch = records.last_launch("main")
    assert launch is not None
    assert launch["invocation_id"] == "old"
    issued = [e for e in session.events if e["do"] == "restart-unit" and e["state"] == "issued"]
    assert len(issued) == 1


def test_no_secret_reaches_audit_or_events(host_root: Path, systemctl: Systemctl) -> None:
    session = Session()
    run(plan(host_root), session)
    assert "s3cret" not in Path(places.AUDIT).read_text()
    assert "s3cret" not in json.dumps(session.events)
    assert "ann@desk" in Path(places.AUDIT).read_text()


def revision(root: Path) -> dict[str, Any]:
    """What the client says of the launch that ``plan`` brings."""
    unit = root / "etc/systemd/system" / UNIT
    secret = root / "etc/fleetctl/main/secrets.env"
    return {
        "profile": {"name": "p"}, "config": {"profile": "p", "model": "m"}, "restores": None,
        "files": [
            {"path": str(unit), "sha256": sha("[Service]\n"), "mode": 0o644,
             "owner": files.owner_name(root.stat()), "secret": False, "content": "[Service]\n"},
            {"path": str(secret), "sha256": sha("KEY=s3cret\n"), "mode": 0o600,
             "owner": files.owner_name(root.stat()), "secret": True, "content": None},
        ],
        "absent": [str(root / "etc/fleetctl/main/secrets.yaml")],
    }  # fmt: skip


def test_each_launch_is_a_revision_for_root_alone_without_secrets_and_ten_stay(
    host_root: Path, systemctl: Systemctl
) -> None:
    for number in range(1, 13):
        told = plan(host_root, revision=revision(host_root))
        for step in told["steps"]:
            if step["do"] == "write-file":
                step["before"] = files.sha256(step["path"])
        told["launch"] = dict(told["launch"], id=f"2026-{number:02}")
        assert run(told)["revision"] == number
        apply.let_go()
    kept = sorted((Path(places.REVISIONS) / "main").iterdir())
    assert [r["number"] for r in revisions.everything("main")] == list(range(12, 2, -1))
    assert {p.stat().st_mode & 0o777 for p in kept} == {0o600}
    assert (Path(places.REVISIONS) / "main").stat().st_mode & 0o777 == 0o700
    assert not any("s3cret" in p.read_text() for p in kept)


def test_a_revision_tells_what_became_of_its_launch(host_root: Path, systemctl: Systemctl) -> None:
    run(plan(host_root, revision=revision(host_root)))
    records.update_launch("main", "20260101T000000-abc", {"outcome": "ready", "ready_at": "x"})
    (found,) = revisions.VERBS["list"]({"service": "main"}, None)["revisions"]
    assert (found["ready"], found["result"]["outcome"]) == (True, "ready")
    assert all("content" not in f for f in found["files"])


def test_what_was_edited_by_hand_since_is_drift(host_root: Path, systemctl: Systemctl) -> None:
    run(plan(host_root, revision=revision(host_root)))
    assert revisions.drift("main") == []
    unit = host_root / "etc/systemd/system" / UNIT
    secret = host_root / "etc/fleetctl/main/secrets.env"
    unit.write_text("[Service]\nUser=me\n")
    secret.chmod(0o644)
    (host_root / "etc/fleetctl/main/secrets.yaml").write_text("x")
    states = [d["state"] for d in revisions.drift("main")]
    assert states == ["changed", "mode", "added"]
    unit.unlink()
    assert revisions.drift("main")[0]["state"] == "missing"


@pytest.mark.parametrize("word", ["verify", "daemon-reload"])
def test_a_fault_before_the_restart_takes_everything_back(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    there = host_root / "etc/systemd/system" / UNIT
    there.write_text("old unit")
    monkeypatch.setitem(shell.ENV, "FAIL", word)
    with pytest.raises(AgentError) as caught:
        run(plan(host_root))
    assert caught.value.fields["reference"] in ("unit-verify", "daemon-reload-failed")
    assert settled(host_root) == {f"etc/systemd/system/{UNIT}": "old unit"}
    assert records.last_launch("main") is None, "what was taken back was no launch"
    assert lock.holder("main") is None
    assert not any(" restart " in line for line in systemctl.asked)


def test_a_warning_of_verify_is_a_fault_though_it_ends_with_zero(
    host_root: Path, systemctl: Systemctl
) -> None:
    path = host_root / "bin" / "systemd-analyze"
    path.write_text('#!/bin/sh\necho "$2:5: Unknown key name Restat, ignoring." >&2\n')
    with pytest.raises(AgentError) as caught:
        run(plan(host_root))
    assert caught.value.fields["reference"] == "unit-verify"
    assert "Unknown key name" in caught.value.fields["context"][0]
    assert settled(host_root) == {}


def test_a_client_that_is_gone_before_the_restart_changes_nothing(
    host_root: Path, systemctl: Systemctl
) -> None:
    with pytest.raises(AgentError) as caught:
        run(plan(host_root), Session(gone_after=1))
    assert caught.value.fields["exit_code"] == 130
    assert settled(host_root) == {}
    assert not any(" restart " in line for line in systemctl.asked)


def test_what_systemd_had_read_is_read_again_when_the_files_are_taken_back(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = host_root / "etc/systemd/system" / UNIT
    there.write_text("old unit")
    seen: list[str] = []
    reload_, ask = unit.reload_units, unit.systemctl

    def systemctl_(*args: str, timeout: float = 20.0) -> shell.Done:
        if args == ("daemon-reload",):
            seen.append(there.read_text())
        return ask(*args, timeout=timeout)

    def reload_units() -> None:
        seen.append(there.read_text())
        reload_()

    def broken(_name: str) -> None:
        raise AgentError("broken", "between the reload and the restart")

    monkeypatch.setattr(unit, "reload_units", reload_units)
    monkeypatch.setattr(unit, "systemctl", systemctl_)
    monkeypatch.setattr(unit, "reset_failed", broken)
    with pytest.raises(AgentError):
        run(plan(host_root))
    assert seen == ["[Service]\n", "old unit"]


def test_a_file_that_changed_since_the_plan_stops_it(host_root: Path, systemctl: Systemctl) -> None:
    args = plan(host_root)
    (host_root / "etc/systemd/system" / UNIT).write_text("somebody was here")
    with pytest.raises(AgentError) as caught:
        run(args)
    assert caught.value.fields["reference"] == "changed-meanwhile"
    assert settled(host_root) == {f"etc/systemd/system/{UNIT}": "somebody was here"}


@pytest.mark.parametrize("expect", [{"invocation_id": "other"}, {"last_launch": "other"}])
def test_another_restart_or_launch_since_the_plan_stops_it(
    host_root: Path, systemctl: Systemctl, expect: dict[str, str]
) -> None:
    with pytest.raises(AgentError) as caught:
        run(plan(host_root, expect=expect))
    assert caught.value.fields["reference"] == "changed-meanwhile"
    assert settled(host_root) == {}


def test_a_start_that_dies_at_once_is_left_to_the_watch(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = host_root / "bin" / "systemctl"
    path.write_text(
        '#!/bin/sh\ncase " $* " in\n'
        f'*" show "*) echo InvocationID=$(cat {host_root}/bin/id 2>/dev/null || echo old);;\n'
        f'*" restart "*) echo new > {host_root}/bin/id; exit 1;;\nesac\n'
    )
    assert run(plan(host_root))["invocation_id"] == "new"


def test_the_lock_is_kept_for_the_watch_and_not_without_one(
    host_root: Path, systemctl: Systemctl
) -> None:
    run(plan(host_root))
    assert lock.holder("main") is not None
    apply.let_go()
    args = plan(host_root, watch=False)
    for step in args["steps"]:
        if step["do"] == "write-file":
            step["before"] = sha(step["content"])
    run(args)
    assert lock.holder("main") is None


def test_only_the_newest_launches_are_kept_and_the_last_ready_one(host_root: Path) -> None:
    for n in range(60):
        outcome = "ready" if n == 3 else "failed-start"
        records.save_launch({"id": f"L{n:03}", "service": "main", "outcome": outcome})
    kept = [launch["id"] for launch in records.launches("main")]
    assert len(kept) == records.KEPT_LAUNCHES + 1
    assert kept[0] == "L059"
    assert kept[-1] == "L003"
