"""What ``bisect simulate`` needs beside the pure simulation: checks, processes, a table."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from fleetctl.bisect.simulate import Run, Setting, simulate
from fleetctl.errors import UsageError

ALONE = 200  # runs below which another process costs more than it saves
MOST = 64  # atoms


def check(setting: Setting, runs: int) -> None:
    """Raise UsageError for a setting that cannot be drawn."""
    wrong = (
        (not 1 <= setting.n <= MOST, "--n", f"1 to {MOST}"),
        (setting.k < 1, "--k", "1 or more"),
        (setting.k * setting.causes > setting.n, "--k", "at most --n in all causes together"),
        (not 0.0 < setting.q <= 1.0, "--q", "over 0, at most 1"),
        (setting.hosts < 1, "--hosts", "1 or more"),
        (setting.causes < 1, "--causes", "1 or more"),
        (not 0.0 <= setting.other <= 1.0, "--other", "0 to 1"),
        (setting.other > 0.0 and setting.n < 2, "--other", "needs two atoms"),
        (setting.prior not in ("flat", "good"), "--prior", "flat or good"),
        (runs < 1, "--runs", "1 or more"),
    )
    for bad, where, wanted in wrong:
        if bad:
            raise UsageError("bad-setting", f"must be {wanted}", where=where)


def play(setting: Setting, runs: int, seed: int) -> list[Run]:
    """Return the runs, played on every processor; how many there are changes nothing in them."""
    workers = os.cpu_count() or 1
    if runs < ALONE or workers == 1:
        return simulate(setting, runs, seed)
    size = -(-runs // workers)
    parts = [range(start, min(runs, start + size)) for start in range(0, runs, size)]
    with ProcessPoolExecutor(workers) as pool:
        played = pool.map(partial(_part, setting, seed), parts)
        return [run for part in played for run in part]


def _part(setting: Setting, seed: int, numbers: range) -> list[Run]:
    return simulate(setting, numbers, seed)


def table(found: dict[str, Any]) -> str:
    """Return the summary for a person."""
    wide = max(len(name) for name in found)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in found.items())
