"""Several hosts at once, one thread each, with an orderly end on Ctrl-C."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from fleetctl.apply.crew import Crew, crew
from fleetctl.apply.deploy import Deployment, Tell
from fleetctl.apply.outcome import Outcome
from fleetctl.apply.session import Interrupted
from fleetctl.apply.wish import Wish
from fleetctl.errors import FleetError, RefusedError
from fleetctl.model.fleet import Target

__all__ = ["Confirm", "Crew", "agreed", "crew", "deploy"]

Confirm = Callable[[Sequence[Deployment]], bool]


def deploy(
    targets: Sequence[Target],
    wish: Wish | Mapping[str, Wish],
    tell: Tell,
    confirm: Confirm,
    done: Callable[[Outcome], None],
    typed: Callable[[str], bool] = lambda _: False,
    hands: Crew | None = None,
) -> list[Outcome]:
    """Deploy to every target and return the outcomes in order; ``done`` is told each as it comes.

    ``wish`` is the same for all, or one for each target by its name. ``confirm`` is asked once for
    all hosts where something that serves would go down, ``typed`` for each protected host among them.
    ``hands``: a crew that is on its way to the hosts already; its owner closes it.
    """
    with crew() if hands is None else contextlib.nullcontext(hands) as hosts, hosts.patient():
        wishes = [wish if isinstance(wish, Wish) else wish[str(t)] for t in targets]
        dry_run = any(w.dry_run for w in wishes)
        ways = [
            Deployment(t, w, hosts.session(t), tell) for t, w in zip(targets, wishes, strict=True)
        ]
        first = hosts.each(lambda way: way.prepare(), ways)
        ends: dict[int, Outcome] = {n: o for n, o in enumerate(first) if o is not None}
        for n in [n for n, o in ends.items() if o.error == "protected-host" and not dry_run]:
            sure = False
            with hosts.asking():
                sure = typed(targets[n].host.name)
            if sure:
                [again] = hosts.each(_prepare_protected, [ways[n]])
                del ends[n]
                ends.update({} if again is None else {n: again})
        go = [n for n in range(len(ways)) if n not in ends]
        for outcome in ends.values():
            done(outcome)
        if dry_run:
            return [ends[n] for n in sorted(ends)]
        ask = [ways[n] for n in go if _interrupts(ways[n])]
        if (refused := agreed(hosts, confirm, ask)) is not None:
            for n in go:
                ends[n] = ways[n].failed(refused)
                done(ends[n])
            go = []

        def carry_out(n: int) -> Outcome:
            outcome = ways[n].carry_out()
            done(outcome)
            return outcome

        ends.update(zip(go, hosts.each(carry_out, go), strict=True))
        return [ends[n] for n in sorted(ends)]


def _prepare_protected(way: Deployment) -> Outcome | None:
    return way.prepare(f"--yes-protected={way.target.host.name}")


def _interrupts(way: Deployment) -> bool:
    assert way.prepared is not None
    return way.prepared.plan.interrupts


def agreed(hosts: Crew, confirm: Confirm, ask: Sequence[Deployment]) -> FleetError | None:
    """Ask about the hosts where something would go down; return why not to go on, None for a yes."""
    sure = not ask
    with hosts.asking():
        sure = sure or confirm(ask)
    if hosts.stop.is_set():
        return Interrupted("")
    return None if sure else unconfirmed()


def unconfirmed() -> FleetError:
    """Return the fault of a change that nobody said yes to."""
    return RefusedError(
        "not-confirmed",
        "something that serves would go down, and nobody said yes",
        hint="say yes when asked, or give --yes",
    )
