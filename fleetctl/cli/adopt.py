"""``fleetctl adopt``: a server that somebody else set up becomes a profile and a service."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.errors import Exit, UsageError

app = new_app()


@app.command(
    epilog="Exit code: 0 a deploy would start the same, 1 something differs (it is shown). "
    "Nothing changes on the host, nor here without --write."
)
def adopt(
    host: Annotated[str, typer.Argument(metavar="HOST", autocompletion=complete.hosts)],
    unit: Annotated[
        str, typer.Option("--unit", metavar="UNIT", help="A systemd unit of the host.")
    ] = "",
    pid: Annotated[int, typer.Option(metavar="N", help="A process of the host.")] = 0,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="The profile's name [the unit's].")
    ] = "",
    service: Annotated[str, typer.Option(metavar="NAME", help="The service's name.")] = "main",
    write: Annotated[
        bool, typer.Option("--write", help="Write the profile into the site.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Over a profile of that name.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Turn a running server or a unit of a host into a profile, and show what would differ."""
    from fleetctl.config.site import load_site
    from fleetctl.fleet import adopt as fleet

    if bool(unit) == bool(pid):
        raise UsageError(
            "unit-or-pid", "name what to adopt", hint="--unit sglang.service, or --pid 1234"
        )
    targets = {t.host.name: t.host for t in load_site().select([host])}
    if len(targets) != 1:
        raise UsageError("one-host", f"{host} picks {len(targets)} hosts", hint="name one")
    name = (
        profile or re.sub(r"[^A-Za-z0-9._-]+", "-", unit.removesuffix(".service")) or f"pid-{pid}"
    )
    found = fleet.ask(next(iter(targets.values())), unit=unit, pid=pid, name=name, service=service)
    if as_json:
        show.json_line(found.to_json())
    else:
        show.out(found.profile_text.rstrip("\n"))
        show.note(f"# hosts.yaml:\n{found.service_text.rstrip()}")
        told = {"running": "from the running process", "unit": "from the unit; it does not run"}
        show.note(f"{told[found.adopted.source]}, flags of sglang {found.sglang}")
        for note in found.adopted.notes:
            show.note(f"note: {note}")
        for line in found.adopted.differs:
            show.note(f"the unit on disk differs from what runs: {line}")
        for line in found.differences:
            show.note(f"differs: {line}")
        show.note(
            "a deploy would start the same"
            if not found.differences
            else "a deploy would not start the same"
        )
    if write:
        show.note(f"wrote {fleet.write(found, force=force)}")
    return int(Exit.NEGATIVE if found.differences else Exit.OK)
