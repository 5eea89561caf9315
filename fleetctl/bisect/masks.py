"""Failures that come before the hunted one hide it: where they are likely, a trial says nothing.

Neither end shows them, so what brings one is at least a pair: an atom that is on while another is
off (expert parallelism on while the request limit is still the good one). Every launch that was not
masked clears the pairs in it; a masked one accuses those of its pairs that are not cleared.
"""

from __future__ import annotations

from fleetctl.bisect.model import Evidence, members

# How many unknown pairs are expected to mask, before and after the first was seen.
EXPECTED, EXPECTED_ONCE_SEEN = 0.02, 1.5
HOPELESS = 0.03  # a set this unlikely to be seen is not worth a launch


class Masks:
    """What is known of the pairs that mask."""

    def __init__(self, size: int, evidence: Evidence) -> None:
        self._full = (1 << size) - 1
        self._tried = frozenset(evidence.masked)
        self._cleared = [0] * size  # for each atom: with which atoms off it is known to be harmless
        for seen in {*evidence.crashes, *evidence.passes}:
            for atom in members(seen):
                self._cleared[atom] |= self._full & ~seen
        self._accused = [pairs for m in self._tried if (pairs := self._suspects(m))]
        self._rate = (
            (EXPECTED_ONCE_SEEN if self._tried else EXPECTED) / max(1.0, size * (size - 1.0))
        )  # fmt: skip

    def _suspects(self, on: int) -> dict[int, int]:
        """Return, for each atom that is on, the atoms that are off and not cleared with it."""
        off = self._full & ~on
        pairs = {a: off & ~self._cleared[a] for a in members(on)}
        return {a: rest for a, rest in pairs.items() if rest}

    def visible(self, on: int) -> float:
        """Return the chance that a launch of ``on`` is not masked."""
        if on in self._tried:
            return 0.0
        if not self._tried:
            return 1.0
        mine = self._suspects(on)
        unknown = sum(rest.bit_count() for rest in mine.values())
        chance = (1.0 - self._rate) ** unknown
        for pairs in self._accused:
            shared = sum((rest & mine.get(a, 0)).bit_count() for a, rest in pairs.items())
            chance *= 1.0 - shared / sum(rest.bit_count() for rest in pairs.values())
        return chance
