"""``fleetctl bisect``: look at bisects, correct them, and try the planner against drawn truths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import options, show
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


Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: AsJson = False) -> int:
    """Show the bisects that this machine knows, the newest last."""
    from fleetctl.report import bisect as report
    from fleetctl.trials import store

    for state in store.load_all():
        if as_json:
            show.json_line(report.row(state))
        else:
            show.out(report.row_line(state))
    return 0


@app.command("show")
def show_(
    bisect: Id,
    host: Annotated[
        str, typer.Option("--on", metavar="HOST", help="Take the copy that a host has.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report there.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show a bisect: its trials, what is known so far, the verdict."""
    from fleetctl.report import bisect as report
    from fleetctl.trials import store

    state = store.fetch(bisect, host) if host else store.load(bisect)
    if html is not None:
        from fleetctl.config.write import write_text_as_is
        from fleetctl.report import bisect_page

        show.note(f"wrote {write_text_as_is(html, bisect_page.html(state))}")
    if as_json:
        show.json_line(state.to_json())
    else:
        show.out(report.text(state))
    return 0


@app.command()
def mark(
    bisect: Id,
    trial: Annotated[int, typer.Argument(metavar="N", help="The trial's number.")],
    word: Annotated[str, typer.Argument(metavar="good|bad|skip")],
    as_json: AsJson = False,
) -> int:
    """Correct what a trial told; `bisect-flags --resume ID` then plans anew from it."""
    from fleetctl.report import bisect as report
    from fleetctl.trials import store, words

    state = store.load(bisect)
    entry = state.mark(trial, word)
    store.keep(state)
    if as_json:
        show.json_line({"event": "marked"} | words.entry_json(entry))
    else:
        show.out(report.table_row(words.entry_json(entry)))
    return 0


@app.command()
def undo(bisect: Id, as_json: AsJson = False) -> int:
    """Forget the last trial of a bisect."""
    from fleetctl.report import bisect as report
    from fleetctl.trials import store, words

    state = store.load(bisect)
    entry = state.undo()
    store.keep(state)
    if as_json:
        show.json_line({"event": "undone"} | words.entry_json(entry))
    else:
        show.out("forgotten: " + report.table_row(words.entry_json(entry)).strip())
    return 0


@app.command()
def attach(bisect: Id, as_json: AsJson = False) -> int:
    """Watch a bisect that runs in the background here, until its verdict."""
    from fleetctl.cli.bisect_attach import follow

    return follow(bisect, as_json=as_json)


@app.command()
def abandon(bisect: Id, yes: options.Yes = False) -> int:
    """Put the hosts of a dead bisect in order, and bring back what it had taken down."""
    from fleetctl.config.site import load_site
    from fleetctl.errors import RefusedError
    from fleetctl.report import bisect as report
    from fleetctl.trials import running, store

    state = store.load(bisect)
    if not show.confirm(f"Clean up after {state.id} on {', '.join(state.hosts)}?", yes=yes):
        raise RefusedError("not-confirmed", "nobody said yes", hint="say yes, or give --yes")
    running.abandon(
        load_site(), state, lambda event: show.note(report.event_line(event) or event["event"])
    )
    return 0
