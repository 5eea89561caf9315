"""A group is a fold: the order in which things arrive does not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.incidents.fold import fold
from fleetctl.model.incident import Event, EventKind, Status
from tests.incidents.samples import crash

EVENTS = st.lists(
    st.builds(
        Event, st.just("v1:aa"), st.sampled_from(EventKind), st.sampled_from(["2026-11-29T01:00:00Z", "2026-11-29T05:00:00Z"]),
        st.sampled_from(["ana", "ben"]), st.sampled_from(["", "x"]),
    ), max_size=6,
)  # fmt: skip


def said(kind: EventKind, at: str) -> Event:
    return Event("v1:aa", kind, at, "ana")


@given(EVENTS, st.permutations(["a", "b", "c"]), st.randoms(use_true_random=False))
def test_the_order_of_arrival_and_repeats_do_not_matter(
    events: list[Event], order: list[str], random: object
) -> None:
    shuffled = sorted(events, key=lambda _: random.random())  # type: ignore[attr-defined]  # random.Random
    assert fold([crash(x) for x in order], shuffled) == fold(
        [crash(x) for x in "abca"], events + events
    )


def test_no_occurrence_is_no_group() -> None:
    with pytest.raises(ValueError, match="at least one"):
        fold([], [])


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], Status.NEW),
        ([said(EventKind.ACKED, "2026-11-29T04:00:00Z")], Status.ACKED),
        ([said(EventKind.RESOLVED, "2026-11-29T04:00:00Z")], Status.RESOLVED),
        ([said(EventKind.RESOLVED, "2026-11-29T01:00:00Z")], Status.REGRESSED),
        ([said(EventKind.RESOLVED, "2026-11-29T04:00:00Z"), said(EventKind.ACKED, "2026-11-29T05:00:00Z")], Status.RESOLVED),
        ([said(EventKind.RESOLVED, "2026-11-29T04:00:00Z"), said(EventKind.REOPENED, "2026-11-29T05:00:00Z")], Status.NEW),
        ([said(EventKind.COMMENTED, "2026-11-29T04:00:00Z")], Status.NEW),
    ],
)  # fmt: skip
def test_the_status_follows_what_was_said(events: list[Event], status: Status) -> None:
    assert fold([crash("a", at="2026-11-29T03:00:00Z")], events).status is status
