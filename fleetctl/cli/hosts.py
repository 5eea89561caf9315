"""``fleetctl hosts``: the inventory."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.cli.hosts_trust import trust
from fleetctl.model.fleet import Host

app = new_app("The machines of the site, as the inventory says.")


@app.callback()
def group() -> None:
    """The machines of the site, as the inventory says."""


app.command("trust")(trust)


@app.command("list")
def list_hosts(
    selectors: list[str] = typer.Argument(
        None, metavar="[SELECTOR]...", autocompletion=complete.hosts, help="Default: every host."
    ),
    as_json: bool = typer.Option(False, "--json", help="One object a host, one line each."),
) -> None:
    """List hosts with their services."""
    from fleetctl.config import places
    from fleetctl.config.select import select_hosts
    from fleetctl.config.site import load_site

    site = load_site()
    if places.only_example():
        show.note("no site is near: this is the packaged example; `fleetctl init` writes yours")
    hosts = select_hosts(site.hosts, selectors or ["--all"])
    if as_json:
        for host in hosts:
            show.json_line(_plain(host))
        return
    rows = [("HOST", "ADDRESS", "GROUPS", "SERVICES", "")]
    rows += [_row(h) for h in hosts]
    widths = [max(len(row[n]) for row in rows) for n in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        show.out("  ".join([*cells, row[4]]).rstrip())


def _row(host: Host) -> tuple[str, str, str, str, str]:
    services = ", ".join(f"{s.name}:{s.port}" for s in host.services)
    notes = [
        n for n, on in (("protected", host.protected), ("local", host.transport == "local")) if on
    ]
    return host.name, host.address, ",".join(host.groups), services, " ".join(notes)


def _plain(host: Host) -> dict[str, Any]:
    body = dataclasses.asdict(host)
    body["env"], body["flags"] = dict(host.env), dict(host.flags)
    body["services"] = [dataclasses.asdict(s) | {"unit": s.unit} for s in host.services]
    body.pop("via", None)
    return {"schema": "fleetctl.host/1"} | body
