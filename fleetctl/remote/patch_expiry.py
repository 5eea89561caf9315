"""Patches that take themselves out: a systemd timer of the host, and the program that it runs.

Only for patches that say so (``at_expiry = "revert"``). Nothing is restarted: what runs keeps what it
loaded, and its next start has the original files. The timer is a function of the state, as the
drop-in is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from typing import Any

from fleetctl.remote import patch_store, places, shell
from fleetctl.remote.agent import AgentError

PROGRAM = places.LIB + "/expire-patches.py"
HEAD = '''"""Takes out the patches of a service whose time is over. Written by fleetctl; a timer runs it."""
import sys

SOURCES = {}
'''
TAIL = """

class Shipped:
    def find_spec(self, name, path=None, target=None):
        if name in ("fleetctl", "fleetctl.remote") or name in SOURCES:
            return type(sys.__spec__)(name, self, is_package=name not in SOURCES)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__spec__.name
        exec(compile(SOURCES.get(name, ""), "<" + name + ">", "exec"), module.__dict__)

    def get_source(self, name):
        return SOURCES.get(name)


sys.meta_path.insert(0, Shipped())
from fleetctl.remote import patch_expiry

sys.exit(patch_expiry.main(sys.argv[1:]))
"""


def unit_base(service: str) -> str:
    """Return the path of the timer's unit files without their ending."""
    return os.path.join(places.UNITS, "fleetctl-patches-" + places.safe_name(service))


def due(state: dict[str, Any]) -> float | None:
    """Return when the first patch that takes itself out has to go, None for never."""
    times = [p["expires_at"] for p in state["patches"] if p.get("at_expiry") == "revert"]
    return min(times) if times else None


def schedule(state: dict[str, Any]) -> None:
    """Make the timer what the state says. AgentError: timer-failed."""
    base, when = unit_base(state["service"]), due(state)
    name = os.path.basename(base) + ".timer"
    there = os.path.exists(base + ".timer")
    if when is None:
        if there:
            shell.run(("systemctl", "--no-ask-password", "disable", "--now", "--", name))
            for ending in (".timer", ".service"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(base + ending)
            shell.run(("systemctl", "daemon-reload"), 60.0)
        return
    text = _timer(state["service"], max(when, time.time() + 1.0)).encode()
    if there and patch_store.read(base + ".timer") == text:
        return
    os.makedirs(places.LIB, exist_ok=True)
    os.makedirs(places.UNITS, exist_ok=True)
    patch_store.put(PROGRAM, program().encode("utf-8"), 0o644)
    patch_store.put(base + ".service", _service(state["service"]).encode(), 0o644)
    patch_store.put(base + ".timer", text, 0o644)
    shell.must(("systemctl", "daemon-reload"), "timer-failed", 60.0)
    shell.must(("systemctl", "--no-ask-password", "enable", "--", name), "timer-failed")
    shell.must(("systemctl", "--no-ask-password", "restart", "--", name), "timer-failed")


def _timer(service: str, when: float) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))
    return (
        "# Written by fleetctl.\n[Unit]\nDescription=End of the patches of %s\n"
        "[Timer]\nOnCalendar=%s\nPersistent=true\nAccuracySec=1s\n"
        "[Install]\nWantedBy=timers.target\n" % (service.replace("%", "%%"), stamp)
    )


def _service(service: str) -> str:
    # Restart=: somebody may hold the lock of the service just then.
    return (
        "# Written by fleetctl.\n[Unit]\nDescription=Take out expired patches of %s\n"
        "StartLimitIntervalSec=0\n[Service]\nType=oneshot\nRestart=on-failure\nRestartSec=30s\n"
        "ExecStart=%s %s %s\n" % (
            service.replace("%", "%%"), sys.executable, PROGRAM, service.replace("%", "%%"),
        )
    )  # fmt: skip


def program() -> str:
    """Return this module and all that it needs as one program."""
    for name in ("patching", "patch_proof", "patch_place"):  # imported where they are needed
        importlib.import_module("fleetctl.remote." + name)
    parts = [HEAD]
    for name, module in sorted(sys.modules.items()):
        if name.startswith("fleetctl.remote.") and module.__spec__ is not None:
            source = module.__spec__.loader.get_source(name)  # type: ignore[union-attr]
            parts.append("\nSOURCES[%r] = %r\n" % (name, source))
    return "".join(parts) + TAIL


def main(argv: list[str]) -> int:
    """Take out what is over; return 0, or 75 (try again) when somebody holds the lock."""
    service = argv[0]
    try:
        state = patch_store.load(service)
        if state is None:
            return 0
        names = [
            p["name"]
            for p in state["patches"]
            if p.get("at_expiry") == "revert" and p["expires_at"] <= time.time() + 1.0
        ]
        if names:
            lock = {"token": "expiry-%d" % os.getpid(), "who": "fleetctl timer", "why": "expired"}
            patching = importlib.import_module("fleetctl.remote.patching")
            args = {"service": service, "unit": state["unit"], "names": names, "lock": lock}
            print("fleetctl: reverted %s" % ", ".join(patching.revert(args)["reverted"]))
        return 0
    except AgentError as error:
        print("fleetctl: %s: %s" % (error.fields["reference"], error.fields["message"]))
        return 75 if error.fields["reference"] == "locked" else 1
