"""What is believed of the cause, given what was seen: a posterior over small sets of atoms.

Model: a launch crashes with probability q when every atom of the cause is on, and never otherwise.
q is not known; it is integrated out over a grid. So a crash is proof that the cause is among the
atoms that were on, and a pass speaks against every set that was wholly on, with the force of q.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import log2

from fleetctl.bisect.model import members

# (q, prior): most start-up crashes are certain; the rest is spread evenly.
RELIABILITY: tuple[tuple[float, float], ...] = (
    (1.0, 0.92), (0.95, 0.0112), (0.9, 0.0112), (0.8, 0.0112), (0.7, 0.0112), (0.6, 0.0088),
    (0.5, 0.0088), (0.4, 0.0056), (0.3, 0.0056), (0.2, 0.0032), (0.1, 0.0032),
)  # fmt: skip
# Prior probability that the cause has 1, 2, 3 … atoms. Interactions of two are as common as
# single culprits in flag bisects; every further atom halves the chance or worse.
SIZES: tuple[float, ...] = (0.45, 0.48, 0.06, 0.02, 0.008, 0.004, 0.002, 0.001)
HYPOTHESES = (
    6000  # sets held at once; larger ones stay one lump ("bigger") until fewer atoms are left
)
SIMPLER = 0.5  # how much likelier a set is than the same set with one atom more, for each that it could be
POSING = 0.75  # how often a crash comes that is most easily taken for a certain one
SECOND_CAUSE = 0.002  # how readily a crash that a set does not explain is put down to another cause


def binary_entropy(p: float) -> float:
    """Return the entropy of a yes/no outcome, in bits."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * log2(p) - (1.0 - p) * log2(1.0 - p)


@lru_cache(maxsize=4096)
def evidence_of(crashes: int, passes: int) -> tuple[float, float, float]:
    """Return likelihood, chance of a crash in the next run, and the entropy of that run."""
    terms = [(q, prior * q**crashes * (1.0 - q) ** passes) for q, prior in RELIABILITY]
    total = sum(t for _, t in terms)
    if total <= 0.0:
        return 0.0, 0.5, 1.0
    mean = sum(q * t for q, t in terms) / total
    return total, mean, binary_entropy(mean)


def chance_of_silence(crashes: int, passes: int, further: int) -> float:
    """Return the chance that a cause which is wholly on stays silent ``further`` times."""
    terms = [(q, prior * q**crashes * (1.0 - q) ** passes) for q, prior in RELIABILITY]
    total = sum(t for _, t in terms)
    return sum(t * (1.0 - q) ** further for q, t in terms) / total if total > 0.0 else 1.0


def doubts(mask: int, size: int, passes: Sequence[int], crashes: Sequence[int]) -> dict[int, float]:
    """Return, for each atom of a set that crashes, the odds that the crash does not need it.

    Judged harder than the search judges: any of the other atoms of the space (``size``) could have posed
    as that one (``SIMPLER``), and the crash is held to be flaky (``POSING``) with even chance.
    """
    simpler = SIMPLER * (size - 1)
    seen = sum(1 for c in crashes if not mask & ~c)
    whole = _sceptical(seen, sum(1 for p in passes if not mask & ~p))
    out: dict[int, float] = {}
    for atom in members(mask):
        less = mask & ~(1 << atom)
        silent = _sceptical(seen, sum(1 for p in passes if not less & ~p))
        out[atom] = simpler * silent / whole if less else 0.0
    return out


def _sceptical(crashes: int, passes: int) -> float:
    """Return the likelihood where a certain crash and one that stays away at times are as likely."""
    return float(passes == 0) + POSING**crashes * (1.0 - POSING) ** passes


@lru_cache(maxsize=256)
def normalisers(weights: tuple[float, ...]) -> tuple[float, ...]:
    """Return, for each size, its prior divided by the sum of products over sets of that size."""
    sums = [1.0] + [0.0] * len(SIZES)
    for weight in weights:
        for size in range(len(SIZES), 0, -1):
            sums[size] += sums[size - 1] * weight
    return tuple(SIZES[s - 1] / sums[s] if sums[s] > 0.0 else 0.0 for s in range(1, len(sums)))


@lru_cache(maxsize=2048)
def small_sets(atoms: tuple[int, ...]) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return the largest size that was enumerated and every set up to it, within the limit."""
    found: list[tuple[int, ...]] = [(a,) for a in atoms]
    top, count = 1, len(atoms)
    for size in range(2, min(4, len(atoms)) + 1):
        count = count * (len(atoms) - size + 1) // size
        if len(found) + count > HYPOTHESES:
            break
        found.extend(combinations(atoms, size))
        top = size
    return top, tuple(found)


@dataclass(slots=True)
class Belief:
    """A normalised posterior. The four lists run in parallel, one entry a hypothesis."""

    bad: int  # the smallest set known to crash: the cause is within it
    sets: list[tuple[int, ...]]
    masks: list[int]
    weight: list[float]
    crash: list[float]  # chance of a crash when the whole set is on
    noise: list[float]  # entropy of that
    passes: tuple[int, ...] = ()  # sets that were seen to pass, within the bad one
    bigger: float = 0.0  # mass of causes too large to be listed
    power: int = 5

    def best(self) -> tuple[int, float]:
        """Return the likeliest set and its probability."""
        top = max(range(len(self.weight)), key=self.weight.__getitem__)
        return self.masks[top], self.weight[top]

    def probability(self, mask: int) -> float:
        """Return the probability of exactly that set."""
        return sum(w for m, w in zip(self.masks, self.weight, strict=True) if m == mask)

    def settles(self, on: int) -> float:
        """Return the chance that the cause is exactly ``on``, should a launch of it crash."""
        exact = crash = 0.0
        for mask, weight, p in zip(self.masks, self.weight, self.crash, strict=True):
            if not mask & ~on:
                crash += weight * p
                exact += weight * p if mask == on else 0.0
        return exact / crash if crash > 0.0 else 0.0

    def marginals(self) -> dict[int, float]:
        """Return, for each atom of the bad set, the chance that it is part of the cause."""
        size = self.bad.bit_count()
        share = self.bigger * min(self.power, size) / size
        out = dict.fromkeys(members(self.bad), share)
        for atoms, weight in zip(self.sets, self.weight, strict=True):
            for atom in atoms:
                out[atom] += weight
        return out

    def ranked(self, limit: int = 8) -> tuple[tuple[int, float], ...]:
        """Return the likeliest sets with their probabilities."""
        pairs = sorted(zip(self.weight, self.masks, strict=True), reverse=True)[:limit]
        return tuple((mask, weight) for weight, mask in pairs)


def believe(
    weights: tuple[float, ...], bad: int, passes: Sequence[int], crashes: Sequence[int]
) -> Belief:
    """Return the posterior over causes within ``bad``, a set that is known to crash.

    ``crashes`` are those that no cause found so far explains, ``bad`` itself among them.
    """
    top, sets = small_sets(tuple(members(bad)))
    needed = necessary(bad, passes)
    if needed.bit_count() > 1 or (needed and top < 4):
        sets = sets + tuple(_with_core(needed, bad, top))
    inside = sum(1 for c in crashes if bad & ~c == 0)
    outside = [c for c in crashes if bad & ~c]
    counted = Counter(p & bad for p in passes)
    counted.pop(0, None)
    scale = normalisers(weights)
    out = Belief(bad, [], [], [], [], [], tuple(p & bad for p in passes))
    for atoms in sets:
        mask = 0
        prior = scale[len(atoms) - 1] if len(atoms) <= len(scale) else scale[-1] * 1e-3
        for atom in atoms:
            mask |= 1 << atom
            prior *= weights[atom]
        silent = sum(n for p, n in counted.items() if not mask & ~p)
        explained = sum(1 for other in outside if not mask & ~other)
        if explained < len(outside):
            prior *= SECOND_CAUSE  # once: a second cause may explain all the others
        seen = inside + explained
        likelihood, crash, noise = evidence_of(seen, silent)
        if prior * likelihood > 0.0:
            out.sets.append(atoms)
            out.masks.append(mask)
            out.weight.append(prior * likelihood)
            out.crash.append(crash)
            out.noise.append(noise)
    _lump(out, len(weights), top, counted, inside)
    total = sum(out.weight) + out.bigger
    out.bigger /= total
    out.weight = [w / total for w in out.weight]
    return out


def necessary(bad: int, passes: Iterable[int]) -> int:
    """Return the atoms without which ``bad`` was seen to pass: members of every cause, if q is 1."""
    core = 0
    for seen in passes:
        missing = bad & ~seen
        if missing and not missing & (missing - 1):
            core |= missing
    return core


def _with_core(core: int, bad: int, top: int) -> Iterable[tuple[int, ...]]:
    """Yield sets made of the core and up to three more atoms that ``small_sets`` left out."""
    base, rest = tuple(members(core)), tuple(members(bad & ~core))
    for extra in range(min(3, len(rest)) + 1):
        if len(base) + extra > top and len(rest) ** extra <= HYPOTHESES:
            for more in combinations(rest, extra):
                yield tuple(sorted(base + more))


def _lump(out: Belief, size: int, top: int, counted: Counter[int], crashes: int) -> None:
    """Give the causes that are too large to be listed their share, as one lump."""
    n = out.bad.bit_count()
    if n <= top:
        return
    out.power = top + 2
    prior = sum(SIZES[top:]) * (n / size) ** out.power
    for seen, times in counted.items():
        prior *= (1.0 - 0.99 * (seen.bit_count() / n) ** out.power) ** times
    out.bigger = prior * evidence_of(crashes, 0)[0]
