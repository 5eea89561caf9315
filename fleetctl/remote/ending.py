"""The collector of ``ExecStopPost=``: what is written down, and kept, when a service ends.

As a program (``--service S --unit U``) it keeps the bundle of $INVOCATION_ID before systemd restarts the
service, and with ``--undo S`` it ends at a boot what a deploy had begun. It always ends with 0: evidence
must never be what breaks a restart. A stop that was asked for is every restart's way: it loads what it
needs to say so, and no more.
"""

from __future__ import annotations

import os

from fleetctl.remote import places, records

PURPOSE = "stopped on purpose, no evidence needed"


def main(argv: list[str]) -> int:
    """Keep the evidence of the invocation that systemd has just ended."""
    options = dict(zip(argv[::2], argv[1::2]))
    invocation = os.environ.get("INVOCATION_ID", "")
    service, unit_name = options.get("--service", ""), options.get("--unit", "")
    try:
        if "--undo" in options:
            from fleetctl.remote import undo

            undo.repair(places.safe_name(options["--undo"]))
            return 0
        places.safe_name(service)
        if invocation and unit_name:
            print("fleetctl: " + collect(service, unit_name, invocation), flush=True)
    except Exception as error:  # noqa: BLE001  whatever it is, the restart goes on
        print("fleetctl: no evidence kept: %s: %s" % (type(error).__name__, error), flush=True)
    return 0


def collect(service: str, unit_name: str, invocation: str) -> str:
    """Write the bundle of an end that nobody asked for; return a line that says what was done."""
    if records.asked_stop(invocation) is not None:
        _write_down(service, invocation, "stopped")
        return PURPOSE
    from fleetctl.remote import host_down, spool, unit

    if spool.asked_by_journal(invocation):
        _write_down(service, invocation, host_down.OUTCOME if unit.going_down() else "stopped")
        return PURPOSE
    _write_down(service, invocation)
    manifest = spool.freeze(service, unit_name, invocation)
    if "error" in manifest:
        return "no evidence kept: " + str(manifest["message"])
    return "evidence of %s kept in %s" % (invocation, spool.folder_of(service))


def _write_down(service: str, invocation: str, outcome: str = "") -> None:
    """Say in the launch's record how it ended; without an outcome, by how far it had come."""
    launch = records.last_launch(service, invocation=invocation)
    if launch is not None:
        failed = "crashed" if launch.get("outcome") == "ready" else "failed-start"
        changes = {"outcome": outcome or failed, "ended_at": records.now()}
        records.update_launch(service, launch["id"], changes)
