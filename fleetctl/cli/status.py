"""``fleetctl status``: what runs where, and how it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import options, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Target

app = new_app()


@app.command()
def status(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    as_json: options.JsonEach = False,
    watch: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.0), help="Look again every so many seconds."
        ),
    ] = 0.0,
) -> int:
    """Show what each service runs and whether it serves. Exit 0: all are ready."""
    from fleetctl.apply import evidence, standing, together
    from fleetctl.clock import SystemClock
    from fleetctl.config.site import load_site
    from fleetctl.fleet.fold import ranges
    from fleetctl.report import status as report

    targets = chosen(load_site(), hosts, everything)

    def one(target: Target) -> dict[str, Any]:
        try:
            return standing.status(target, sessions[str(target)])
        except FleetError as error:
            return standing.unreachable(target, error)

    with together.crew() as hosts_:
        sessions = {str(t): hosts_.session(t) for t in targets}
        while True:
            lines = hosts_.each(one, targets)
            known = evidence.last_incidents()
            for line in lines:
                line["incident"] = known.get(f"{line['host']}/{line['service']}")
            for line in lines if as_json else ():
                show.json_line(line)
            if not as_json:
                show.out("\n".join(report.table(lines, ranges)))
            if not watch or hosts_.stop.is_set():
                break
            SystemClock().sleep(watch)
    if hosts_.stop.is_set():
        return int(Exit.INTERRUPTED)
    states = {line["state"] for line in lines}
    if states == {"unreachable"}:
        return int(Exit.UNREACHABLE)
    if states == {"unknown"}:
        return int(Exit.REMOTE)
    return int(Exit.OK if states <= {"ready"} else Exit.NEGATIVE)
