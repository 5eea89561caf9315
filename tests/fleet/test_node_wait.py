"""Which of the services that are waited for are nodes of one server."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.apply.session import Session
from fleetctl.apply.waiting import Waiting
from fleetctl.fleet.node_wait import _headless, _servers
from fleetctl.model.fleet import Host, Service, Target
from fleetctl.model.launch import LaunchConfig
from fleetctl.model.nodes import Place, rank_of


def way(name: str, **flags: Any) -> Waiting:
    host = Host(name, name)
    one = Waiting(Target(host, Service("main")), Session(host), lambda _: None, {})
    one.config = LaunchConfig("p", "/m", {k.replace("_", "-"): v for k, v in flags.items()})
    return one


def node(name: str, rank: int, meeting: str = "10.0.0.1:20000") -> Waiting:
    return way(name, nnodes=2, node_rank=rank, dist_init_addr=meeting)


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({}, None),
        ({"nnodes": "1", "node-rank": "0"}, None),
        ({"nnodes": 2, "node-rank": 1, "dist-init-addr": "a:1"}, Place("a:1", 1, 2)),
        ({"nnodes": "2", "dist-init-addr": "a:1"}, Place("a:1", 0, 2)),
        ({"nnodes": "many"}, None),
    ],
)
def test_a_launch_tells_its_place_among_the_nodes(
    flags: dict[str, Any], place: Place | None
) -> None:
    assert rank_of(flags) == place


def test_nodes_that_meet_at_one_address_are_one_server() -> None:
    b, a, alone, other = node("b", 1), node("a", 0), way("c"), node("d", 0, "10.0.0.4:20000")
    found = _servers([b, a, alone, other])
    assert [s.ways for s in found] == [{0: a, 1: b}]


def test_rank_0_is_watched_alone_and_another_rank_alone_is_not() -> None:
    assert _servers([node("a", 0)]) == []
    (headless,) = _servers([node("b", 1)])
    assert list(headless.ways) == [1]
    fault = _headless(headless.ways[1])
    assert (fault.reference, fault.where) == ("rank-0-not-named", "b/main")
    assert "10.0.0.1:20000" in fault.hint


def test_beyond_rank_0_no_endpoint_is_asked_and_patience_has_no_end() -> None:
    (server,) = _servers([node("a", 0), node("b", 1)])
    server.begin()
    assert server.ways[0].watch_more == {}
    assert server.ways[1].watch_more["follow"] is True
    assert server.ways[1].watch_more["limits"]["quiet"] > 3600
    assert [server.ways[r].outcome.more["node_rank"] for r in (0, 1)] == [0, 1]
