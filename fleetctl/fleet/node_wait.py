"""``wait`` for several services; the nodes of one server are watched together, and rank 0 tells how it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetctl.apply.crew import Crew
from fleetctl.apply.deploy import Tell
from fleetctl.apply.outcome import Outcome
from fleetctl.apply.waiting import Waiting
from fleetctl.errors import RefusedError
from fleetctl.fleet import nodes
from fleetctl.model.fleet import Target
from fleetctl.model.nodes import rank_of


@dataclass(slots=True)
class Server:
    """The nodes of one server that were named, by rank; one alone has no party."""

    ways: dict[int, Waiting] = field(default_factory=dict)
    party: nodes.Party | None = None

    def begin(self) -> None:
        """Tell each node's watch what it is: of the others only rank 0 has an endpoint."""
        ranks = sorted(self.ways)
        party = self.party = nodes.Party([self.ways[r].session for r in ranks])
        for place, rank in enumerate(ranks):
            way = self.ways[rank]
            way.rank = way.outcome.more["node_rank"] = rank
            way.judge = lambda result, way=way: nodes.settled(party, way.session, result)
            way.ended = lambda outcome, place=place: party.ended(place, outcome.state)
            if rank:
                way.watch_more = nodes.follows(way.limits)


def wait(
    targets: Sequence[Target],
    hosts: Crew,
    tell: Tell,
    done: Callable[[Outcome], None],
    limits: Mapping[str, Any],
) -> list[Outcome]:
    """Wait for every service; return the outcomes in order. ``done`` is told each as it comes."""
    ways = [Waiting(t, hosts.session(t), tell, dict(limits)) for t in targets]
    looks = hosts.each(lambda way: way.look(), ways)
    ends = {number: outcome for number, outcome in enumerate(looks) if outcome is not None}
    together = _servers([w for n, w in enumerate(ways) if n not in ends])
    several = {id(w) for server in together for w in server.ways.values()}

    def carry_out(number: int) -> Outcome:
        outcome = ways[number].carry_out()
        if id(ways[number]) not in several:
            done(outcome)
        return outcome

    for server in together:
        if 0 in server.ways:
            server.begin()
    for outcome in ends.values():
        done(outcome)
    lost = [w for s in together if 0 not in s.ways for w in s.ways.values()]
    go = [n for n in range(len(ways)) if n not in ends and ways[n] not in lost]
    ends |= {n: w.failed(_headless(w)) for n, w in enumerate(ways) if w in lost}
    ends.update(zip(go, hosts.each(carry_out, go), strict=True))
    for server in together:
        members = [server.ways[r] for r in sorted(server.ways)]
        if server.party is not None:
            nodes.explain(members, [w.outcome for w in members], hosts)
        for way in members:
            done(way.outcome)
    return [ends[n] for n in sorted(ends)]


def _servers(ways: Sequence[Waiting]) -> list[Server]:
    """Return the servers of which several nodes, or not rank 0, were named."""
    found: dict[str, Server] = {}
    for way in ways:
        place = rank_of(way.config.flags)
        if place is not None:
            found.setdefault(place.meeting, Server()).ways[place.rank] = way
    return [s for s in found.values() if len(s.ways) > 1 or 0 not in s.ways]


def _headless(way: Waiting) -> RefusedError:
    place = rank_of(way.config.flags)
    assert place is not None
    return RefusedError(
        "rank-0-not-named",
        f"it is rank {place.rank} of {place.count} of a server, and only rank 0 tells how that is",
        where=str(way.target),
        hint=f"name the host of rank 0 too: the nodes meet at {place.meeting}",
    )
