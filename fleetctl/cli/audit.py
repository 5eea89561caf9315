"""``fleetctl audit``: who changed what, on hosts and from this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import complete, options, patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen
from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Target

app = new_app()


@app.command()
def audit(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HOST]…",
            help="Ask these hosts too (default: only what was done from here).",
            show_default=False,
            autocompletion=complete.hosts,
        ),
    ] = None,
    everything: Everything = False,
    count: Annotated[int, typer.Option("-n", metavar="N", help="The newest N lines of each.")] = 50,
    as_json: options.JsonLines = False,
) -> int:
    """Show who changed what: the host's own lines for each HOST, and the lines of this machine."""
    from fleetctl.apply import audit as log
    from fleetctl.apply import together
    from fleetctl.config.site import load_site
    from fleetctl.report import history as report

    asked = bool(hosts) or everything
    targets = chosen(load_site(), hosts or [], everything) if asked else []

    def one(target: Target) -> list[dict[str, Any]] | FleetError:
        try:
            session = hosts_.session(target).noting(target.service.name)
            return log.of_host(session, target, count)
        except FleetError as error:
            return error

    lines = log.local({str(t) for t in targets} if asked else None, count)
    codes = set() if asked else {int(Exit.OK)}
    with together.crew() as hosts_:
        for answer in hosts_.each(one, targets):
            if isinstance(answer, FleetError):
                root.report(answer, as_json=as_json)
                codes.add(int(answer.exit_code))
            else:
                lines += answer
                codes.add(int(Exit.OK))
    if not lines and not as_json:
        show.note("nothing is written down there")
    for line in sorted(lines, key=lambda one: str(one.get("at"))):
        if as_json:
            show.json_line(line)
        else:
            show.out(show.safe_line(f"{line['source']:<5} {report.audit(line)}"))
    patch_notes.tell(hosts_.noted())
    return codes.pop() if len(codes) == 1 else int(Exit.NEGATIVE)
