"""An operator with a site and a state folder of their own, who uses the command line as people do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.lab.box import Box

PROFILES = Path(__file__).parents[2] / "inventories" / "lab" / "profiles"


@dataclass(frozen=True)
class Done:
    """What one command left."""

    rc: int
    out: str
    err: str
    seconds: float

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON lines of standard output."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    @property
    def result(self) -> dict[str, Any]:
        """The last ``result`` event."""
        return [e for e in self.events if e["event"] == "result"][-1]

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of that name."""
        return [e for e in self.events if e["event"] == name]


@dataclass
class Operator:
    """Runs ``fleetctl`` against lab hosts."""

    folder: Path
    hosts: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The state folder: incident log, bundles, audit."""
        return self.folder / "home"

    def add(self, box: Box, name: str = "", **settings: Any) -> str:
        """Put a host into the inventory and return its name there."""
        target = box.target()
        name = name or box.name
        self.hosts[name] = {
            "address": target.address, "user": target.user, "become": target.become,
            "key": target.key, "known_hosts": target.known_hosts,
        } | settings  # fmt: skip
        site = self.folder / "site"
        site.mkdir(parents=True, exist_ok=True)
        (site / "hosts.yaml").write_text(json.dumps({"hosts": self.hosts}))
        if not (site / "profiles").exists():
            shutil.copytree(PROFILES, site / "profiles")
        return name

    def profile(self, name: str, text: str) -> None:
        """Write a profile."""
        (self.folder / "site" / "profiles" / f"{name}.yaml").write_text(text)

    def popen(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        env = os.environ | {
            "FLEETCTL_SITE": str(self.folder / "site"), "FLEETCTL_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=env,
        )  # fmt: skip

    def run(self, *words: str, timeout: float = 240.0) -> Done:
        """Run a command to its end."""
        began = time.monotonic()
        process = self.popen(*words)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"no end after {timeout} s\n{out}\n{err}") from None
        return Done(process.returncode, out, err, time.monotonic() - began)

    def deploy(self, host: str, profile: str, *more: str, timeout: float = 240.0) -> Done:
        """Deploy with JSON lines and without questions."""
        words = ("deploy", host, "-p", profile, "--json", "--yes", *more)
        return self.run(*words, timeout=timeout)

    def until(
        self,
        words: tuple[str, ...],
        when: Callable[[dict[str, Any]], bool],
        then: Callable[[subprocess.Popen[str]], None],
        timeout: float = 240.0,
    ) -> Done:
        """Run a command and do something the moment that an event comes, then let it end."""
        began = time.monotonic()
        process = self.popen(*words)
        assert process.stdout is not None
        assert process.stderr is not None
        errors: list[str] = []
        drain = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        drain.start()
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, give_up)
        timer.start()
        lines, did = [], False
        for line in process.stdout:
            lines.append(line)
            if not did and when(json.loads(line)):
                did = True
                then(process)
        rc = process.wait()
        timer.cancel()
        drain.join(5.0)
        process.stdout.close()
        process.stderr.close()
        said = "".join(lines) + "".join(errors)
        assert not late.is_set(), f"no end after {timeout} s\n{said}"
        assert did, said
        return Done(rc, "".join(lines), "".join(errors), time.monotonic() - began)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C."""
    process.send_signal(signal.SIGINT)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the client."""
    process.kill()


def unit_state(box: Box, unit: str = "sglang-main.service") -> dict[str, str]:
    """A few properties of the unit, read without fleetctl."""
    names = "ActiveState,SubState,Result,InvocationID,NRestarts"
    text = box.console(f"systemctl show -p {names} {unit}")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def leftovers(box: Box) -> str:
    """Temporary files and locks of fleetctl that are still on the host."""
    return box.console(
        "find /etc/systemd /etc/fleetctl /var/lib/fleetctl -name '.fleetctl-*' -o -name '.new-*'"
        " 2>/dev/null; ls /run/fleetctl/lock.d 2>/dev/null; true"
    )
