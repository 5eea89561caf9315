"""The planner of rolling changes: what holds in every order of ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import UsageError
from fleetctl.fleet import rollout
from fleetctl.fleet.rollout import Finish, Limits, Pause, Place, Rollout, Soak, Start

HOSTS = tuple(f"h{n}/main" for n in range(7))
FOUND = st.sampled_from([Place.PENDING, Place.PENDING, Place.UNCHANGED, Place.FAILED])
ENDS = st.sampled_from([Place.READY, Place.READY, Place.READY, Place.FAILED, Place.PENDING])
LIMITS = st.builds(
    Limits,
    batch=st.integers(1, 4),
    max_fail=st.integers(0, 3),
    pause=st.sampled_from([0.0, 5.0]),
    soak=st.sampled_from([0.0, 60.0]),
    canary=st.booleans(),
)


class Walk:
    """Plays a change to its end and checks each step."""

    def __init__(self, state: Rollout, draw: st.DrawFn) -> None:
        self.state = state
        self.draw = draw
        self.starts: list[Start] = []
        self.soaks: list[tuple[Soak, str]] = []
        self.given_back = 0

    def end(self) -> Finish:
        for _ in range(100):
            action = self.state.next()
            match action:
                case Finish():
                    return action
                case Start():
                    self.start(action)
                case Soak(name, _):
                    fault = self.draw(st.sampled_from(["", "it died"]))
                    assert self.state.places[name] == Place.READY
                    self.soaks.append((action, fault))
                    self.state = self.state.soak_ended(fault)
                case Pause(seconds):
                    assert seconds == self.state.limits.pause
                    assert self.starts, "no pause before the first"
                    self.state = self.state.pause_ended()
                case _:
                    raise AssertionError(action)
        raise AssertionError("it never ends")

    def start(self, action: Start) -> None:
        state, limits = self.state, self.state.limits
        assert 1 <= len(action.names) <= (1 if action.canary else limits.batch)
        assert all(state.places[n] == Place.PENDING for n in action.names)
        assert len(state.of(Place.FAILED)) <= limits.max_fail
        assert not any(fault for _, fault in self.soaks), "nothing is stopped after a bad canary"
        if (
            limits.soak
            and limits.canary
            and state.canary
            and state.places[state.canary] == Place.READY
        ):
            assert state.soaked
        self.starts.append(action)
        self.state = state = state.started(action.names)
        for name in action.names:
            assert isinstance(self.state.next(), rollout.Wait), "none before all have ended"
            place = self.draw(ENDS)
            if place == Place.PENDING:
                self.given_back += 1
                place = Place.PENDING if self.given_back < 4 else Place.READY
            self.state = self.state.ended(name, place)


@st.composite
def walks(draw: st.DrawFn) -> tuple[Walk, Finish]:
    places = {h: draw(FOUND) for h in HOSTS[: draw(st.integers(1, 7))]}
    walk = Walk(rollout.begin(places, draw(LIMITS), resume=draw(st.booleans())), draw)
    return walk, walk.end()


@given(walks())
def test_every_walk_ends_and_says_why_when_hosts_are_left(walked: tuple[Walk, Finish]) -> None:
    walk, finish = walked
    state = walk.state
    assert not state.of(Place.RUNNING)
    if not finish.why:
        assert not state.of(Place.PENDING)
        assert len(state.of(Place.FAILED)) <= state.limits.max_fail


@given(walks())
def test_the_canary_goes_alone_and_its_failure_ends_it_all(walked: tuple[Walk, Finish]) -> None:
    walk, finish = walked
    state = walk.state
    if not state.limits.canary or not walk.starts or not walk.starts[0].canary:
        return
    assert len(walk.starts[0].names) == 1
    if state.canary and state.places[state.canary] == Place.FAILED:
        assert "canary" in finish.why
        assert all(s.canary for s in walk.starts)


def places(**given_: Place) -> dict[str, Place]:
    return dict(given_)


def test_the_next_is_not_stopped_before_the_one_before_is_ready() -> None:
    state = rollout.begin(places(a=Place.PENDING, b=Place.PENDING), Limits(batch=1))
    state = state.started(["a"])
    assert isinstance(state.next(), rollout.Wait)
    assert state.ended("a", Place.READY).next() == Start(("b",))
    assert isinstance(state.ended("a", Place.FAILED).next(), Finish)


def test_resume_takes_a_host_that_has_it_as_the_canary() -> None:
    found = places(a=Place.UNCHANGED, b=Place.PENDING, c=Place.PENDING)
    limits = Limits(batch=2, soak=60.0)
    assert rollout.begin(found, limits).next() == Start(("b",), canary=True)
    assert rollout.begin(found, limits, resume=True).next() == Start(("b", "c"))


def test_an_interruption_starts_nothing_more() -> None:
    state = rollout.begin(places(a=Place.PENDING), Limits()).stopped("interrupted")
    assert state.next() == Finish("interrupted")


@pytest.mark.parametrize(
    ("text", "hosts", "size"),
    [("1", 8, 1), ("3", 2, 3), ("25%", 8, 2), ("25%", 3, 1), ("100%", 5, 5), ("33%", 10, 3)],
)
def test_batches_are_numbers_or_shares_rounded_down(text: str, hosts: int, size: int) -> None:
    assert rollout.batch_size(text, hosts) == size


@pytest.mark.parametrize("text", ["0", "-1", "x", "101%", "", "%", "1.5"])
def test_other_batches_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        rollout.batch_size(text, 4)
