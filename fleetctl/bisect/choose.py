"""Which set to launch next: the one whose outcome says most about the cause.

Candidates are the prefixes of the atoms in the order of suspicion (which is weighted halving when
the crash is certain), then single switches around the best of them. With several hosts each further
trial is chosen for what it adds to the ones before it, over every way those may turn out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetctl.bisect.belief import Belief, binary_entropy
from fleetctl.bisect.model import members

Runnable = Callable[[int], float]  # chance that a set shows either the hunted crash or a pass
CLIMBS = 6
PROOF = 0.7  # bits that a launch is worth in which the cause is surely parted
STALE = 0.2  # what is left of that with each earlier pass of the same atoms
PARTS = 8  # outcomes of a round that are told apart while its next trial is chosen


@dataclass(frozen=True, slots=True)
class Choice:
    """A set with the information (bits) that its launch is expected to bring."""

    on: int
    bits: float


@dataclass(frozen=True, slots=True)
class Part:
    """One way the round so far may turn out: how likely it is, and what would then be believed."""

    chance: float
    belief: Belief


def lump(belief: Belief, on: int) -> float:
    """Return the share of the large, unlisted causes in the chance of a crash."""
    if belief.bigger <= 0.0:
        return 0.0
    share: float = ((on & belief.bad).bit_count() / belief.bad.bit_count()) ** belief.power
    return belief.bigger * share


def value(belief: Belief, on: int) -> float:
    """Return what one launch of ``on`` is worth: expected information, and proof of need.

    When a part of the cause is on and the launch serves, that shows that the other part is needed.
    A pair has to be shown so before it is named, so such launches are preferred.
    """
    return _score(belief, on, proof_of(belief, on))


def proof_of(belief: Belief, on: int) -> float:
    """Return what proof of need is worth in ``on``: less where those atoms passed already."""
    again = sum(1 for p in belief.passes if not on & belief.bad & ~p)
    return PROOF * STALE**again


def _score(belief: Belief, on: int, proof: float) -> float:
    off = ~on
    crash = noise = parted = 0.0
    for mask, weight, p, h in zip(
        belief.masks, belief.weight, belief.crash, belief.noise, strict=True
    ):
        if not mask & off:
            crash += weight * p
            noise += weight * h
        elif mask & on:
            parted += weight * p
    return binary_entropy(crash + lump(belief, on)) - noise + proof * parted


def bits(belief: Belief, on: int) -> float:
    """Return the expected information about the cause in one launch of ``on``."""
    return _score(belief, on, 0.0)


def best(parts: Sequence[Part], runnable: Runnable, extra: Iterable[int] = ()) -> Choice:
    """Return the set of the highest worth, weighed by the chance to see its outcome."""
    found, union = Choice(0, 0.0), 0
    for part in parts:
        top = Choice(0, 0.0)
        for on, gain in prefixes(part.belief):
            total = part.chance * gain + sum(
                other.chance * value(other.belief, on) for other in parts if other is not part
            )
            top = max(top, Choice(on, total * runnable(on)), key=lambda c: c.bits)
        found = max(found, top, key=lambda c: c.bits)
        union |= top.on
    for on in (union, *extra) if len(parts) > 1 else extra:
        total = sum(part.chance * value(part.belief, on) for part in parts) * runnable(on)
        if total > found.bits:
            found = Choice(on, total)
    for _ in range(CLIMBS):
        better = _climb(parts, found, runnable)
        if better is None:
            break
        found = better
    learnt = sum(part.chance * bits(part.belief, found.on) for part in parts)
    return Choice(found.on, learnt * runnable(found.on))


def prefixes(belief: Belief) -> list[tuple[int, float]]:
    """Return every proper prefix of the order of suspicion with its information, in one pass."""
    marginals = belief.marginals()
    order = sorted(marginals, key=lambda a: (-marginals[a], a))
    rank = {atom: place for place, atom in enumerate(order)}
    crash = [0.0] * len(order)
    noise = [0.0] * len(order)
    begun = [0.0] * len(order)
    done = [0.0] * len(order)
    for atoms, weight, p, h in zip(
        belief.sets, belief.weight, belief.crash, belief.noise, strict=True
    ):
        places = [rank[a] for a in atoms]
        last = max(places)
        crash[last] += weight * p
        noise[last] += weight * h
        done[last] += weight * p
        begun[min(places)] += weight * p
    out: list[tuple[int, float]] = []
    on, crashes, noises, parted = 0, 0.0, 0.0, 0.0
    for place, atom in enumerate(order[:-1]):
        on |= 1 << atom
        crashes += crash[place]
        noises += noise[place]
        parted += begun[place] - done[place]
        gain = binary_entropy(crashes + lump(belief, on)) - noises + proof_of(belief, on) * parted
        out.append((on, gain))
    return out


def _climb(parts: Sequence[Part], start: Choice, runnable: Runnable) -> Choice | None:
    """Return the best set that differs from the start by one atom, if it beats it clearly."""
    gains: dict[int, float] = {}
    bad = 0
    for part in parts:
        bad |= part.belief.bad
    for part in parts:
        for atom, gain in _flips(part.belief, start.on, bad):
            gains[atom] = gains.get(atom, 0.0) + part.chance * gain
    found: Choice | None = None
    floor = start.bits * 1.005 + 1e-9
    for atom, gain in gains.items():
        flipped = start.on ^ (1 << atom)
        if flipped in (0, bad):
            continue
        gain *= runnable(flipped)
        if gain > floor:
            found, floor = Choice(flipped, gain), gain
    return found


def _flips(belief: Belief, on: int, bad: int) -> list[tuple[int, float]]:
    """Return, for each atom, the value of ``on`` with that atom switched over."""
    off = ~on
    crash = noise = parted = 0.0
    more_crash = dict.fromkeys(members(bad), 0.0)
    more_noise = dict(more_crash)
    more_parted = dict(more_crash)
    for atoms, mask, weight, p, h in zip(
        belief.sets, belief.masks, belief.weight, belief.crash, belief.noise, strict=True
    ):
        out, inside = mask & off, mask & on
        several = len(atoms) > 1
        p *= weight
        h *= weight
        if not out:
            crash += p
            noise += h
            for atom in atoms:
                more_crash[atom] -= p
                more_noise[atom] -= h
                if several:
                    more_parted[atom] += p
            continue
        if inside:
            parted += p
            if not inside & (inside - 1):
                more_parted[inside.bit_length() - 1] -= p
        elif several:
            for atom in atoms:
                more_parted[atom] += p
        if not out & (out - 1):
            atom = out.bit_length() - 1
            more_crash[atom] += p
            more_noise[atom] += h
            if inside:
                more_parted[atom] -= p
    found = []
    for atom, more in more_crash.items():
        flipped = on ^ (1 << atom)
        chance = crash + more + lump(belief, flipped)
        gain = binary_entropy(chance) - noise - more_noise[atom]
        proof = proof_of(belief, flipped)
        found.append((atom, gain + proof * (parted + more_parted[atom])))
    return found


def divide(parts: Sequence[Part], on: int) -> list[Part]:
    """Return the parts after a launch of ``on`` as well, the likeliest ones only."""
    out: list[Part] = []
    for part in parts:
        for crashed in (True, False):
            chance, belief = _after(part.belief, on, crashed=crashed)
            if chance > 1e-6:
                out.append(Part(part.chance * chance, belief))
    out.sort(key=lambda p: -p.chance)
    return out[:PARTS]


def _after(belief: Belief, on: int, *, crashed: bool) -> tuple[float, Belief]:
    """Return the chance of that outcome and the belief after it (its idea of q left as it was)."""
    out = Belief(belief.bad, [], [], [], [], [], belief.passes, power=belief.power)
    off = ~on
    for atoms, mask, weight, p, h in zip(
        belief.sets, belief.masks, belief.weight, belief.crash, belief.noise, strict=True
    ):
        chance = 0.0 if mask & off else p
        kept = weight * (chance if crashed else 1.0 - chance)
        if kept > 1e-9:
            out.sets.append(atoms)
            out.masks.append(mask)
            out.weight.append(kept)
            out.crash.append(p)
            out.noise.append(h)
    gone = lump(belief, on)
    out.bigger = gone if crashed else belief.bigger - gone
    total = sum(out.weight) + out.bigger
    if total > 0.0:
        out.weight = [w / total for w in out.weight]
        out.bigger /= total
    return total, out
