"""A launch that the host itself spoils: made again, a few times, and never taken for an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.bisect.model import Verdict
from fleetctl.bisect.planner import next_round
from fleetctl.bisect.space import Space, Switch
from fleetctl.bisect.state import Stage, State
from fleetctl.clock import FakeClock
from fleetctl.errors import FleetError, RemoteError, UnreachableError
from fleetctl.model.fleet import Host, Service, Target
from fleetctl.model.launch import Atom
from fleetctl.remote import trial, unit
from fleetctl.remote.fault import AgentError
from fleetctl.trials.host import Launched, Rules, TrialHost
from fleetctl.trials.runner import Bisect, How

GUILTY = "b"
CRASH = {"fingerprint": "v1:x", "signature": "boom", "label": "code-bug", "phase": "warmup"}


def silent() -> RemoteError:
    return RemoteError("systemd-silent", "systemctl daemon-reload gave no answer")


class Ground:
    """In place of a surveyed host: a profile is the names of its switches."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.base: tuple[Switch, ...] = ()
        self.resolver = SimpleNamespace(ask=self.ask)

    def set_of(self, mask: int) -> list[str]:
        return [s.name for i, s in enumerate(self.space.switches) if mask >> i & 1]

    def profile(self, names: Iterable[str]) -> Any:
        return SimpleNamespace(names=frozenset(names), env={})

    def rendered(self, profile: Any) -> Any:
        return SimpleNamespace(profile=profile, argv=("serve", *sorted(profile.names)))

    def ask(self, launches: Sequence[Any]) -> list[Any]:
        return [SimpleNamespace(digest=" ".join(r.argv), error="") for r in launches]


class Bed:
    """In place of a host: crashes with the guilty switch; its faults come in the given order."""

    name = "h"

    def __init__(
        self, *, launch: Sequence[FleetError] = (), end: Sequence[FleetError] = ()
    ) -> None:
        self.faults = {"launch": list(launch), "end": list(end)}
        self.did: list[str] = []

    def _do(self, what: str) -> None:
        self.did.append(what)
        if self.faults.get(what):
            raise self.faults[what].pop(0)

    def launch(self, profile: Any, **_: Any) -> Launched:
        self._do("launch")
        if GUILTY in profile.names:
            return Launched({"state": "failed-start", "error": "crashed", "phase": "warmup",
                             "triage": CRASH})  # fmt: skip
        return Launched({"state": "ready", "error": None, "phase": "serving"})

    def end(self, **_: Any) -> None:
        self._do("end")

    def clean(self) -> None:
        self._do("clean")

    def rebooted(self) -> bool:
        return False

    def save(self, _state: Any) -> None:
        pass


def state() -> State:
    switches = tuple(Switch(n, (Atom("flag", n, None, True),)) for n in "abcd")
    return State("b1", "", "", "main", ["h"], "g", "b", "0.5", [Stage(Space(switches))])


def play(bed: Bed, known: State | None = None) -> dict[str, Any]:
    found = known or state()
    ground: Any = Ground(found.space)
    host: Any = bed
    return Bisect(found, ground, [host], How(), lambda _: None, FakeClock()).run()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))


@pytest.mark.parametrize(
    "fault", [silent(), UnreachableError("connection-lost", "cut")], ids=lambda e: e.reference
)
def test_a_launch_that_the_host_spoils_is_made_again(fault: FleetError) -> None:
    bed = Bed(launch=[fault])
    said = play(bed)
    assert (said["status"], said["causes"][0]["flags"]) == ("found", [GUILTY])
    assert said["outcomes"]["infra"] == 1
    assert bed.did.count("end") == bed.did.count("launch"), "each is ended, whatever it came to"


def test_a_host_that_spoils_all_ends_the_bisect_with_what_it_said() -> None:
    bed = Bed(launch=[silent() for _ in range(9)])
    said = play(bed)
    assert said["status"] == "inconclusive"
    assert said["outcomes"]["infra"] == 4
    assert said["reason"] == (
        "the host failed several times in a row (h: systemd-silent: systemctl daemon-reload gave no "
        "answer); --resume tries again"
    )


def test_who_resumes_after_that_launches_again() -> None:
    known = state()
    play(Bed(launch=[silent() for _ in range(4)]), known)
    assert isinstance(next_round(known.problem(), known.history(), 1), Verdict)
    known.forgive_host()
    again = Bed(launch=[silent() for _ in range(9)])
    assert play(again, known)["outcomes"]["infra"] == 8, "as often as the first time"
    known.forgive_host()
    assert play(Bed(), known)["status"] == "found"


def test_what_a_launch_told_stands_where_systemd_was_silent_at_its_end() -> None:
    said = play(Bed(end=[silent()]))
    assert (said["status"], said["outcomes"]["infra"]) == ("found", 0)


def test_any_other_fault_of_the_host_ends_the_bisect() -> None:
    with pytest.raises(RemoteError) as caught:
        play(Bed(launch=[RemoteError("disk-full", "no space")]))
    assert caught.value.reference == "disk-full"


def test_what_could_not_be_ended_is_ended_before_the_next_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = TrialHost(Target(Host("h", "h"), Service("main")), "b1", Rules(), threading.Event())
    asked: list[str] = []

    def patiently(verb: str, *_: Any) -> dict[str, Any]:
        asked.append(verb)
        if len(asked) == 1:
            raise silent()
        return {"clean": True, "dirt": [], "shm": [], "shm_all": []}

    monkeypatch.setattr(host, "_patiently", patiently)
    with pytest.raises(RemoteError):
        host.end()
    host.clean()
    host.clean()
    assert asked == ["trial.end", "trial.end", "trial.clean", "trial.clean"]


def test_a_systemd_that_says_nothing_of_a_trial_is_no_end_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unit, "show", lambda *_: {})
    monkeypatch.setattr("os.path.isdir", lambda _: True)
    with pytest.raises(AgentError) as caught:
        trial.VERBS["end"]({"service": "main-trial", "unit": "sglang-main-trial.service"}, None)
    assert caught.value.fields["reference"] == "systemd-silent"
