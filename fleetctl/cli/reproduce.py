"""``fleetctl reproduce``: make the launch of an incident again and count how often it crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete, options, show
from fleetctl.cli.app import new_app
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, UsageError

if TYPE_CHECKING:
    from fleetctl.apply.outcome import Outcome
    from fleetctl.apply.wish import Wish
    from fleetctl.cli.deploy_view import View
    from fleetctl.model.fleet import Target

app = new_app()
ENDS = ("interrupted", "refused", "locked", "unreachable")  # another try would come to the same
NOT_FOR_IT = ("no-version", "version-not-meant")


def _launch(targets: Sequence[Target], wish: Wish, view: View) -> list[Outcome]:
    """Launch once; of a server over several hosts, all nodes have the one explanation."""
    from fleetctl.apply import together

    if len(targets) == 1:
        return together.deploy(
            targets, replace(wish), view.tell, lambda _: True, view.done, show.type_name
        )
    from fleetctl.fleet.nodes import Nodes
    from fleetctl.model import nodes

    own = nodes.profiles(wish.profile, targets)
    wishes = {name: replace(wish, profile=one) for name, one in own.items()}
    return Nodes(targets, wishes, view.tell, view.done, lambda _: True).deploy()


def _cannot_be_patched(end: Outcome) -> bool:
    """Return whether the host, or what is installed there, does not take the patches."""
    return end.state == "apply-failed" or end.error in NOT_FOR_IT


@app.command()
def reproduce(
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", show_default=False)],
    times: Annotated[int, typer.Option("-n", "--times", min=1, max=1000, help="How often.")] = 5,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Where (default: where it happened); repeated for a server of several hosts.",
            autocompletion=complete.hosts,
        ),
    ] = None,
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Send this instead of what was recorded.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", parser=at_least(0.0), help="For each wait (default: none)."
        ),
    ] = None,
    no_patches: Annotated[
        bool, typer.Option("--no-patches", help="Without the patches that it had.")
    ] = False,
    yes: options.Yes = False,
    yes_protected: options.YesProtected = None,
    as_json: options.JsonLines = False,
) -> int:
    """Deploy the launch of an incident again, send its request, and count the crashes.

    The diagnostic patches that it had are pushed again, for as long as each says. A server of several
    hosts is launched on all of them. Exit 0: it crashed the same way at least once. 1: it never did.
    """
    from fleetctl.apply import reproduce as again
    from fleetctl.apply.wish import Wish, read_requests
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.secrets import resolve_secrets
    from fleetctl.config.site import load_site
    from fleetctl.incidents.store import open_store

    occurrence = open_store().occurrence(incident)
    profile = again.profile_of(occurrence, elsewhere=bool(on))
    site = load_site()
    places = on or again.places_of(occurrence, profile.nodes)
    targets = [target for place in places for target in site.select([place])]
    if len(targets) != profile.nodes:
        names = ", ".join(places)
        raise UsageError(
            "one-service" if profile.nodes == 1 else "node-count",
            f"{names} is {len(targets)} services",
            hint=f"name {profile.nodes}",
        )
    patches, remarks = ((), ()) if no_patches else again.patches_of(occurrence, site.root)
    for line in remarks:
        show.note(f"note: {line}")
    had = tuple(patch.name for patch in patches)
    where = ", ".join(map(str, targets))
    how = f" with {', '.join(had)}" if had else ""
    if not show.confirm(f"Restart {where} {times} times{how}?", yes=yes, as_json=as_json):
        raise UsageError(
            "not-confirmed", "nobody said yes", hint="say yes when asked, or give --yes"
        )
    wish = Wish(
        profile=replace(profile, patches=had),
        patches=patches,
        templates=site.templates(),
        secrets=resolve_secrets(profile),
        allow=frozenset({"--keep-patches", *(f"--yes-protected={h}" for h in yes_protected or ())}),
        restart=True,
        again=True,
        reason=f"reproduce {occurrence.id}",
        requests=read_requests(request) if request else again.requests_of(occurrence),
        timeout=timeout,
    )
    tally = again.Tally(occurrence.fingerprint, had)
    view = View(as_json=as_json)
    for number in range(1, times + 1):
        ends = _launch(targets, wish, view)
        for end in ends:
            unpatched = bool(had) and _cannot_be_patched(end)
            if unpatched:
                show.note(f"--no-patches tries it without {', '.join(had)}")
            if unpatched or end.state in ENDS:
                return int(end.code)
        said = tally.add(ends[0].to_event())
        show.note(f"try {number} of {times}: {said}")
    if as_json:
        show.json_line(tally.to_json(occurrence.id))
    else:
        show.out("\n".join(tally.lines()))
    return int(Exit.OK if tally.same else Exit.NEGATIVE)
