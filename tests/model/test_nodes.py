"""Ranks of a server over several hosts, and in which of their logs the root is."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.errors import UsageError
from fleetctl.model.fleet import Host, Profile, Service, Target
from fleetctl.model.nodes import NodeEnd, profiles, root_of

TARGETS = [Target(Host(f"b-0{n}", f"10.0.0.{n}"), Service(port=30010)) for n in (1, 2)]


def test_each_node_has_its_rank_and_all_meet_at_the_first() -> None:
    own = profiles(Profile("p", "/m", flags={"tp-size": 16}, nodes=2), TARGETS)
    assert [own[f"b-0{n}/main"].flags for n in (1, 2)] == [
        {"tp-size": 16, "nnodes": 2, "dist-init-addr": "10.0.0.1:20010", "node-rank": rank}
        for rank in (0, 1)
    ]


def test_a_meeting_point_that_the_profile_gives_stays() -> None:
    given = Profile("p", "/m", flags={"dist-init-addr": "192.168.7.1:5000"}, nodes=2)
    assert profiles(given, TARGETS)["b-02/main"].flags["dist-init-addr"] == "192.168.7.1:5000"


def test_another_number_of_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="3 hosts together, 2 are named"):
        profiles(Profile("p", "/m", nodes=3), TARGETS)


def end(rank: int, at: float | None, verdict: str = "established", **more: Any) -> NodeEnd:
    triage = {"root": {"line": 1} if at is not None else None, "verdict": verdict}
    return NodeEnd(rank, f"h{rank}", triage, at, **more)


@pytest.mark.parametrize(
    ("ends", "rank"),
    [
        ([end(0, 10.0), end(1, 9.0)], 1),
        ([end(0, 10.0), end(1, 9.0, offset=-2.0)], 0),  # its clock is two seconds behind ours
        ([end(0, 10.0, unsure=0.5), end(1, 9.5, unsure=0.2)], 0),  # too near to tell
        ([end(0, None), end(1, 9.0)], 1),
        ([end(0, 8.0, "hypothesis"), end(1, 9.0)], 1),
        ([end(0, None), end(1, None)], None),
        ([NodeEnd(0, "h0"), end(1, 5.0)], 1),  # a host that could not be asked any more
    ],
)
def test_the_root_is_the_first_by_clocks_that_are_set_right(
    ends: list[NodeEnd], rank: int | None
) -> None:
    found = root_of(ends)
    assert (None if found is None else found.rank) == rank


@pytest.mark.parametrize(
    "labels", [["peer-lost", "cublas-capture"], ["cublas-capture", "peer-lost"]]
)
@pytest.mark.parametrize("verdict", ["established", "hypothesis"])
def test_who_only_lost_a_peer_has_the_root_of_nothing_that_another_names(
    labels: list[str], verdict: str
) -> None:
    ends = []
    for rank, label in enumerate(labels):
        found = end(rank, 9.0, verdict if label != "peer-lost" else "established", unsure=1.0)
        assert found.triage is not None
        found.triage["label"] = label
        ends.append(found)
    left = root_of(ends)
    assert left is not None
    assert labels[left.rank] == "cublas-capture"
    alone = [e for e in ends if labels[e.rank] == "peer-lost"]
    assert root_of(alone) is alone[0]
