"""A patch whose time is over takes itself out: the timer, and the program that it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.model.facts import PatchNote
from fleetctl.patching import active, catalog, hosts
from fleetctl.patching.model import AtExpiry, Patch, Rung
from tests.patching.conftest import Scratch


@pytest.fixture
def patch() -> Patch:
    return catalog.find("none-in-foreach-copy", None)


def timer(scratch: Scratch) -> Path:
    return scratch.root / "etc/systemd/system/fleetctl-patches-main.timer"


def run(scratch: Scratch) -> subprocess.CompletedProcess[str]:
    """Run the program as the timer does."""
    program = scratch.root / "var/lib/fleetctl/lib/expire-patches.py"
    return subprocess.run(
        [sys.executable, "-I", program, "main"], capture_output=True, text=True, check=False
    )


def grow_old(scratch: Scratch) -> None:
    path = scratch.patches / "state.json"
    state = json.loads(path.read_text())
    for one in state["patches"]:
        one["expires_at"] = 1000.0
    path.write_text(json.dumps(state))


@pytest.mark.parametrize("rung", [Rung.OVERLAY, Rung.EDIT])
def test_it_takes_itself_out(scratch: Scratch, patch: Patch, rung: Rung) -> None:
    before = scratch.runner.read_bytes()
    scratch.push(patch, rung=rung, at_expiry=AtExpiry.REVERT)
    assert "OnCalendar=" in timer(scratch).read_text()
    assert any("enable -- fleetctl-patches-main.timer" in x for x in scratch.asked)
    assert run(scratch).returncode == 0
    assert len(scratch.status()) == 1, "its time is not over"
    grow_old(scratch)
    assert [p["expired"] for p in scratch.status()] == [True]
    done = run(scratch)
    assert (done.returncode, done.stdout) == (0, f"fleetctl: reverted {patch.name}\n")
    assert scratch.status() == []
    assert scratch.runner.read_bytes() == before
    assert not scratch.drop_in.exists()
    assert not timer(scratch).exists()
    last = hosts.history(scratch.link.call, scratch.link.target)[-1]
    assert (last["event"], last["by"]) == ("revert", "fleetctl timer")


def test_without_the_wish_it_only_gets_old(scratch: Scratch, patch: Patch) -> None:
    scratch.push(patch)
    assert not timer(scratch).exists()
    grow_old(scratch)
    assert [(p["expired"], p["at_expiry"]) for p in scratch.status()] == [(True, "warn")]


def test_only_who_wished_it_goes_and_the_first_one_sets_the_timer(
    scratch: Scratch, patch: Patch
) -> None:
    late, soon = catalog.find("kernel-api-log", None), catalog.find("forward-batch-dump", None)
    scratch.push(patch)
    scratch.push(late, expire=7200.0, at_expiry=AtExpiry.REVERT)
    after_one = timer(scratch).read_text()
    scratch.push(soon, expire=3600.0, at_expiry=AtExpiry.REVERT)
    assert timer(scratch).read_text() < after_one
    grow_old(scratch)
    assert run(scratch).returncode == 0
    assert [p["name"] for p in scratch.status()] == [patch.name]


def test_it_tries_again_while_somebody_holds_the_lock(scratch: Scratch, patch: Patch) -> None:
    scratch.push(patch, at_expiry=AtExpiry.REVERT)
    grow_old(scratch)
    lock = scratch.root / "run/fleetctl/lock.d/main"
    lock.mkdir(parents=True)
    (lock / "holder.json").write_text('{"who": "dave", "since": "now", "why": "", "token": "t"}')
    (lock / "beat").touch()
    assert run(scratch).returncode == 75
    assert len(scratch.status()) == 1


def test_the_timer_goes_with_the_patch(scratch: Scratch, patch: Patch) -> None:
    scratch.push(patch, at_expiry=AtExpiry.REVERT)
    scratch.revert()
    assert not timer(scratch).exists()
    assert not timer(scratch).with_suffix(".service").exists()


def test_every_command_says_what_is_applied_and_what_is_over() -> None:
    notes = (
        PatchNote("a", by="ann", expires_at="2026-11-29T20:49:38Z"),
        PatchNote("b", by="bob", expires_at="2026-11-29T12:00:00Z", expired=True),
        PatchNote("?", problem="cannot be parsed"),
    )
    first, second, third = active.remarks("h/main", notes)
    assert "a of ann is applied until 2026-11-29T20:49:38Z" in first
    assert "b of bob EXPIRED" in second
    assert "fleetctl patch revert b h/main" in second
    assert "cannot be parsed" in third
