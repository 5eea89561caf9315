"""Invocations whose host went down under them: no crash of theirs, and the journal has no end for them."""

from __future__ import annotations

from typing import Any

from fleetctl.remote import journal, records, shell, spool

OUTCOME = "host-down"  # of a launch

# systemd's MESSAGE_IDs (systemd/sd-messages.h).
STARTS = ("7d4958e842da4a758f6c1cdc7b36dcc5", "39f53479d3a045ac8e11786248231fbf")
EXITED = "98e322203f7a4ed290d09fe03c09fe15"
ENDS = (
    EXITED,
    "d9b373ed55a64feb8242e02dbe79a49c",  # failed with a result
    "7ad2d189f7e94e70a38c781354912448",  # deactivated successfully
    "9d1aaa27d60140bd96365438aad20286",  # stopped
)


def cut_off(unit_name: str, since: float) -> dict[str, float]:
    """Return the invocations that ran when their host went down: invocation → when that was.

    The journal of an earlier boot has their start and no end, where there was no time for one.
    """
    argv = [
        "journalctl", "-q", "--no-pager", "-o", "json",
        "--output-fields=INVOCATION_ID,MESSAGE_ID,_BOOT_ID",
        *("MESSAGE_ID=" + m for m in (*STARTS, *ENDS)), "UNIT=" + unit_name,
    ]  # fmt: skip
    running: dict[str, str] = {}
    for line in journal.read(argv, 15.0, 16 << 20):
        record = journal.parse(line) or {}
        invocation = str(record.get("INVOCATION_ID") or "")
        if record.get("MESSAGE_ID") in STARTS:
            running[invocation] = str(record.get("_BOOT_ID") or "")
        else:
            running.pop(invocation, None)
    now = records.boot_id()
    lost = {i: end_of_boot(boot) for i, boot in running.items() if boot not in ("", now)}
    return {invocation: at for invocation, at in lost.items() if at >= since}


def took(invocation: str) -> bool:
    """Return whether an invocation of an earlier boot ended with its host, not before that by itself."""
    argv = [
        "journalctl", "-q", "--no-pager", "-n", "1", "-o", "json",
        "MESSAGE_ID=" + EXITED, "INVOCATION_ID=" + invocation,
    ]  # fmt: skip
    ended = bool(shell.run(argv, timeout=5.0).out.strip())
    return not ended or spool.asked_by_journal(invocation)


def keep(service: str, unit_name: str, invocation: str, at: float | None = None) -> dict[str, Any]:
    """Freeze the evidence of an invocation that ended with its host, and write down what became of it.

    ``at``: when that was; without it the journal is asked.
    """
    if at is None:
        at = end_of_boot(_boot_of(invocation)) or None
    launch = records.last_launch(service, invocation=invocation)
    if launch is not None:
        changes = {"outcome": OUTCOME, "ended_at": records.rfc3339(at) if at else records.now()}
        records.update_launch(service, launch["id"], changes)
    return spool.freeze(service, unit_name, invocation, at=at, host_down=True)


def _boot_of(invocation: str) -> str:
    for line in journal.read(journal.command(invocation, "-n", "1"), 5.0, 1 << 20):
        return str((journal.parse(line) or {}).get("_BOOT_ID") or "")
    return ""


def end_of_boot(boot: str) -> float:
    """Return when the last record of a boot was written (seconds since 1970), 0.0 for one not kept."""
    if not boot:
        return 0.0
    argv = ("journalctl", "-q", "--no-pager", "-n", "1", "-o", "json", "_BOOT_ID=" + boot)
    record = journal.parse(shell.run(argv, timeout=10.0).out.encode()) or {}
    return int(record.get("__REALTIME_TIMESTAMP") or 0) / 1e6
