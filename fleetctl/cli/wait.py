"""``fleetctl wait``: watch services that are starting until they are ready or have failed."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete
from fleetctl.cli.app import new_app

app = new_app()


@app.command()
def wait(
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST…", show_default=False, autocompletion=complete.hosts),
    ],
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.0, help="For the whole wait (default: none)."),
    ] = None,
    stall: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="No sign of life for that long is a hang (default: 180).",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> int:
    """Watch services that are starting, as deploy does. Exit 0: all are ready.

    After a crash the start that systemd makes next is watched. The nodes of one server count as one.
    """
    from fleetctl.apply import outcome, together
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.site import load_site
    from fleetctl.fleet import node_wait

    targets = load_site().select(hosts)
    limits = {k: v for k, v in {"timeout": timeout, "quiet": stall}.items() if v is not None}
    view = View(as_json=as_json)
    with together.crew() as hands:
        ends = node_wait.wait(targets, hands, view.tell, view.done, limits)
    return int(outcome.exit_code(ends))
