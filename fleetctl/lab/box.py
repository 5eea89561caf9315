"""One lab host as tests and demonstrations use it: ssh, console, HTTP, faults, scenario, a clean slate."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import FleetError
from fleetctl.lab import bed, faults, scenarios, state
from fleetctl.lab.faults import Order
from fleetctl.lab.state import Lab, LabHost
from fleetctl.model.fleet import Host

CLEAN = """\
for unit in $(systemctl list-units --all --plain --no-legend 'sglang*' 'fleetctl*' | cut -d' ' -f1); do
  systemctl kill -s KILL "$unit" 2>/dev/null; systemctl stop "$unit"; systemctl reset-failed "$unit"
done 2>/dev/null
rm -rf /etc/systemd/system/sglang* /run/systemd/system/sglang* /run/systemd/transient/sglang*
rm -rf /etc/systemd/system/fleetctl-* /etc/systemd/system/*.wants/fleetctl-*
rm -rf /etc/fleetctl /var/lib/fleetctl /run/fleetctl /etc/sglang-replay /run/sglang-replay*
systemctl daemon-reload
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A host of a lab, by name; what it is now is read each time."""

    lab_name: str
    name: str

    @property
    def lab(self) -> Lab:
        """Return the lab as it is now."""
        return state.require(self.lab_name)

    @property
    def host(self) -> LabHost:
        """Return the host as it is now."""
        return self.lab.host(self.name)

    @property
    def address(self) -> str:
        """Return the host's address."""
        return self.host.address

    def target(self, **changes: Any) -> Host:
        """Return the host as an inventory would have it (user ops, become sudo)."""
        lab = self.lab
        settings: dict[str, Any] = {
            "name": self.name,
            "address": self.address,
            "user": "ops",
            "become": "sudo",
            "key": str(lab.key),
            "known_hosts": str(lab.known_hosts),
        }
        return Host(**settings | changes)

    def ssh_argv(self, command: str, user: str = "ops") -> list[str]:
        """Return the command line of a plain ssh client for one command."""
        lab = self.lab
        options = {
            "IdentityFile": str(lab.key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(lab.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "BatchMode": "yes",
            "ConnectTimeout": "3",
        }
        words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return ["ssh", "-F", "/dev/null", *words, f"{user}@{self.address}", command]

    def ssh(
        self, command: str, user: str = "ops", timeout: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Run one command through a plain ssh client; subprocess.TimeoutExpired after ``timeout`` seconds."""
        return subprocess.run(
            self.ssh_argv(command, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def console(self, script: str, *words: str) -> str:
        """Run a shell script as root on the console (no network needed) and return what it printed."""
        return faults.inside(self.host, script, *words)

    def fault(self, name: str, **order: Any) -> None:
        """Make a fault; ``order`` as in faults.Order (port, path, size, percent, rate)."""
        faults.cause(self.lab, self.host, name, Order(**order))

    def heal(self) -> None:
        """Take back all faults; boot the host if it is off, and wait for its sshd."""
        faults.heal(self.lab, self.host)
        bed.up(self.lab_name, [self.host.spec])

    def scenario(self, named: str, speed: float | None = None) -> None:
        """Give a replay host a scenario: a shipped name or a file."""
        scenarios.give(self.lab, self.host, named, speed)

    def get(self, path: str, port: int = 30000, timeout: float = 25) -> tuple[int, str]:
        """Return status and body of a GET; status 0 where nothing answered."""
        return self._http(urllib.request.Request(self._url(path, port)), timeout)

    def post(self, path: str, body: str, port: int = 30000, timeout: float = 60) -> tuple[int, str]:
        """Return status and body of a POST with a JSON body; status 0 where nothing answered."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url(path, port), body.encode(), headers)
        return self._http(request, timeout)

    def _url(self, path: str, port: int) -> str:
        return f"http://{self.address}:{port}{path}"

    @staticmethod
    def _http(request: urllib.request.Request, timeout: float) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_until_healthy(
        self, seconds: float = 180, port: int = 30000, clock: Clock | None = None
    ) -> None:
        """Return once /health says 200; raise FleetError after so many seconds."""
        clock = clock or SystemClock()
        end = clock.monotonic() + seconds
        while self.get("/health", port)[0] != 200:
            if clock.monotonic() > end:
                raise FleetError(
                    "lab-not-healthy", f"no healthy server within {seconds:.0f} s", where=self.name
                )
            clock.sleep(0.2)

    def clean(self) -> None:
        """Stop the services and remove what a deployment left, the replay's scenario too."""
        self.console(CLEAN)
