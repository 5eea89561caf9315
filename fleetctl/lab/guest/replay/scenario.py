"""What a start or a request comes to: outcomes with conditions over the resolved flags, read from TOML.

name = "founding"
speed = 20                      # times as fast as recorded; 0 is at once

[[outcome]]
when = {"ep-size" = 8, "max-running-requests" = {min = 129}, "enable-nccl-nvls" = true}
env = {NCCL_DEBUG = "WARN"}     # of the server's process
request = {token = 511}         # with it: happens to a request, else to the start
phase = "graph-capture"         # how far the start comes before it happens
ranks = "all"                   # or a list of ranks that print the log
log = "recordings/x.txt"        # or text = "…"; [@] stands for time and rank
end = "crash"                   # crash | hang | exit | kill-rank
status = 1                      # of "exit"
starts = [1, 3]                 # only these starts of the service, counted from 1
chance = 0.7                    # else it serves
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

# In the order of a start; a release that prints none of a phase's lines counts as in the phase before.
PHASES: dict[str, tuple[str, ...]] = {
    "args": ("server_args=",),
    "dist-init": ("Init torch distributed begin", "Init parallel begin"),
    "weight-load": ("Load weight begin",),
    "kv-alloc": ("Load weight end",),
    "kernel-warmup": ("Memory pool end",),
    "graph-capture": ("Capturing batches",),
    "warmup": ("Uvicorn running",),
    "ready": ("fired up",),
}
ENDS = ("crash", "hang", "exit", "kill-rank")


class ScenarioError(Exception):
    """The scenario file is wrong; the message says where."""


class Outcome(NamedTuple):
    """One thing that can happen."""

    when: dict[str, Any] = {}  # noqa: RUF012  a tuple's default
    env: dict[str, str] = {}  # noqa: RUF012
    request: dict[str, Any] | None = None
    phase: str = "graph-capture"
    ranks: Any = "all"
    log: str = ""
    text: str = ""
    end: str = "crash"
    status: int = 1
    starts: tuple[int, ...] = ()
    chance: float = 1.0

    def applies(self, flags: dict[str, Any], env: dict[str, str], start: int) -> bool:
        """Return whether this start, or its requests, come to this; draws where there is a chance."""
        return (
            all(matches(flags.get(name), want) for name, want in self.when.items())
            and all(env.get(name) == want for name, want in self.env.items())
            and (not self.starts or start in self.starts)
            and (self.chance >= 1 or random.random() < self.chance)  # noqa: S311
        )

    def asked_for(self, tokens: list[int], text: str) -> bool:
        """Return whether a request brings this about."""
        want = self.request or {}
        return (
            ("token" in want and want["token"] in tokens)
            or ("min-token" in want and any(t >= want["min-token"] for t in tokens))
            or ("text" in want and want["text"] in text)
        )


class Scenario(NamedTuple):
    """A file of outcomes; the first that applies happens, and without any the server serves."""

    name: str = "serves"
    speed: float = 20.0
    outcomes: tuple[Outcome, ...] = ()
    folder: Path = Path()

    def at_start(self, flags: dict[str, Any], env: dict[str, str], start: int) -> Outcome | None:
        """Return what this start comes to, or None when it serves."""
        found = (o for o in self.outcomes if o.request is None and o.applies(flags, env, start))
        return next(found, None)

    def at_request(
        self, flags: dict[str, Any], env: dict[str, str], start: int, tokens: list[int], text: str
    ) -> Outcome | None:
        """Return what a request comes to, or None when it is answered."""
        found = (
            o
            for o in self.outcomes
            if o.request is not None and o.asked_for(tokens, text) and o.applies(flags, env, start)
        )
        return next(found, None)


def turning_point(phase: str, texts: Sequence[str]) -> int:
    """Return the index of the line after which a start is in that phase."""
    order = list(PHASES)
    for name in reversed(order[: order.index(phase) + 1]):
        for index, text in enumerate(texts):
            if any(marker in text for marker in PHASES[name]):
                return index
    return len(texts) - 1


def matches(value: Any, want: Any) -> bool:
    """Return whether a flag's value is what a condition wants.

    A table may hold ``min``, ``max``, ``in`` and ``not``; anything else is compared as it is, numbers by value.
    """
    if isinstance(want, dict):
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        return (
            ("min" not in want or (number is not None and number >= want["min"]))
            and ("max" not in want or (number is not None and number <= want["max"]))
            and ("in" not in want or value in want["in"])
            and ("not" not in want or not matches(value, want["not"]))
        )
    if want is False:
        return not value
    return bool(value == want)


def load(path: Path) -> Scenario:
    """Return the scenario of a file; raise ScenarioError naming what is wrong."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    unknown = raw.keys() - {"name", "speed", "outcome", "about"}
    if unknown:
        raise ScenarioError(f"{path}: unknown key {sorted(unknown)[0]!r}")
    outcomes = tuple(_outcome(path, n, one) for n, one in enumerate(raw.get("outcome", []), 1))
    return Scenario(
        str(raw.get("name", path.stem)), float(raw.get("speed", 20)), outcomes, path.parent
    )


def _outcome(path: Path, number: int, raw: dict[str, Any]) -> Outcome:
    where = f"{path}: outcome {number}"
    unknown = raw.keys() - set(Outcome._fields)
    if unknown:
        raise ScenarioError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    made = Outcome(**raw | {"starts": tuple(raw.get("starts", ()))})
    if made.end not in ENDS:
        raise ScenarioError(f"{where}: end is one of {', '.join(ENDS)}")
    if made.phase not in PHASES:
        raise ScenarioError(f"{where}: phase is one of {', '.join(PHASES)}")
    return made
