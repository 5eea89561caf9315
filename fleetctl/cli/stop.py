"""``fleetctl stop``: stop services on purpose, so that their end counts as no crash."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import options, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, chosen
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError
from fleetctl.model.fleet import Target

app = new_app()


def _tell(target: Target, event: dict[str, Any]) -> None:
    if event["event"] == "waiting":
        show.note(f"{target}: waiting for the lock of {event['who']}, {event['seconds']:.0f} s")


@app.command()
def stop(
    hosts: options.Hosts = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    yes: options.Yes = False,
    yes_protected: options.YesProtected = None,
    reason: Annotated[str, typer.Option(help="Why; kept on the host.")] = "",
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=at_least(0.0), help="For running requests to end."),
    ] = 180.0,
    lock_wait: options.LockWait = 0.0,
    break_lock: options.BreakLock = "",
    as_json: options.JsonEach = False,
) -> int:
    """Stop services on purpose. The stop is remembered: SGLang ends even a clean one as failed."""
    from fleetctl.apply import standing, together
    from fleetctl.config.site import load_site

    targets = chosen(load_site(), hosts, everything)
    allow = {f"--yes-protected={host}" for host in yes_protected or ()}
    for target in targets:
        name = target.host.name
        if target.host.protected and not as_json and name not in (yes_protected or ()):
            allow |= {f"--yes-protected={name}"} if show.type_name(name) else set()
    wish = standing.StopWish(frozenset(allow), reason, break_lock, timeout, lock_wait)
    sure = yes or show.confirm(f"Stop {', '.join(map(str, targets))}?", yes=yes, as_json=as_json)

    def one(target: Target) -> Exit:
        try:
            line = standing.stop(
                target, wish, hosts_.session(target), partial(_tell, target), lambda _: sure
            )
        except FleetError as error:
            root.report(error, as_json=as_json)
            return error.exit_code
        for warning in line["warnings"]:
            show.note(f"warning: {warning}")
        if as_json:
            show.json_line(line)
        else:
            how = "was not running" if line["state"] == "unchanged" else "stopped"
            show.out(f"{target}: {how} ({line['seconds']:.1f} s)")
        return Exit.OK

    with together.crew() as hosts_:
        codes = set(hosts_.each(one, targets))
    return int(codes.pop() if len(codes) == 1 else Exit.NEGATIVE)
