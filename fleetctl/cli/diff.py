"""``fleetctl diff``: what a deploy would change, and what was edited by hand since the last one."""

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
def diff(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            help="Compare with this profile (default: with the host's newest revision).",
            autocompletion=complete.profiles,
        ),
    ] = "",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FLAG=VALUE", help="Change a flag.")
    ] = None,
    unset: options.Unset = None,
    as_json: options.JsonEach = False,
) -> int:
    """Show what differs. Exit 0: nothing does; 1: something does. Secrets are never shown."""
    from fleetctl.apply import together
    from fleetctl.apply.wish import Wish
    from fleetctl.config.secrets import within_reach
    from fleetctl.config.site import load_site
    from fleetctl.fleet import drift
    from fleetctl.model.fleet import Profile

    site = load_site()
    targets = chosen(site, hosts, everything)
    wanted = site.profile(profile, set_ or (), unset or ()) if profile else Profile("", "")
    secrets, why = within_reach(wanted)
    if why:
        show.note(f"secrets are out of reach here: {why}")
    wish = Wish(wanted, site.templates(), secrets, dry_run=True)

    def one(target: Target) -> dict[str, Any] | FleetError:
        try:
            session = hosts_.session(target).noting(target.service.name)
            return drift.compare(session, target, wish, site.root, profile=bool(profile))
        except FleetError as error:
            return error

    codes = set()
    with together.crew() as hosts_:
        for answer in hosts_.each(one, targets):
            if isinstance(answer, FleetError):
                codes.add(int(answer.exit_code))
                root.report(answer, as_json=as_json)
                continue
            codes.add(int(Exit.OK if answer["same"] else Exit.NEGATIVE))
            if as_json:
                show.json_line(answer)
            else:
                show.out("\n".join(drift.lines_of(answer)))
    patch_notes.tell(hosts_.noted())
    return codes.pop() if len(codes) == 1 else int(Exit.NEGATIVE)
