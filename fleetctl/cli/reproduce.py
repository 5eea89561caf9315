"""``fleetctl reproduce``: make the launch of an incident again and count how often it crashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app
from fleetctl.errors import Exit, UsageError

app = new_app()


@app.command()
def reproduce(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", show_default=False)],
    times: Annotated[int, typer.Option("-n", "--times", min=1, max=1000, help="How often.")] = 5,
    on: Annotated[
        str, typer.Option(metavar="HOST", help="Where (default: where it happened).")
    ] = "",
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Send this instead of what was recorded.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For each wait (default: none).")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    yes_protected: Annotated[
        list[str] | None,
        typer.Option("--yes-protected", metavar="HOST", help="Also on this protected host."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> int:
    """Deploy the launch of an incident again, send its request, and count the crashes.

    Exit 0: it crashed the same way at least once. 1: it never did.
    """
    from fleetctl.apply import reproduce as again
    from fleetctl.apply import together
    from fleetctl.apply.outcome import Outcome, State
    from fleetctl.apply.wish import Wish, read_requests
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.secrets import resolve_secrets
    from fleetctl.config.site import load_site
    from fleetctl.incidents.store import open_store

    occurrence = open_store().occurrence(incident)
    profile = again.profile_of(occurrence)
    site = load_site()
    place = on or f"{occurrence.host}/{occurrence.service}"
    targets = site.select([place])
    if len(targets) != 1:
        raise UsageError("one-service", f"{place} is {len(targets)} services", hint="name one")
    if not show.confirm(f"Restart {targets[0]} {times} times?", yes=yes, as_json=as_json):
        raise UsageError(
            "not-confirmed", "nobody said yes", hint="say yes when asked, or give --yes"
        )
    wish = Wish(
        profile=profile,
        templates=site.templates(),
        secrets=resolve_secrets(profile),
        allow=frozenset({"--keep-patches", *(f"--yes-protected={h}" for h in yes_protected or ())}),
        restart=True,
        again=True,
        reason=f"reproduce {occurrence.id}",
        requests=read_requests(request) if request else again.requests_of(occurrence),
        timeout=timeout,
    )
    tally = again.Tally(occurrence.fingerprint)
    view = View(as_json=as_json)
    for number in range(1, times + 1):
        ends: list[Outcome] = together.deploy(
            targets, replace(wish), view.tell, lambda _: True, view.done, show.type_name
        )
        event: dict[str, Any] = ends[0].to_event()
        if ends[0].state in (State.INTERRUPTED, State.REFUSED, State.LOCKED, State.UNREACHABLE):
            return int(ends[0].code)
        said = tally.add(event)
        show.note(f"try {number} of {times}: {said}")
    if as_json:
        show.json_line(tally.to_json(occurrence.id))
    else:
        show.out("\n".join(tally.lines()))
    return int(Exit.OK if tally.same else Exit.NEGATIVE)
