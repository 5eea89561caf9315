"""systemd units: their state, and the few verbs that change it."""

from __future__ import annotations

import os
from typing import Any, Sequence

from fleetctl.remote import records, shell
from fleetctl.remote.agent import AgentError

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


def show(unit: str, properties: Sequence[str] = PROPERTIES) -> dict[str, str]:
    """Return properties of one unit by systemd's names; empty when systemd does not answer."""
    done = systemctl("show", "-p", ",".join(properties), "--", unit, timeout=10.0)
    return parse(done.out) if done.rc == 0 else {}


def must_show(unit: str) -> dict[str, str]:
    """Return the properties of a unit. AgentError ``systemd-silent`` when systemd does not answer."""
    props = show(unit)
    if not props and os.path.isdir("/run/systemd/system"):
        raise AgentError(
            "systemd-silent",
            "systemctl show %s gave no answer" % unit,
            where=unit,
            hint="PID 1 or D-Bus hangs there: `systemctl` by hand says the same; a reboot may be needed",
        )
    return props


def parse(text: str) -> dict[str, str]:
    """Return ``KEY=VALUE`` lines as a mapping; a value may hold further equal signs."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, mark, value in pairs if mark}


def reload_units() -> None:
    """Make systemd read its unit files again. AgentError: daemon-reload-failed."""
    shell.must(("systemctl", "daemon-reload"), "daemon-reload-failed", timeout=60.0)


def start(unit: str, restart: bool = False) -> str:
    """Start or restart a unit and return the new invocation's id. AgentError: start-failed."""
    verb = "restart" if restart else "start"
    shell.must(
        ("systemctl", "--no-ask-password", verb, "--", unit),
        "start-failed",
        timeout=3600.0,
        hint="systemctl status %s says more" % unit,
    )
    return show(unit, ("InvocationID",)).get("InvocationID", "")


def stop(unit: str, reason: str, by: str, timeout: float) -> dict[str, Any]:
    """Stop a unit on purpose, writing the wish down first. AgentError: stop-failed.

    SGLang ends even a clean stop with SIGKILL on itself, so systemd calls it failed: that is forgotten.
    """
    before = show(unit)
    invocation = before.get("InvocationID", "")
    if invocation:
        records.ask_stop(unit, invocation, reason, by)
    shell.must(("systemctl", "--no-ask-password", "stop", "--", unit), "stop-failed", timeout)
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
    systemctl("reset-failed", "--", unit)


def going_down() -> bool:
    """Return whether the whole host is shutting down or rebooting."""
    return systemctl("is-system-running", timeout=3.0).out.strip() == "stopping"


def _show(args: dict[str, Any], _session: Any) -> dict[str, Any]:
    return {"units": {u: show(u) for u in args.get("units", ())}}


VERBS = {"show": _show}
