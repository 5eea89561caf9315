"""``fleetctl rollback``: bring an earlier revision back as a new launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import app as root
from fleetctl.cli import options, overrides, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen

if TYPE_CHECKING:
    from fleetctl.apply.deploy import Deployment

app = new_app()


@app.command()
def rollback(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="This revision (default: the last ready one that differs from now)."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    diff: options.Diff = False,
    yes: options.Yes = False,
    yes_protected: options.YesProtected = None,
    reason: options.Reason = "",
    no_lint: options.NoLint = None,
    keep_patches: options.KeepPatches = False,
    take_over: options.TakeOver = False,
    timeout: options.Timeout = None,
    lock_wait: options.LockWait = 0.0,
    break_lock: options.BreakLock = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, as deploy.")] = False,
) -> int:
    """Bring an earlier revision back: a new launch by the same road as a deploy, with its own number.

    Files come back byte for byte. Secrets are in no revision: they are resolved again from their
    references, and a rollback whose secret does not resolve is refused before anything stops.
    """
    from fleetctl.apply.wish import Wish
    from fleetctl.cli.deploy_view import View
    from fleetctl.config.site import load_site
    from fleetctl.fleet import rollback as road
    from fleetctl.fleet.fanout import common_exit
    from fleetctl.model.fleet import Profile

    site = load_site()
    targets = chosen(site, hosts, everything)
    guards = {"--keep-patches": keep_patches, "--take-over": take_over}
    allowed = [name for name, given in guards.items() if given]
    allowed += [f"--yes-protected={host}" for host in yes_protected or ()]
    base = Wish(
        profile=Profile("", ""),
        templates=site.templates(),
        allow=frozenset(allowed),
        no_lint=overrides.known(no_lint),
        reason=reason,
        break_lock=break_lock,
        timeout=timeout,
        dry_run=dry_run,
        lock_wait=lock_wait,
    )
    wishes, faults = road.wishes(targets, to, base, site.root)
    for _, error in faults:
        root.report(error, as_json=as_json)
    if not as_json and wishes:
        show.note(road.rendered_text(wishes))

    def confirm(ways: Sequence[Deployment]) -> bool:
        names = ", ".join(str(way.target) for way in ways)
        return show.confirm(f"Restart what serves on {names}?", yes=yes, as_json=as_json)

    view = View(as_json=as_json, diff=diff, dry_run=dry_run)
    typed = (lambda _: False) if as_json else show.type_name
    go = [t for t in targets if str(t) in wishes]
    ends = road.carry_out(go, wishes, view.tell, confirm, view.done, typed)
    return common_exit([int(e.exit_code) for _, e in faults] + [int(e.code) for e in ends])
