"""An agent that dies at any point leaves the old launch or the new one, and the next agent no mixture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.remote import apply, files, lock, places, records, revisions, shell, undo, unit
from fleetctl.remote.agent import AgentError
from tests.remote.conftest import Systemctl
from tests.remote.test_apply import UNIT, Session, plan, run, settled, sha

OLD = {f"etc/systemd/system/{UNIT}": "old unit", "etc/fleetctl/main/secrets.env": "KEY=old\n"}
NEW = {f"etc/systemd/system/{UNIT}": "[Service]\n", "etc/fleetctl/main/secrets.env": "KEY=s3cret\n"}
LAUNCH = "20260101T000000-abc"


class KilledError(BaseException):
    """The agent is gone at this very point: nothing of its own runs any more."""


@pytest.fixture(autouse=True)
def _free() -> Iterator[None]:
    yield
    apply.let_go()


@pytest.fixture
def deploy(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """A deploy over an old launch whose agent dies where ``kill`` says, and leaves its lock behind."""
    systemctl.show(InvocationID="old", ActiveState="active")
    for name, text in OLD.items():
        (host_root / name).parent.mkdir(parents=True, exist_ok=True)
        (host_root / name).write_text(text)
    monkeypatch.setattr(apply.Run, "_end_of", lambda _run, _error: None)

    def go() -> None:
        args = plan(host_root, revision={"files": []})
        args["steps"][2]["before"] = sha(OLD["etc/fleetctl/main/secrets.env"])
        with pytest.raises(KilledError):
            run(args)

    return go


def kill(monkeypatch: pytest.MonkeyPatch, place: object, name: str, after: bool = False) -> None:
    """Let the agent die before or after a function is called."""
    real = getattr(place, name)

    def dying(*args: Any, **more: Any) -> None:
        if after:
            real(*args, **more)
        raise KilledError

    monkeypatch.setattr(place, name, dying)


def second_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agent die between the renames of the unit and of its secrets."""
    real, count = os.replace, 0

    def dying(source: str, goal: str) -> None:
        nonlocal count
        count += goal.endswith((UNIT, "secrets.env"))
        if count == 2:
            monkeypatch.setattr(os, "replace", real)
            raise KilledError
        real(source, goal)

    monkeypatch.setattr(os, "replace", dying)
    monkeypatch.setattr(files.Change, "rollback", lambda _change: None)


DEATHS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "nothing staged": lambda m: kill(m, apply.Run, "stage"),
    "all staged": lambda m: kill(m, apply.Run, "stage", after=True),
    "launch recorded": lambda m: kill(m, apply.Run, "_announce", after=True),
    "between two renames": second_replace,
    "all renamed": lambda m: kill(m, files.Change, "commit", after=True),
    "reloaded": lambda m: kill(m, unit, "reload_units", after=True),
    "revision kept": lambda m: kill(m, revisions, "keep", after=True),
    "restart not issued": lambda m: kill(m, unit, "start"),
}


@pytest.mark.parametrize("death", DEATHS)
def test_before_the_restart_the_next_agent_takes_all_back(
    host_root: Path,
    systemctl: Systemctl,
    deploy: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    death: str,
) -> None:
    with monkeypatch.context() as dying:
        DEATHS[death](dying)
        deploy()
    systemctl.log.unlink(missing_ok=True)
    undo.repair("main")
    assert settled(host_root) == OLD
    assert systemctl.asked[-1].endswith(" daemon-reload"), "systemd starts from what it read last"
    assert records.last_launch("main") is None, "what was taken back was no launch"
    assert revisions.newest("main") is None
    assert not undo.pending("main")
    assert lock.holder("main") is None


def test_after_the_restart_all_is_done(
    host_root: Path,
    systemctl: Systemctl,
    deploy: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as dying:
        kill(dying, unit, "start", after=True)
        deploy()
    systemctl.show(InvocationID="new", ActiveState="active", Job="0")
    undo.repair("main")
    assert settled(host_root) == NEW
    launch = records.last_launch("main")
    assert launch is not None
    assert launch["invocation_id"] == "new"
    assert (revisions.newest("main") or {})["launch"] == LAUNCH


@pytest.mark.parametrize(("begun", "left"), [(False, OLD), (True, NEW)])
def test_after_a_power_cut_the_record_of_the_launch_decides(
    host_root: Path,
    systemctl: Systemctl,
    deploy: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
    left: dict[str, str],
) -> None:
    with monkeypatch.context() as dying:
        kill(dying, apply.Run, "_done" if begun else "_tell_files")
        deploy()
    monkeypatch.setattr(records, "boot_id", lambda: "the next boot")
    systemctl.show(InvocationID="of-this-boot", ActiveState="active")
    undo.repair("main")
    assert settled(host_root) == left


def test_what_starts_at_boot_waits_for_it_only_meanwhile(
    host_root: Path, systemctl: Systemctl
) -> None:
    wants = host_root / "etc/systemd/system/multi-user.target.wants"
    undo.begin("main", UNIT, LAUNCH, "old", [])
    assert not wants.exists(), "nothing starts it at a boot"
    wants.mkdir()
    (wants / UNIT).symlink_to(f"../{UNIT}")
    undo.begin("main", UNIT, LAUNCH, "old", [])
    text = (wants / "fleetctl-undo-main.service").read_text()
    assert f"Before={UNIT}" in text
    assert "collect.py --undo main" in text
    undo.end("main")
    assert [p.name for p in wants.iterdir()] == [UNIT]
    assert not list(host_root.glob("etc/systemd/system/fleetctl-*"))


def test_a_living_agent_is_left_to_its_work(host_root: Path, systemctl: Systemctl) -> None:
    other = lock.acquire("main", {"token": "other", "who": "bob"})
    undo.begin("main", UNIT, LAUNCH, "old", [])
    undo.repair("main")
    assert undo.pending("main")
    other.release()


def test_a_systemd_that_hangs_leaves_it_for_later(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo.begin("main", UNIT, LAUNCH, "old", [])
    systemctl.props.unlink()
    monkeypatch.setattr(os.path, "isdir", lambda _path: True)
    with pytest.raises(AgentError) as caught:
        undo.repair("main")
    assert caught.value.fields["reference"] == "systemd-silent"
    assert undo.pending("main")
    assert lock.holder("main") is None


def test_who_lost_the_lock_restarts_nothing_and_touches_nothing_more(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        taken = lock.acquire("main", {"token": "b", "who": "bob"}, force="ann is gone")
        undo.settle("main")
        (host_root / "etc/fleetctl/main").mkdir(parents=True)
        (host_root / "etc/fleetctl/main/secrets.env").write_text("bob's")
        monkeypatch.setattr(lock.Lock, "release", lambda _lock: None)
        del taken

    monkeypatch.setattr(unit, "reload_units", broken)
    with pytest.raises(AgentError) as caught:
        run(plan(host_root))
    assert (caught.value.fields["reference"], caught.value.fields["exit_code"]) == ("lock-lost", 5)
    assert settled(host_root)["etc/fleetctl/main/secrets.env"] == "bob's"
    assert not any(" restart " in line for line in systemctl.asked)


class Bob:
    """Breaks ann's lock, ends what she had begun, and has files of his own there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.secrets = root / "etc/fleetctl/main/secrets.env"
        self.unit = root / "etc/systemd/system" / UNIT
        monkeypatch.setattr(lock, "FENCE", 0.05)  # ann's agent is stopped for longer than that

    def comes(self) -> None:
        self.lock = lock.acquire("main", {"token": "b", "who": "bob"}, force="ann is gone")
        undo.settle("main")
        for path in (self.unit, self.secrets):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("bob's")

    def leaves(self) -> dict[str, str]:
        self.lock.release()
        return {self.unit.read_text(): self.secrets.read_text()}


@pytest.mark.parametrize("where", ["before the first rename", "between two renames"])
def test_who_lost_the_lock_renames_nothing_more(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    bob = Bob(host_root, monkeypatch)
    place, name = {
        "before the first rename": (apply.Run, "_announce"),
        "between two renames": (files.Change, "_show"),
    }[where]
    real: Any = getattr(place, name)

    def stopped(*args: Any) -> None:
        real(*args)
        monkeypatch.setattr(place, name, real)
        bob.comes()

    monkeypatch.setattr(place, name, stopped)
    with pytest.raises(AgentError) as caught:
        run(plan(host_root))
    assert caught.value.fields["reference"] == "lock-lost"
    assert bob.leaves() == {"bob's": "bob's"}
    assert not any(" restart " in line for line in systemctl.asked)
    assert records.last_launch("main") is None
    assert not [p for p in host_root.rglob(".fleetctl-*") if p.is_file()]


def test_who_lost_the_lock_before_its_note_writes_none(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Bob(host_root, monkeypatch)
    monkeypatch.setattr(apply.Run, "recheck", lambda _run: bob.comes())
    with pytest.raises(AgentError):
        run(plan(host_root))
    assert not undo.pending("main")
    assert bob.leaves() == {"bob's": "bob's"}


def test_who_lost_the_lock_while_it_restarted_leaves_the_note_of_the_next(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = Bob(host_root, monkeypatch)

    def restart(_unit: str, _restart: bool) -> str:
        systemctl.show(InvocationID="new", ActiveState="active", Job="0")
        bob.comes()
        undo.begin("main", UNIT, "bobs-launch", "new", [str(bob.unit)])
        os.link(bob.unit, files.kept_name(str(bob.unit)))
        return "new"

    monkeypatch.setattr(unit, "start", restart)
    assert run(plan(host_root))["invocation_id"] == "new"
    assert undo.pending("main")
    assert Path(files.kept_name(str(bob.unit))).exists()
    bob.leaves()


def test_the_lock_of_a_dead_process_is_nobodys_at_once(host_root: Path) -> None:
    lock.acquire("main", {"token": "a", "who": "ann"})
    holder = Path(places.LOCKS) / "main" / "holder.json"
    body = records.read_object(str(holder)) or {}
    assert lock.living("main") is not None
    holder.write_text(records.line_of(body | {"process_start": 1}))
    assert lock.living("main") is None, "another process has that number by now"
    taken = lock.acquire("main", {"token": "b", "who": "bob"})
    taken.release()


def test_a_launch_of_a_lost_agent_is_told_to_who_asks(
    host_root: Path, systemctl: Systemctl
) -> None:
    ask = {"service": "main", "launch": LAUNCH, "lock": {"token": "t", "who": "ann"}}
    assert apply.VERBS["settle"](ask, Session())["invocation_id"] is None
    run(plan(host_root))
    assert apply.VERBS["settle"](ask, Session())["invocation_id"] == "new"


def test_a_systemd_that_hangs_is_known_while_a_slow_one_is_waited_for(
    host_root: Path, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = host_root / "bin" / "systemctl"
    program.write_text('#!/bin/sh\ncase "$*" in *Version*) exit $SILENT;; esac\nexec sleep $SLOW\n')
    monkeypatch.setattr(unit, "PATIENCE", 0.05)
    monkeypatch.setitem(shell.ENV, "SILENT", "0")
    monkeypatch.setitem(shell.ENV, "SLOW", "0.5")
    unit.reload_units()
    monkeypatch.setitem(shell.ENV, "SILENT", "1")
    monkeypatch.setitem(shell.ENV, "SLOW", "600")
    with pytest.raises(AgentError) as caught:
        unit.start(UNIT, restart=True)
    assert caught.value.fields["reference"] == "systemd-silent"
    assert caught.value.fields["hint"]
