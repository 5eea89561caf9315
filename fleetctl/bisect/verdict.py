"""The verdict as the contract has it, and as a sentence."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from fleetctl.bisect.isolate import HOST_FAILS
from fleetctl.bisect.model import Cause, Outcome, Status, Verdict
from fleetctl.bisect.planner import leads
from fleetctl.bisect.state import State, counts, names_of


def to_json(state: State, verdict: Verdict) -> dict[str, Any]:
    """Return the last line of ``bisect-flags --json``, without the place of the state file."""
    space = state.space
    outcomes = Counter(e.outcome for e in state.trials if not e.cached)
    earlier = state.verdict or {}
    return {
        "event": "verdict",
        "status": verdict.status.value,
        "causes": [_cause(state, c) for c in verdict.causes],
        "innocent": sorted({*names_of(space, verdict.innocent), *earlier.get("innocent", ())}),
        "trials": sum(1 for e in state.trials if counts(e)),
        "outcomes": {o.value: outcomes.get(o.value, 0) for o in Outcome},
        "others": [
            {
                "flags": list(names_of(space, seen.on)),
                "signature": seen.signature,
                "label": seen.label,
                "earlier": early,
            }
            for seen, early in leads(state.history())
        ],
        "id": state.id,
        "hosts": state.hosts,
        "good": state.good,
        "bad": state.bad,
        "hunted": {
            "signature": state.hunted.signature,
            "label": state.hunted.label,
            "phase": state.hunted.phase,
        },
        "reason": _reason(state, verdict),
        "patches": sorted(state.options.get("patches") or ()),
        "captures": captures(state),
        "differs_otherwise": [str(a) for a in space.fixed],
        "equal_when_resolved": [str(a) for a in space.equal],
        "suspects": [
            {"flags": list(names_of(space, mask)), "probability": round(p, 4)}
            for mask, p in verdict.suspects
        ],
    }  # fmt: skip


def _reason(state: State, verdict: Verdict) -> str:
    """Return why there is no verdict; where the host failed, with what it said, the last first."""
    if verdict.reason != HOST_FAILS:
        return verdict.reason
    failed = itertools.takewhile(lambda e: e.outcome == Outcome.INFRA, reversed(state.trials))
    said = dict.fromkeys(f"{e.host}: {e.note or e.signature}" for e in failed)
    return f"{verdict.reason} ({'; '.join(said)}); --resume tries again"


def captures(state: State) -> list[dict[str, Any]]:
    """Return each thing that a patch said in the trials: which patch, what, in which trials."""
    found: dict[tuple[str, str], list[int]] = {}
    for entry in state.trials:
        for one in entry.patches if not entry.cached else ():
            if one.get("result"):
                found.setdefault((one["name"], one["result"]), []).append(entry.number)
    return [{"patch": n, "result": text, "trials": where} for (n, text), where in found.items()]


def _cause(state: State, cause: Cause) -> dict[str, Any]:
    return {
        "flags": list(names_of(state.space, cause.flags)) + [s.name for s in state.stage.base],
        "undetermined": list(names_of(state.space, cause.undetermined)),
        "masked_by": cause.masked_by,
        "signature": state.hunted.signature,
        "label": state.hunted.label,
        "confirmed": cause.confirmed,
        "confirmed_without": list(names_of(state.space, cause.without)),
    }


def sentence(said: dict[str, Any]) -> str:
    """Return the verdict for a person, one to a few lines."""
    return "\n".join([_verdict(said), *_said_lines(said)])


def _said_lines(said: dict[str, Any]) -> list[str]:
    return [
        f"{one['patch']} in trial{'s' if len(one['trials']) > 1 else ''} "
        f"{', '.join(map(str, one['trials']))}: {one['result']}"
        for one in said.get("captures", ())
    ]


def _verdict(said: dict[str, Any]) -> str:
    status = said["status"]
    hunted = said["hunted"]["signature"] or "the crash"
    if status == Status.FOUND:
        lines = [_cause_sentence(c, hunted) for c in said["causes"]]
        if said["innocent"]:
            lines.append(f"Innocent: {', '.join(said['innocent'])}.")
        return "\n".join(lines)
    text = {
        Status.NOT_FLAGS: f"Not the flags: {said['good']} crashes in the same way ({hunted}). "
        "Look at the host, the model, or what was installed since.",
        Status.DOES_NOT_REPRODUCE: f"{said['bad']} does not crash here: {said['reason']}. "
        "--bad-runs N tries it more often.",
        Status.INCONCLUSIVE: f"No verdict: {said['reason']}.",
        Status.BUDGET: f"Stopped early: {said['reason']}.",
    }[Status(status)]
    if said["suspects"]:
        likely = [
            f"{' + '.join(s['flags'])} ({s['probability']:.0%})" for s in said["suspects"][:5]
        ]
        text += f" Most likely so far: {'; '.join(likely)}."
    return text


def _cause_sentence(cause: dict[str, Any], hunted: str) -> str:
    flags, open_ = cause["flags"], cause["undetermined"]
    several = len(flags) > 1
    text = f"{_listed(flags) if flags else 'Nothing for certain'} {'bring' if several else 'brings'} {hunted}"
    if cause["confirmed"]:
        alone = _listed([*flags, *open_])
        back = "one of them" if several else flags[0]
        text += (
            f": it crashes with {alone} alone, and serves once {back} is back at its good value."
        )
    else:
        text += "; not confirmed from both sides."
    if cause.get("confirmed_without"):
        text += f" Seen with {_listed(cause['confirmed_without'])} off as well."
    if open_:
        text += f" Undetermined: {_listed(open_)}"
        text += (
            f", hidden by another failure ({cause['masked_by']}): fix or patch that one and run again."
            if cause["masked_by"]
            else "."
        )
    return text


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
