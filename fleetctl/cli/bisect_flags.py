"""``fleetctl bisect-flags``: from "this profile crashes" to "this flag does it" in few launches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete, options, show
from fleetctl.cli.app import new_app
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, RefusedError, UsageError

if TYPE_CHECKING:
    from fleetctl.config.site import Site
    from fleetctl.trials.start import Asked, Job

app = new_app()

Hosts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="HOST…",
        autocompletion=complete.hosts,
        help="Where to try; with several, that many launches at a time.",
        show_default=False,
    ),
]


@app.command()
def bisect_flags(
    hosts: Hosts = None,
    good: Annotated[
        str, typer.Option("--good", metavar="PROFILE", help="The profile that works.")
    ] = "",
    bad: Annotated[
        str, typer.Option("--bad", metavar="PROFILE", help="The profile that crashes.")
    ] = "",
    good_last_ready: Annotated[
        bool, typer.Option("--good-last-ready", help="Good is the last launch that became ready.")
    ] = False,
    more_hosts: Annotated[
        list[str] | None, typer.Option("--hosts", metavar="HOST", help="Further hosts.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be tried; launch nothing.")
    ] = False,
    yes: options.Yes = False,
    yes_protected: options.YesProtected = None,
    as_json: options.JsonLines = False,
    resume: Annotated[
        str,
        typer.Option(
            metavar="ID", help="Go on with one that was interrupted; with its HOST also elsewhere."
        ),
    ] = "",
    max_trials: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Launch at most so often.")
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(metavar="MIN", min=0.0, help="Begin no launch after so long.")
    ] = None,
    bad_runs: Annotated[
        int, typer.Option(min=1, help="Launch the bad end so often before giving up on a crash.")
    ] = 6,
    strategy: Annotated[
        str, typer.Option(help="adaptive, or one-at-a-time for the strict table.")
    ] = "adaptive",
    request: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Send this after each ready, and watch through it."),
    ] = None,
    check: Annotated[
        str,
        typer.Option(
            metavar="COMMAND", help="Judge what serves (URL …): 0 good, 125 skip, other bad."
        ),
    ] = "",
    patch: Annotated[
        list[str] | None,
        typer.Option(
            "--patch",
            metavar="NAME",
            autocompletion=complete.patches,
            help="Every trial runs with this patch, its own unit alone (repeatable).",
        ),
    ] = None,
    fast_load: Annotated[
        bool,
        typer.Option("--fast-load", help="Search with dummy weights, if they crash the same way."),
    ] = False,
    fast_layers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --fast-load: only so many layers.")
    ] = None,
    take_down: Annotated[
        list[str] | None,
        typer.Option(
            "--take-down", metavar="SERVICE", help="Stop it meanwhile, and bring it back."
        ),
    ] = None,
    drain_cmd: Annotated[
        str, typer.Option(metavar="COMMAND", help="Run here before a service is taken down.")
    ] = "",
    undrain_cmd: Annotated[
        str, typer.Option(metavar="COMMAND", help="Run here when it is back (STATE).")
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the trials (default: the service's plus 7)."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.0), help="For each launch (default: none)."
        ),
    ] = None,
    stall: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.0), help="No sign of life for that long is a hang."
        ),
    ] = None,
    gpu_limit_mib: Annotated[
        float, typer.Option(min=0, help="GPU memory that may be in use between trials.")
    ] = 2048.0,
    break_lock: options.BreakLock = "",
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Do not count earlier launches as trials.")
    ] = False,
    no_split: Annotated[
        bool, typer.Option("--no-split", help="Leave a guilty group of flags as it is.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Go on in the background of this machine.")
    ] = False,
) -> int:
    """Find which of the differences between two profiles bring a crash.

    Trials run as a unit and on a port of their own on the service's GPUs. Exit 0: found.
    1: any other verdict. 7: refused. 130: interrupted; the state is kept, --resume goes on.
    """
    from fleetctl.apply.wish import read_requests
    from fleetctl.cli import bisect_view
    from fleetctl.config.site import load_site
    from fleetctl.trials import store
    from fleetctl.trials.host import Rules
    from fleetctl.trials.runner import How
    from fleetctl.trials.start import Asked

    if strategy not in ("adaptive", "one-at-a-time"):
        raise UsageError("bad-strategy", f"{strategy!r} is neither adaptive nor one-at-a-time")
    if fast_layers is not None and not fast_load:
        raise UsageError("needs-fast-load", "--fast-layers goes with --fast-load")
    site = load_site()
    asked = Asked(
        good=good,
        bad=bad,
        good_last_ready=good_last_ready,
        max_trials=max_trials,
        bad_runs=bad_runs,
        strategy=strategy,
        rules=Rules(
            port=port,
            timeout=timeout,
            stall=stall,
            requests=read_requests(request) if request else (),
            templates=site.templates(),
            gpu_limit_mib=gpu_limit_mib,
            break_lock=break_lock,
        ),
        how=How(check, max_minutes, fast_load, fast_layers, not no_split),
        take_down=tuple(take_down or ()),
        drain=drain_cmd,
        undrain=undrain_cmd,
        protected=tuple(yes_protected or ()),
        use_paid=not no_history,
        patches=tuple(dict.fromkeys(patch or ())),
    )
    names = [*(hosts or ()), *(more_hosts or ())]
    if resume:
        from fleetctl.trials.start import resume as go_on

        state = (
            store.fetch(resume, names[0])
            if names and not store.here(resume)
            else store.load(resume)
        )
        job = go_on(site, state, names, asked)
    else:
        job = _begin(site, names, asked)
    view = bisect_view.View(job, as_json=as_json)
    view.plan()
    if dry_run:
        return int(Exit.OK)
    if job.settled:
        return bisect_view.run(job, view)
    _type_names(job, as_json=as_json)
    if not show.confirm(view.question(), yes=yes, as_json=as_json):
        raise RefusedError(
            "not-confirmed", "nobody said yes", hint="say yes when asked, or give --yes"
        )
    if detach:
        return bisect_view.detach(job, as_json=as_json)
    return bisect_view.run(job, view)


def _begin(site: Site, names: list[str], asked: Asked) -> Job:
    from fleetctl.trials.start import plan

    if not asked.bad:
        raise UsageError("no-bad", "which profile crashes?", hint="--bad PROFILE")
    if bool(asked.good) == asked.good_last_ready:
        raise UsageError(
            "no-good", "which profile works?", hint="--good PROFILE or --good-last-ready"
        )
    return plan(site, site.select(names), asked)


def _type_names(job: Job, *, as_json: bool) -> None:
    """Have the name of each protected host typed on which something goes down, or refuse."""
    from dataclasses import replace

    from fleetctl.trials.start import refuse_unnamed

    for name in job.unnamed():
        if not as_json and show.type_name(name):
            job.asked = replace(job.asked, protected=(*job.asked.protected, name))
    refuse_unnamed(job)
