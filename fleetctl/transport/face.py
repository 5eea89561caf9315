"""fabric on a session that is there already: for what a person types and reads."""

from __future__ import annotations

import time
from typing import Any

from fleetctl.transport import faults
from fleetctl.transport.lean import paramiko
from fleetctl.transport.ssh import PAUSES, SshConnection


def fabric_over(connection: SshConnection) -> Any:
    """Return a ``fabric.Connection`` whose transport is this one, logged in and checked as all are.

    It gives the interactive part that fabric does well: a shell, a command on a terminal, answers to
    prompts, SFTP. Closing it closes the session.
    """
    from fabric import Connection
    from fabric.config import Config

    address, port, user = connection.place
    config = Config(overrides={"load_ssh_configs": False})
    made = Connection(address, user=user, port=port, config=config)
    made.client._transport = connection.wire
    made.transport = connection.wire
    return made


def interactive(connection: SshConnection, command: str | None, *, terminal: bool) -> int:
    """Run a command, or a shell for None, joined to our own input and output; return its status.

    ``terminal``: the other end gets one as well. The session is closed at the end. Raises
    UnreachableError ``session-refused`` where the server allows no more sessions.
    """
    from invoke.exceptions import UnexpectedExit

    def begin(session: Any) -> int:
        if command is None:
            return int(session.shell().exited)
        in_stream = None if terminal else False
        return int(session.run(command, pty=terminal, warn=True, in_stream=in_stream).exited)

    with fabric_over(connection) as session:
        for pause in PAUSES:  # a session that has ended may count for another moment
            try:
                return begin(session)
            except UnexpectedExit as error:
                return int(error.result.exited)
            except paramiko.ChannelException as error:
                refused = error
            time.sleep(pause)
        raise faults.no_more_sessions(connection.host.name, refused.text) from refused
