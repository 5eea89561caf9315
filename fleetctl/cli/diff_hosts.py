"""``fleetctl diff-hosts``: what differs between hosts that should be alike."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, Selectors, chosen
from fleetctl.errors import Exit, UsageError

app = new_app()


@app.command(epilog="Exit code: 0 alike, 1 something differs, 4 a host cannot be reached.")
def diff_hosts(
    selectors: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile", "-p", autocompletion=complete.profiles, help="Look at its interpreter."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Compare versions, drivers, limits, the deployed unit and the last launch of hosts."""
    from fleetctl.config.site import load_site
    from fleetctl.fleet.diff_hosts import SCHEMA, differences
    from fleetctl.fleet.doctor import visit
    from fleetctl.fleet.fold import ranges

    site = load_site()
    targets = chosen(site, selectors, everything)
    if len({t.host.name for t in targets}) < 2:
        raise UsageError(
            "one-host", "there is nothing to compare with one host", hint="name a group: @b300"
        )
    visits = list(visit(targets, site.root, profile=site.profile(profile) if profile else None))
    rows = differences(visits)
    faults = [v for v in visits if v.error is not None]
    if as_json:
        show.json_line({
            "schema": SCHEMA, "hosts": sorted(v.host for v in visits if v.error is None),
            "differences": [r.to_json() for r in rows],
            "unreachable": {v.host: str(v.error) for v in faults},
        })  # fmt: skip
    else:
        for row in rows:
            (value, hosts), *others = row.values
            show.out(f"{row.fact}: {show.safe_line(value or 'none')} ({ranges(hosts)})")
            for other, where in others:
                show.out(f"  {show.safe_line(other or 'none')} ({ranges(where)})")
        show.note(f"{len(visits) - len(faults)} hosts, {len(rows)} differences")
    for one in faults:
        if one.error is not None:
            show.fault(one.error)
    if faults:
        return int(Exit.UNREACHABLE)
    return int(Exit.NEGATIVE if rows else Exit.OK)
