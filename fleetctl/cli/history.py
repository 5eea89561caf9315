"""``fleetctl history``: what was deployed to a service, as the host remembers it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import options, patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen
from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Target

app = new_app()


@app.command()
def history(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line a revision.")] = False,
) -> int:
    """Show the last ten revisions of each service, the newest first: who, what, and what became of it."""
    from fleetctl.apply import together
    from fleetctl.config.site import load_site
    from fleetctl.fleet import rollback
    from fleetctl.report import history as report

    targets = chosen(load_site(), hosts, everything)

    def one(target: Target) -> list[dict[str, Any]] | FleetError:
        try:
            session = hosts_.session(target).noting(target.service.name)
            found = rollback.revisions(session, target)
        except FleetError as error:
            return error
        return [r.to_json(target.host.name, target.service.name) for r in found]

    codes = set()
    with together.crew() as hosts_:
        answers = hosts_.each(one, targets)
    for target, answer in zip(targets, answers, strict=True):
        if isinstance(answer, FleetError):
            codes.add(int(answer.exit_code))
            root.report(answer, as_json=as_json)
            continue
        codes.add(int(Exit.OK))
        if as_json:
            for line in answer:
                show.json_line(line)
        elif answer:
            show.out(f"{target}\n" + "\n".join(report.revisions(answer)))
        else:
            show.out(f"{target}: no revision is kept there")
    patch_notes.tell(hosts_.noted())
    return codes.pop() if len(codes) == 1 else int(Exit.NEGATIVE)
