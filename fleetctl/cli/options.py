"""Options that several commands have, with one meaning and one help text."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli.selectors import argument
from fleetctl.cli.spans import at_least

Hosts = Annotated[list[str], argument("[HOST…]")]

# --- what is asked, and of whom ---

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the files' differences too.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
YesProtected = Annotated[
    list[str] | None,
    typer.Option("--yes-protected", metavar="HOST", help="Also on this protected host."),
]
LockWait = Annotated[
    float,
    typer.Option(
        "--lock-wait",
        metavar="SECONDS",
        parser=at_least(0.0),
        help="Wait for somebody else's lock.",
    ),
]
BreakLock = Annotated[
    str, typer.Option("--break-lock", metavar="REASON", help="Take the lock from who holds it.")
]
ConnectTimeout = Annotated[
    float,
    typer.Option(
        "--connect-timeout",
        metavar="SECONDS",
        parser=at_least(0.1),
        help="For the way in, login included.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]
JsonEach = Annotated[bool, typer.Option("--json", help="Print a JSON line for each.")]

# --- a launch ---

Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="FLAG", help="Leave a flag out.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the launch.")]
NoLint = Annotated[
    list[str] | None, typer.Option("--no-lint", metavar="ID", help="Override this finding.")
]
KeepPatches = Annotated[
    bool, typer.Option("--keep-patches", help="Although patches are active there.")
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Replace a unit that fleetctl did not write.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        parser=at_least(0.0),
        help="For the whole wait (default: none).",
    ),
]
Stall = Annotated[
    float | None,
    typer.Option(
        "--stall",
        metavar="SECONDS",
        parser=at_least(0.0),
        help="No sign of life for that long is a hang (default: 180).",
    ),
]
