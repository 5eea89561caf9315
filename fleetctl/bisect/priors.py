"""Shipped rules: families of flags with their suspicion, what a crash's label adds, what goes together."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from fleetctl.model.launch import Atom


@dataclass(frozen=True, slots=True)
class Family:
    """Differences that are suspected alike."""

    name: str
    weight: float
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def holds(self, atom: Atom) -> bool:
        """Return whether a difference belongs here."""
        patterns = {"flag": self.flags, "env": self.env}.get(atom.kind, ())
        return atom.kind in self.kinds or any(fnmatchcase(atom.name, p) for p in patterns)


@dataclass(frozen=True, slots=True)
class Together:
    """Differences that are switched with ``leader``, or with each other where there is none."""

    name: str
    leader: str
    flags: tuple[str, ...]
    env: tuple[str, ...]

    def holds(self, atom: Atom) -> bool:
        """Return whether a difference is the leader or a follower."""
        if atom.kind == "flag":
            return atom.name == self.leader or any(fnmatchcase(atom.name, p) for p in self.flags)
        return atom.kind == "env" and any(fnmatchcase(atom.name, p) for p in self.env)


@dataclass(frozen=True, slots=True)
class Priors:
    """All the rules."""

    families: tuple[Family, ...]
    labels: dict[str, dict[str, float]]
    together: tuple[Together, ...]

    def family(self, atom: Atom) -> Family:
        """Return the first family that holds the difference; "other" with weight 1 else."""
        return next((f for f in self.families if f.holds(atom)), Family("other", 1.0))

    def weigh(self, atoms: Sequence[Atom], label: str = "") -> tuple[str, float]:
        """Return family and weight of a switch: those of its most suspicious part."""
        boost = self.labels.get(label, {})
        found = [self.family(atom) for atom in atoms]
        best = max(found, key=lambda f: f.weight * boost.get(f.name, 1.0))
        return best.name, best.weight * boost.get(best.name, 1.0)


@cache
def shipped() -> Priors:
    """Return the rules of ``priors.toml``."""
    text = importlib.resources.files("fleetctl.bisect").joinpath("priors.toml").read_text("utf-8")
    raw = tomllib.loads(text)
    return Priors(
        families=tuple(
            Family(
                f["name"], float(f["weight"]), tuple(f.get("flags", ())),
                tuple(f.get("env", ())), tuple(f.get("kinds", ())),
            )
            for f in raw["family"]
        ),
        labels={k: {n: float(v) for n, v in row.items()} for k, row in raw["label"].items()},
        together=tuple(
            Together(
                t.get("name", t.get("leader", "")), t.get("leader", ""),
                tuple(t.get("flags", ())), tuple(t.get("env", ())),
            )
            for t in raw["together"]
        ),
    )  # fmt: skip
