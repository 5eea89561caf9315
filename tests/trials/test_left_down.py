"""A service that is still down for a bisect whose client died is told by the next one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.session import Session
from fleetctl.bisect.space import Space
from fleetctl.bisect.state import Stage, State
from fleetctl.model.fleet import Host
from fleetctl.trials import left_down, store

HOST = Host("h", "localhost", transport="local", python=sys.executable)
SYSTEMCTL = """\
#!/bin/sh
# Stands in for systemctl: every unit is what the file says.
echo "ActiveState=$(cat "$FLEETCTL_ROOT/active")"
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's files; what runs there is in ``active``."""
    folder = tmp_path / "host"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/systemctl").write_text(SYSTEMCTL)
    (folder / "bin/systemctl").chmod(0o755)
    (folder / "active").write_text("inactive")
    monkeypatch.setenv("FLEETCTL_ROOT", str(folder))
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    return folder


@pytest.fixture
def session(root: Path) -> Iterator[Session]:
    with Session(HOST, modules=("trial", "lock", "unit")) as found:
        yield found


def state(name: str = "b1", *, version: int = 3, since: str = "2026-11-29T03:00:00Z") -> State:
    found = State(name, "2026-11-28T00:00:00Z", "ann@desk", "main", ["h"], "g", "b", "0.5",
                  [Stage(Space(()))])  # fmt: skip
    found.taken_down = [{"host": "h", "service": "main", "since": since}]
    found.version = version
    return found


def on_host(root: Path, body: dict[str, Any]) -> None:
    folder = root / "var/lib/fleetctl/bisect"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{body['id']}.json").write_text(json.dumps(body))


def test_what_a_bisect_of_this_machine_left_down_is_told(session: Session) -> None:
    store.save(state())
    (line,) = left_down.remarks(session, HOST, "b2")
    assert "h/main is down since 2026-11-29T03:00:00Z: the bisect b1 of ann@desk" in line
    assert "`fleetctl bisect abandon b1` brings it back" in line
    assert "`fleetctl bisect-flags --resume b1` goes on" in line
    assert "--on" not in line


def test_what_somebody_elses_left_down_is_told_with_the_way_to_its_state(
    session: Session, root: Path
) -> None:
    on_host(root, state().to_json())
    (line,) = left_down.remarks(session, HOST, "b2")
    assert "`fleetctl bisect show b1 --on h` takes its state here, then `fleetctl bisect" in line


def test_a_state_without_the_hour_says_when_the_bisect_began(session: Session, root: Path) -> None:
    body = state().to_json()
    body["taken_down"] = [{"host": "h", "service": "main"}]
    on_host(root, body)
    (line,) = left_down.remarks(session, HOST, "b2")
    assert "is down since 2026-11-28T00:00:00Z" in line


def test_what_is_no_loss_is_not_told(session: Session, root: Path) -> None:
    on_host(root, {"id": "damaged"})
    on_host(root, state().to_json())
    assert left_down.remarks(session, HOST, "b1") == [], "its own"
    (root / "active").write_text("active")
    assert left_down.remarks(session, HOST, "b2") == [], "it runs again"
    (root / "active").write_text("failed")
    assert len(left_down.remarks(session, HOST, "b2")) == 1
    back = state(version=4)
    back.taken_down = []
    store.save(back)
    assert left_down.remarks(session, HOST, "b2") == [], "the newer copy says that it is back"


def test_a_bisect_that_goes_on_has_left_nothing(session: Session, root: Path) -> None:
    on_host(root, state().to_json())
    lock = root / "run/fleetctl/lock.d/main"
    lock.mkdir(parents=True)
    (lock / "beat").touch()
    holder = {"who": "ann@desk", "since": "", "token": "t", "why": "bisect b1"}
    (lock / "holder.json").write_text(json.dumps(holder))
    assert left_down.remarks(session, HOST, "b2") == []
    (lock / "holder.json").write_text(json.dumps(holder | {"why": "deploy tp8"}))
    assert len(left_down.remarks(session, HOST, "b2")) == 1
