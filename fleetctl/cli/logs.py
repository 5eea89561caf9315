"""``fleetctl logs``: the plain log of a service's invocation."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.errors import Exit, UsageError

app = new_app()


@app.command()
def logs(
    host: Annotated[
        str, typer.Argument(metavar="HOST", show_default=False, autocompletion=complete.hosts)
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it is printed.")] = False,
    invocation: Annotated[
        str | None, typer.Option(metavar="ID", help="An earlier one (default: the present).")
    ] = None,
    lines: Annotated[str, typer.Option("--lines", "-n", help="How many, or all.")] = "200",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> int:
    """Print the log of one service, secrets redacted."""
    from datetime import UTC, datetime

    from fleetctl.apply import together
    from fleetctl.clock import rfc3339
    from fleetctl.config.site import load_site
    from fleetctl.patching import active

    if lines != "all" and not lines.isdigit():
        raise UsageError("bad-value", f"--lines {lines}", hint="a number, or all")
    targets = load_site().select([host])
    if len(targets) != 1:
        raise UsageError("one-service", f"{host} is {len(targets)} services", hint="name one")
    target = targets[0]

    def take(event: dict[str, Any]) -> None:
        if event["event"] == "patches":
            active.warn(str(target), active.notes_of(event), show.note)
        for line in event.get("lines", ()):
            moment = datetime.fromtimestamp(line["at"], UTC)
            if as_json:
                show.json_line(line | {"at": rfc3339(moment)})
            else:
                show.out(
                    f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z {line['by']}[{line['pid']}]: {line['text']}"
                )

    service = target.service
    args = {
        "service": service.name, "unit": service.unit, "invocation": invocation, "lines": lines,
    }  # fmt: skip
    with together.crew() as hosts:
        session = hosts.session(target)
        try:
            session.call(
                "logs.follow" if follow else "logs.read", args, on_event=take, timeout=None
            )
        except KeyboardInterrupt:
            return int(Exit.INTERRUPTED)
    return int(Exit.OK)
