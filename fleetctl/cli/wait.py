"""``fleetctl wait``: watch services that are starting until they are ready or have failed."""

from __future__ import annotations

from fleetctl.cli import options
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen

app = new_app()


@app.command()
def wait(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    timeout: options.Timeout = None,
    stall: options.Stall = None,
    as_json: options.JsonLines = False,
) -> int:
    """Watch services that are starting, as deploy does. Exit 0: all are ready.

    After a crash the start that systemd makes next is watched. The nodes of one server count as one.
    """
    from fleetctl.apply import outcome, together
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.site import load_site
    from fleetctl.fleet import node_wait

    targets = chosen(load_site(), hosts, everything)
    limits = {k: v for k, v in {"timeout": timeout, "quiet": stall}.items() if v is not None}
    view = View(as_json=as_json)
    with together.crew() as hands:
        ends = node_wait.wait(targets, hands, view.tell, view.done, limits)
    return int(outcome.exit_code(ends))
