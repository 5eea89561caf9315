"""``fleetctl ssh``: a terminal on one host, by the way that all commands take."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import complete, options, patch_notes
from fleetctl.cli.app import new_app
from fleetctl.errors import UsageError

if TYPE_CHECKING:
    from fleetctl.transport.base import Connection

app = new_app()


@app.command(
    epilog="What the host prints goes to the terminal as it is, as with ssh. The exit code is the "
    "command's or the shell's own."
)
def ssh(
    host: Annotated[
        str, typer.Argument(autocompletion=complete.hosts, help="One host of the inventory.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…", help="Instead of a shell, with a terminal of its own."
        ),
    ] = None,
    connect_timeout: options.ConnectTimeout = 10.0,
) -> int:
    """Open a shell on a host, through jump hosts, keys and agent as the inventory says."""
    from fleetctl.fleet.run import command_text
    from fleetctl.fleet.selection import hosts_of
    from fleetctl.transport import connect

    hosts = hosts_of(host)
    if len(hosts) != 1:
        raise UsageError(
            "one-host", f"{host} is {len(hosts)} hosts", hint="`fleetctl run` is for many"
        )
    text = command_text(command) if command else None
    if text is not None and _not_utf_8(text):
        raise UsageError(
            "not-utf-8", "the command is not UTF-8", hint="`fleetctl run` takes any bytes"
        )
    if hosts[0].transport == "local":
        _tell(connect(hosts[0]))
        shell = os.environ.get("SHELL", "/bin/sh")
        return subprocess.run([shell, "-c", text] if text else [shell], check=False).returncode
    from fleetctl.transport import ssh as transport
    from fleetctl.transport.face import interactive

    terminal = sys.stdin.isatty()
    if text is None and not terminal:
        raise UsageError("no-terminal", "a shell needs a terminal", hint="give a command after --")
    connection = transport.connect(hosts[0], connect_timeout, ask=True)
    _tell(connection)
    return interactive(connection, text, terminal=terminal)


def _tell(connection: Connection) -> None:
    """Say which patches the host has, before the terminal is its own."""
    from fleetctl.fleet.run import patches_of

    patch_notes.tell(patch_notes.of_host(connection.host.name, patches_of(connection)))


def _not_utf_8(text: str) -> bool:
    """Return whether a word of the command line had bytes that are no UTF-8."""
    return any("\udc80" <= char <= "\udcff" for char in text)
