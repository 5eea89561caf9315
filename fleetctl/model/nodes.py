"""Several hosts as one server: who is which rank, and in which of their logs the root is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetctl.errors import UsageError
from fleetctl.model.fleet import FlagValue, Profile, Target


def profiles(profile: Profile, targets: Sequence[Target]) -> dict[str, Profile]:
    """Return the profile of each node, ranks in the order of the targets.

    The nodes meet at the first one's address, 10000 below its own port (30000 → 20000, the port that
    SGLang's guides use), unless the profile gives ``dist-init-addr``. Raises UsageError ``node-count``.
    """
    if len(targets) != profile.nodes:
        raise UsageError(
            "node-count",
            f"{profile.name} runs on {profile.nodes} hosts together, {len(targets)} are named",
            hint=f"name {profile.nodes} hosts; the first of the inventory is rank 0",
        )
    first = targets[0]
    meeting = f"{first.host.address}:{first.service.port - 10000}"
    own: dict[str, FlagValue] = {"nnodes": profile.nodes}
    own["dist-init-addr"] = profile.flags.get("dist-init-addr", meeting)
    return {
        str(target): replace(profile, flags=profile.flags | own | {"node-rank": rank})
        for rank, target in enumerate(targets)
    }


@dataclass(frozen=True, slots=True)
class Place:
    """One node's place in a server: where the nodes meet, its rank, and how many they are."""

    meeting: str
    rank: int
    count: int


def rank_of(flags: Mapping[str, Any]) -> Place | None:
    """Return a launch's place among the nodes of its server, None for a server of one host."""
    try:
        count, rank = int(str(flags.get("nnodes") or 1)), int(str(flags.get("node-rank") or 0))
    except ValueError:
        return None
    return Place(str(flags.get("dist-init-addr") or ""), rank, count) if count > 1 else None


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """What one node left: its triage, when its root was written by its own clock, and that clock's error.

    ``offset`` is the node's clock minus ours in seconds, known to within ``unsure``.
    """

    rank: int
    host: str
    triage: dict[str, Any] | None = None
    root_at: float | None = None
    offset: float = 0.0
    unsure: float = 0.0

    @property
    def corrected(self) -> float | None:
        """Return when its root was written by our clock."""
        return None if self.root_at is None else self.root_at - self.offset


def root_of(ends: Sequence[NodeEnd]) -> NodeEnd | None:
    """Return the node that has the root: the one whose root came first, clocks set right.

    A node that only lost its peers goes after one that names a failure of its own, and a hypothesis
    after a verdict that is more; of two that are closer together than the clocks are known, the
    lower rank. None where no node names a root.
    """
    rooted = [e for e in ends if e.triage and e.triage.get("root")]
    if not rooted:
        return None
    own = [e for e in rooted if e.triage and e.triage.get("label") != "peer-lost"] or rooted
    sure = [e for e in own if e.triage and e.triage.get("verdict") in ("established", "supported")]
    pool = sure or own
    timed = [e for e in pool if e.corrected is not None]
    if not timed:
        return min(pool, key=lambda e: e.rank)
    first = min(timed, key=lambda e: (e.corrected or 0.0, e.rank))
    near = [e for e in timed if _gap(e, first) <= e.unsure + first.unsure]
    return min(near, key=lambda e: e.rank)


def _gap(one: NodeEnd, other: NodeEnd) -> float:
    return abs((one.corrected or 0.0) - (other.corrected or 0.0))
