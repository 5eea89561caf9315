"""``fleetctl wait``: watch services that are starting until they are ready or have failed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import complete
from fleetctl.cli.app import new_app
from fleetctl.model.fleet import Target

app = new_app()


@app.command()
def wait(
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST…", show_default=False, autocompletion=complete.hosts),
    ],
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For the whole wait (default: none).")
    ] = None,
    stall: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="No sign of life for that long is a hang (default: 180)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> int:
    """Watch services that are starting, as deploy does. Exit 0: all are ready."""
    from fleetctl.apply import outcome, standing, together
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.site import load_site

    targets = load_site().select(hosts)
    limits = {k: v for k, v in {"timeout": timeout, "quiet": stall}.items() if v is not None}
    view = View(as_json=as_json)

    def one(target: Target) -> outcome.Outcome:
        def tell(event: dict[str, Any]) -> None:
            name = event.pop("event")
            view.tell(
                {"event": name, "host": target.host.name, "service": target.service.name} | event
            )

        end = standing.wait(target, hosts_.session(target), tell, limits)
        view.done(end)
        return end

    with together.crew() as hosts_:
        return int(outcome.exit_code(hosts_.each(one, targets)))
