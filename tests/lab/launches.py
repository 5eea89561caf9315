"""An old launch and a new one that differ in each file, and a look at which a host has, without fleetctl."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.lab.box import Box

NEXT = "name: next\nextends: tp8\nflags: {max-running-requests: 64}\nenv: {NEXT: '1'}\n"
LOOK = """\
unit=sglang-$1.service
cat /etc/systemd/system/$unit 2>/dev/null | grep -c 'max-running-requests 64'
cat /etc/fleetctl/$1/environment 2>/dev/null | grep -c NEXT=
cat /proc/$(systemctl show -p MainPID --value $unit)/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'max-running-requests 64'
systemctl show -p InvocationID --value $unit
"""


@dataclass(frozen=True)
class Seen:
    """Which parts of a service are those of the new launch."""

    unit_file: bool
    environment: bool
    process: bool
    invocation: str

    @property
    def word(self) -> str:
        """``old`` or ``new``, or what is which where they are mixed."""
        parts = {self.unit_file, self.environment, self.process}
        return ("new" if parts.pop() else "old") if len(parts) == 1 else repr(self)


def look(box: Box, service: str) -> Seen:
    """Look at the files and the process of a service; one that is not there is as old as can be."""
    unit_file, environment, process, invocation = box.console(LOOK, service).splitlines()
    return Seen(unit_file != "0", environment != "0", process != "0", invocation)
