"""Which steps are taken together. A stage is ``LANES | LANES``; lanes are ``[HOST:]STEP,STEP`` and run at once."""

from __future__ import annotations

from tests.gpu.steps import STEPS

HOSTS = ("gpu1", "gpu2", "gpu3")
STAGES = {
    # Alone on the card first: these give the times.
    "first": (
        "facts,doctor,serve,unchanged,lint,kill-scheduler"
        " | gpu1:cublas-capture gpu2:foreach-none,named-field gpu3:illegal-access,init-none,oom-kv"
        " | groups"
    ),
    # What takes the whole card, and what an older Xid in the kernel log must not mislead.
    "last": "serve,illegal-access,init-none,oom-weights,bisect",
    "second": "oom-capture,oom-weights | gpu2:serve-dsv2,fleet,stop | bisect",
}

ALL = ("first", "second")  # every step once

Lanes = list[tuple[str, list[str]]]


def plan(word: str) -> list[Lanes]:
    """Return a stage by its name or as it is written. Raises SystemExit for a step that is not there."""
    return [[_lane(text) for text in part.split()] for part in STAGES.get(word, word).split("|")]


def _lane(text: str) -> tuple[str, list[str]]:
    host, _, names = text.rpartition(":")
    steps = names.split(",")
    for name in steps:
        if name not in STEPS:
            raise SystemExit(f"no step {name}: {', '.join(STEPS)}")
    return host or HOSTS[0], steps
