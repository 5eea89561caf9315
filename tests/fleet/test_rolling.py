"""A rolling deploy between its parts: drains that are undone on every way out, and a canary that is watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply import audit, standing, together
from fleetctl.apply.outcome import Outcome, State
from fleetctl.apply.wish import Wish
from fleetctl.clock import FakeClock
from fleetctl.errors import Exit, FleetError, RefusedError, UnreachableError
from fleetctl.fleet import rollback, rolling
from fleetctl.fleet.hooks import Hooks
from fleetctl.fleet.rolling import Road, Roller
from fleetctl.fleet.rollout import Limits
from fleetctl.model.fleet import Host, Profile, Service, Target
from fleetctl.report.deploy import rolling_line

TARGETS = [
    Target(Host(name=n, address="localhost", transport="local"), Service(name="main"))
    for n in "abc"
]
Event = dict[str, Any]
Status = Callable[[], Event]


class Bench:
    """A change of three hosts: what each comes to, what is seen of the canary, and the hooks' own words."""

    def __init__(self, folder: Path) -> None:
        self.words = folder / "words"
        self.ends: dict[str, State] = {}
        self.found: dict[str, Outcome] = {}
        self.looks: list[Status] = []
        self.told: list[Event] = []
        self.tell: Callable[[Event], None] = self.told.append
        self.during: Callable[[], None] = lambda: None
        self.rollback = False

    def run(self, limits: Limits, drain: str = "") -> tuple[dict[str, Outcome], Event, int]:
        say = f"$HOST $STATE >> {self.words}"
        hooks = Hooks(drain or f"echo drain {say}", f"echo undrain {say}")
        roller = Roller(
            TARGETS, Wish(Profile(name="tp8", model="/models/tiny")), Road(limits, hooks, rollback=self.rollback), lambda e: self.tell(e),
            lambda _: None, lambda _: True, clock=FakeClock(),
        )  # fmt: skip
        outcomes, report = roller.run()
        return {o.host: o for o in outcomes}, report, int(rolling.exit_code(outcomes, report))

    def hooked(self) -> list[str]:
        return self.words.read_text().splitlines() if self.words.exists() else []

    # --- in place of the road of every deploy ---

    def deploy(self, targets: Sequence[Target], *_: object) -> list[Outcome]:
        self.during()
        return [
            Outcome(t.host.name, "main", self.ends.get(t.host.name, State.READY), invocation_id="i")
            for t in targets
        ]

    def status(self, *_: object) -> Event:
        return (self.looks.pop(0) if self.looks else seen("ready"))()


def seen(state: str, invocation: str = "i") -> Status:
    return lambda: {"state": state, "unit": {"invocation_id": invocation}}


def silent() -> Event:
    raise UnreachableError("unreachable-timeout", "no answer within 10 s", where="a")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench(tmp_path)

    class Way:
        def __init__(self, target: Target, *_: object) -> None:
            self.name = target.host.name

        def prepare(self) -> Outcome | None:
            return found.found.get(self.name)

    monkeypatch.setattr(rolling, "Deployment", Way)
    monkeypatch.setattr(together, "deploy", found.deploy)
    monkeypatch.setattr(standing, "status", found.status)
    monkeypatch.setattr(audit, "write", lambda _: None)
    return found


def test_each_is_drained_before_and_undrained_after_with_how_it_ended(bench: Bench) -> None:
    bench.ends["b"] = State.FAILED_START
    _, report, code = bench.run(Limits())
    assert bench.hooked() == ["drain a", "undrain a ready", "drain b", "undrain b failed-start"]
    assert (report["state"], report["untouched"], code) == ("stopped", ["c/main"], Exit.NEGATIVE)


@pytest.mark.parametrize("kind", [RuntimeError, OSError, KeyboardInterrupt])
def test_what_was_drained_is_undrained_whatever_goes_wrong(
    bench: Bench, kind: type[BaseException]
) -> None:
    def fault() -> None:
        raise kind

    bench.during = fault
    if kind is KeyboardInterrupt:
        _, report, code = bench.run(Limits())
        assert (report["state"], code) == ("interrupted", Exit.INTERRUPTED)
    else:
        with pytest.raises(kind):
            bench.run(Limits())
    assert bench.hooked() == ["drain a", "undrain a untouched"]


def test_also_where_it_cannot_even_be_said_that_it_is_drained(bench: Bench) -> None:
    def full(event: Event) -> None:
        if event.get("do") == "drain":
            raise OSError(28, "No space left on device")

    bench.tell = full
    with pytest.raises(OSError, match="No space"):
        bench.run(Limits())
    assert bench.hooked() == ["drain a", "undrain a untouched"]


def test_a_failed_drain_restarts_nothing_and_leaves_nothing_drained(bench: Bench) -> None:
    bench.during = lambda: pytest.fail("a restart")
    ends, report, code = bench.run(
        Limits(batch=3, canary=False), f'[ $HOST != b ] && echo drain $HOST >> {bench.words}'
    )  # fmt: skip
    assert sorted(bench.hooked()) == ["drain a", "drain c", "undrain a untouched", "undrain c untouched"]  # fmt: skip
    assert ends["b"].error == "drain-failed"
    assert (report["failed"], report["untouched"]) == (["b/main"], ["a/main", "c/main"])
    assert code != Exit.OK


@pytest.mark.parametrize(
    ("looks", "state", "error"),
    [
        ([seen("failed")], State.FAILED_START, "died-in-soak"),
        ([seen("ready", "another")], State.FAILED_START, "died-in-soak"),
        ([seen("unhealthy"), seen("unhealthy")], State.FAILED_START, "died-in-soak"),
        ([silent, silent], State.UNREACHABLE, "unreachable-timeout"),
    ],
    ids=["failed", "restarted", "unhealthy twice", "does not answer twice"],
)
def test_a_canary_that_does_not_stay_ready_stops_all_and_says_how_it_is(
    bench: Bench, looks: list[Status], state: State, error: str
) -> None:
    bench.looks = list(looks)
    ends, report, code = bench.run(Limits(soak=60))
    assert (ends["a"].state, ends["a"].error) == (state, error)
    assert (report["failed"], report["untouched"]) == (["a/main"], ["b/main", "c/main"])
    assert code == (Exit.UNREACHABLE if state == State.UNREACHABLE else Exit.NEGATIVE)


@pytest.mark.parametrize("one", [seen("unhealthy"), silent], ids=["unhealthy", "silent"])
def test_one_bad_look_at_a_canary_is_no_verdict(bench: Bench, one: Status) -> None:
    bench.looks = [one, seen("ready"), one]
    _, report, code = bench.run(Limits(soak=60))
    assert (report["state"], report["ready"], code) == ("done", ["a/main", "b/main", "c/main"], 0)


@pytest.mark.parametrize(
    ("end", "back"),
    [(State.FAILED_START, True), (State.HUNG, True), (State.READY, False), (State.LOCKED, False)],
)
def test_only_a_host_whose_new_launch_failed_goes_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, end: State, back: bool
) -> None:
    asked: list[list[str]] = []

    def wishes(targets: Sequence[Target], *_: object) -> tuple[dict[str, Wish], list[Any]]:
        asked.append([str(t) for t in targets])
        return {}, [(targets[0], RefusedError("no-revision", "none is kept"))]

    monkeypatch.setattr(rollback, "wishes", wishes)
    bench.ends["a"] = end
    bench.rollback = True
    bench.run(Limits(canary=False, batch=3))
    assert asked == ([["a/main"]] if back else [])
    assert [e["state"] for e in bench.told if e["event"] == "rolled-back"] == (
        ["not-possible"] if back else []
    )


def test_unchanged_counts_as_well_only_where_it_serves(bench: Bench) -> None:
    for name, word in (("a", "ready"), ("b", "failed")):
        bench.found[name] = Outcome(name, "main", State.UNCHANGED, more={"status": word})
    _, report, code = bench.run(Limits())
    assert (report["unchanged"], report["failed"]) == (["a/main"], ["b/main"])
    assert (report["untouched"], code) == (["c/main"], Exit.NEGATIVE)


@pytest.mark.parametrize(
    ("invocation", "starting", "untouched"),
    [("i", ["a/main"], ["b/main", "c/main"]), (None, [], ["a/main", "b/main", "c/main"])],
    ids=["after its restart", "before it"],
)
def test_a_host_whose_watch_is_interrupted_has_not_failed(
    bench: Bench, invocation: str | None, starting: list[str], untouched: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def deploy(targets: Sequence[Target], *_: object) -> list[Outcome]:
        name = targets[0].host.name
        return [Outcome(name, "main", State.INTERRUPTED, invocation_id=invocation)]

    monkeypatch.setattr(together, "deploy", deploy)
    _, report, code = bench.run(Limits())
    assert (report["state"], report["failed"], code) == ("interrupted", [], Exit.INTERRUPTED)
    assert (report["starting"], report["untouched"]) == (starting, untouched)
    assert ("still starting" in rolling_line(report)) is bool(starting)


def test_a_host_that_cannot_be_reached_is_known_before_anything_stops(bench: Bench) -> None:
    fault: FleetError = UnreachableError("no-route", "no route", where="c")
    bench.found["c"] = Outcome("c", "main", State.UNREACHABLE, error="no-route", fault=fault)
    bench.during = lambda: pytest.fail("a restart")
    _, report, code = bench.run(Limits())
    assert bench.hooked() == []
    assert (report["failed"], report["untouched"]) == (["c/main"], ["a/main", "b/main"])
    assert code == Exit.UNREACHABLE
