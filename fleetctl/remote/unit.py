"""systemd units: their state, and the few verbs that change it."""

from __future__ import annotations

import os
import re
from typing import Any, Sequence

from fleetctl.remote import bus, records, shell
from fleetctl.remote.agent import AgentError

PATIENCE = 5.0  # seconds for what systemd is asked for, before it is asked whether it is there
PING = 10.0  # … for a word of PID 1
SILENT = 30.0  # … without which it hangs: a reload of very many units keeps it busy for some

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
    "NRestarts",
    "InvocationID",
    "NeedDaemonReload",
    "FragmentPath",
    "UnitFileState",
    "DropInPaths",
    "ActiveEnterTimestampMonotonic",
    "InactiveEnterTimestampMonotonic",
    "ControlGroup",
    "Restart",
    "User",
    "StandardOutput",
)


def systemctl(*args: str, timeout: float = 20.0) -> shell.Done:
    """Run systemctl and return what it left."""
    return shell.run(("systemctl", "--no-pager", "--no-ask-password", *args), timeout)


_version: list[int | None] = []


def version() -> int | None:
    """Return systemd's major version, None when it is not what runs this host. Asked once."""
    if not _version:
        said = ""
        if os.path.isdir("/run/systemd/system"):
            said = bus.version() or systemctl("--version").out.partition("systemd ")[2]
        number = re.match(r"\d+", said)
        _version.append(int(number.group()) if number else None)
    return _version[0]


def show(unit: str, properties: Sequence[str] = PROPERTIES) -> dict[str, str]:
    """Return properties of one unit by systemd's names; empty when systemd does not answer."""
    found = bus.show(unit, properties, timeout=10.0)
    if found is not None:
        return found
    done = systemctl("show", "-p", ",".join(properties), "--", unit, timeout=10.0)
    return parse(done.out) if done.rc == 0 else {}


def must_show(unit: str, properties: Sequence[str] = PROPERTIES) -> dict[str, str]:
    """Return the properties of a unit. AgentError ``systemd-silent`` when systemd does not answer."""
    props = show(unit, properties)
    if not props and os.path.isdir("/run/systemd/system"):
        raise silent("systemctl show %s" % unit, unit)
    return props


def silent(asked: str, where: str = "") -> AgentError:
    """Return the fault of a systemd that does not answer."""
    return AgentError(
        "systemd-silent",
        "%s gave no answer" % asked,
        where=where,
        hint="PID 1 or D-Bus hangs there: `systemctl` by hand says the same; a reboot may be needed",
    )


def must(args: Sequence[str], reference: str, hint: str = "", timeout: float = 3600.0) -> str:
    """Run systemctl for as long as systemd answers at all, and return its output.

    AgentError: that reference when it says no, ``systemd-silent`` when PID 1 no longer answers.
    """
    argv = ("systemctl", "--no-ask-password", *args)
    done = shell.insist(argv, _answers, PATIENCE, timeout)
    if done is None:
        raise silent(" ".join(argv), args[-1])
    return shell.checked(done, argv, reference, hint)


def _answers() -> bool:
    return systemctl("show", "-p", "Version", timeout=PING).rc == 0


def parse(text: str) -> dict[str, str]:
    """Return ``KEY=VALUE`` lines as a mapping; a value may hold further equal signs."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, mark, value in pairs if mark}


def reload_units() -> None:
    """Make systemd read its unit files again. AgentError: daemon-reload-failed, systemd-silent."""
    must(("daemon-reload",), "daemon-reload-failed")


def start(unit: str, restart: bool = False) -> str:
    """Start or restart a unit and return the new invocation's id. AgentError: start-failed, systemd-silent."""
    verb = "restart" if restart else "start"
    must((verb, "--", unit), "start-failed", "systemctl status %s says more" % unit)
    return show(unit, ("InvocationID",)).get("InvocationID", "")


def stop(unit: str, reason: str, by: str, timeout: float) -> dict[str, Any]:
    """Stop a unit on purpose, writing the wish down first. AgentError: stop-failed, systemd-silent.

    SGLang ends even a clean stop with SIGKILL on itself, so systemd calls it failed: that is forgotten.
    """
    before = show(unit)
    invocation = before.get("InvocationID", "")
    if invocation:
        records.ask_stop(unit, invocation, reason, by)
    must(("stop", "--", unit), "stop-failed", timeout=timeout)
    reset_failed(unit)
    after = show(unit, ("ActiveState", "SubState", "Result"))
    return {
        "unit": unit,
        "invocation_id": invocation,
        "was": before.get("ActiveState", "inactive"),
        "now": after.get("ActiveState", ""),
    }


def reset_failed(unit: str) -> None:
    """Forget the failed state and the start counter; no fault when there is nothing to forget."""
    if not bus.reset_failed(unit):
        systemctl("reset-failed", "--", unit)


def going_down() -> bool:
    """Return whether the whole host is shutting down or rebooting."""
    return systemctl("is-system-running", timeout=3.0).out.strip() == "stopping"


def _show(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"units": {u: show(u) for u in args.get("units", ())}}


VERBS = {"show": _show}
