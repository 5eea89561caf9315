"""A second, finer search inside switches of several differences that turned out to be guilty."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.model import Outcome, Purpose, Status, Verdict, members
from fleetctl.bisect.space import Switch, split
from fleetctl.bisect.state import Stage, State, names_of


def refine(state: State, found: Verdict) -> bool:
    """Add a stage that takes the guilty groups apart; return False where there is none to take apart.

    The rest of the cause is on in all of its trials. The first verdict is kept, for what it cleared.
    """
    if found.status is not Status.FOUND or len(state.stages) > 1:
        return False
    if len(found.causes) != 1 or found.causes[0].undetermined:
        return False
    guilty = [state.space.switches[i] for i in members(found.causes[0].flags)]
    coarse = [s for s in guilty if len(s.parts) > 1]
    if not coarse:
        return False
    state.verdict = verdicts.to_json(state, found)
    base = tuple(s for s in guilty if s not in coarse)
    state.stages.append(Stage(split(state.space, [s.name for s in coarse]), base))
    _carry_over(state, base, coarse)
    return True


def _carry_over(state: State, base: tuple[Switch, ...], coarse: list[Switch]) -> None:
    """Take what the first search showed of the new ends: with all of the parts, and with none."""
    every = names_of(state.space, (1 << len(state.space.switches)) - 1)
    with_all = {s.name for s in (*base, *coarse)}
    with_none = {s.name for s in base}
    for entry in list(state.trials):
        if entry.stage != 0 or entry.outcome not in (Outcome.PASS, Outcome.SAME):
            continue
        for names, on in ((with_all, every), (with_none, ())):
            if set(entry.on) == names:
                state.add(
                    replace(
                        entry,
                        stage=1,
                        on=on,
                        purpose=Purpose.CALIBRATE.value,
                        cached=True,
                        note=f"trial {entry.number}",
                    )
                )
