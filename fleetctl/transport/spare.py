"""A shell that is started before its command is known: most of what one more command costs, paid before.

sshd's fork, the login shell and ours take 2 ms of the 3 ms of a command on an open session, and a round trip.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.transport.ssh import SshChannel

# It becomes the shell that a new session would start, with the same process leading the same session.
TEXT = 'IFS= read -r c && exec sh -c " $c"'  # the space: a command that begins with - is no option
LONGEST = 1024  # a shell reads its line byte by byte: a longer one costs more than a new session


class Spare:
    """The next command's shell of one connection, from its second command on: most run only one.

    None is kept where a command is not run by our own shell (a forced command would run once more).
    """

    def __init__(self, start: Callable[[], SshChannel]) -> None:
        self._start = start
        self._ran = False
        self._shell: SshChannel | None = None
        self._lock = threading.Lock()

    def take(self, command: str) -> SshChannel | None:
        """Return a running shell that can be given this command line, or None."""
        if len(command) > LONGEST or "\n" in command:
            return None
        with self._lock:
            shell = self._shell
            if shell is None or not shell.leads or shell.over:
                return None
            self._shell = None
            return shell

    def keep(self, after: SshChannel) -> None:
        """Start one, now that a command has ended. UnreachableError: the connection is gone."""
        with self._lock:
            if self._ran and after.leads and (self._shell is None or self._shell.over):
                self._shell = self._start()
            self._ran = True

    def end(self) -> None:
        """Give it up, since it takes one of the sessions that a server allows."""
        with self._lock:
            shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
