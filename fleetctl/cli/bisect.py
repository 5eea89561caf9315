"""``fleetctl bisect``: look at bisects, correct them, and try the planner against drawn truths."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app

app = new_app("Look at bisects of launch flags, correct them, or try the planner in simulation.")


@app.command()
def simulate(
    n: Annotated[int, typer.Option("--n", help="Atoms in which the two profiles differ.")] = 16,
    k: Annotated[int, typer.Option("--k", help="Atoms of a cause.")] = 1,
    q: Annotated[float, typer.Option("--q", help="Chance that the cause crashes a launch.")] = 1.0,
    runs: Annotated[int, typer.Option(help="Bisects to play.")] = 1000,
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal truths.")] = 7,
    hosts: Annotated[int, typer.Option(help="Hosts that launch at the same time.")] = 1,
    causes: Annotated[int, typer.Option(help="Independent causes.")] = 1,
    other: Annotated[
        float, typer.Option(help="Share of atoms that bring another, earlier failure.")
    ] = 0.0,
    prior: Annotated[
        str, typer.Option(help="flat, or good: the culprits weigh most in 8 runs of 10.")
    ] = "flat",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Play the shipped planner against drawn truths that it does not see, and count its launches."""
    from fleetctl.bisect.simulate import Setting, summary
    from fleetctl.cli.bisect_simulate import check, play, table

    setting = Setting(n, k, q, hosts, causes, other, prior)
    check(setting, runs)
    found = summary(setting, play(setting, runs, seed), seed)
    if as_json:
        show.json_line(found)
    else:
        show.out(table(found))
    return 0


@app.callback()
def _noun() -> None:
    """Keep ``simulate`` a verb of its own while it is alone."""
