"""``fleetctl collect``: bring home the evidence of what failed while nobody watched."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import options, patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen
from fleetctl.errors import Exit, FleetError, UsageError
from fleetctl.model.facts import PatchNote
from fleetctl.model.fleet import Target

app = new_app()


@app.command()
def collect(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="How far back: 12h, 2d, or an RFC 3339 time.")
    ] = "7d",
    invocation: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this one, whatever became of it.")
    ] = None,
    as_json: options.JsonEach = False,
) -> int:
    """Find every failed invocation on the hosts, and make each a bundle and an incident here.

    Running it again adds nothing. Exit 0: nothing failed in that time. 1: something did.
    """
    from fleetctl.apply import collecting, together
    from fleetctl.clock import SystemClock
    from fleetctl.config.site import load_site

    targets = chosen(load_site(), hosts, everything)
    start = collecting.since_of(since, SystemClock().now())
    by_host: dict[str, list[Target]] = {}
    for target in targets:
        by_host.setdefault(target.host.name, []).append(target)

    def found(line: dict[str, Any]) -> None:
        if as_json:
            show.json_line(line)
            return
        what = line["label"] or line.get("message") or "-"
        mark = "new  " if line["new"] else "known" if line["incident"] else "no   "
        name = f"{line['host']}/{line['service']}"
        show.out(f"{mark} {line['incident'] or 'incident':<14} {line['failed_at']} {name} {what}")
        if line["signature"]:
            show.out(f"      {line['signature']}")

    def one(group: list[Target]) -> tuple[Exit, int]:
        try:
            session = hosts_.session(group[0])
            lines = collecting.collect(
                session, group, start, invocation, found, lambda t, n: notes.append((t, n))
            )
        except FleetError as error:
            root.report(error, as_json=as_json)
            return error.exit_code, 0
        return (Exit.NEGATIVE if any(line["incident"] for line in lines) else Exit.OK), len(lines)

    notes: list[tuple[str, tuple[PatchNote, ...]]] = []
    with together.crew() as hosts_:
        ends = hosts_.each(one, list(by_host.values()))
    patch_notes.tell(notes)
    nothing = not any(count for _, count in ends) and all(code == Exit.OK for code, _ in ends)
    if nothing and invocation:
        raise UsageError(
            "unknown-invocation",
            f"{', '.join(hosts)}: neither spool nor journal has an invocation {invocation}",
            hint="`journalctl -u UNIT -o json` and `fleetctl incidents list --json` have their ids",
        )
    if nothing and not as_json:
        show.out(f"nothing failed on {len(by_host)} host(s) since {since}")
    codes = {code for code, _ in ends}
    return int(codes.pop() if len(codes) == 1 else Exit.NEGATIVE)
