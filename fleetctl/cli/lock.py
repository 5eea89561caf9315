"""``fleetctl lock status|break``: who changes a service now, and how to get past the one who is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, Selectors, chosen
from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Target

app = new_app("Locks of services: who holds them, and breaking one.")
Json = Annotated[bool, typer.Option("--json", help="Print a JSON line a service.")]
Work = Callable[[Any, Target], dict[str, Any]]


@app.command("status")
def status(
    hosts: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    as_json: Json = False,
) -> int:
    """Show who holds the lock of each service. A lock without a heartbeat for 60 s is nobody's."""
    from fleetctl.apply import locking

    return _each(hosts, everything, as_json, locking.status)


@app.command("break")
def break_(
    reason: Annotated[
        str, typer.Option(help="Why; kept in the audit log of the host.", show_default=False)
    ],
    hosts: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    as_json: Json = False,
) -> int:
    """Take a lock away from who holds it. That client restarts nothing any more."""
    from fleetctl.apply import locking

    return _each(hosts, everything, as_json, lambda session, t: locking.break_(session, t, reason))


def _each(hosts: list[str], everything: bool, as_json: bool, work: Work) -> int:
    from fleetctl.apply import together
    from fleetctl.config.site import load_site
    from fleetctl.report import history as report

    targets = chosen(load_site(), hosts, everything)

    def one(target: Target) -> int:
        try:
            line = work(hosts_.session(target).noting(target.service.name), target)
        except FleetError as error:
            root.report(error, as_json=as_json)
            return int(error.exit_code)
        if as_json:
            show.json_line(line)
        else:
            show.out(report.lock(line))
        return int(Exit.OK)

    with together.crew() as hosts_:
        codes = set(hosts_.each(one, targets))
    patch_notes.tell(hosts_.noted())
    return codes.pop() if len(codes) == 1 else int(Exit.NEGATIVE)
