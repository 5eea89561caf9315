"""Which Xids of a kernel log belong to the invocation that a bundle is of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.model.triage import Triage
from fleetctl.triage import triage_bundle, triage_text

ERROR = (
    "[2026-01-01 00:05:00] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/site-packages/sglang/srt/layers/norm.py", line 7, in forward',
    "    go(self.weight.data)",
    "AttributeError: 'NoneType' object has no attribute 'data'",
    "[2026-01-01 00:05:01] Received sigquit from a child process. It usually means the child failed.",
)
MMU = "NVRM: Xid (PCI:0000:1b:00): 31, {who}Ch 00000012, intr 00000000. MMU Fault: ENGINE GRAPHICS"
LOST = "NVRM: Xid (PCI:0000:1b:00): 79, {who}GPU has fallen off the bus."
OURS, OTHERS, NOBODYS = "pid=42, name=python, ", "pid=4711, name=python, ", "pid='<unknown>', "
BEFORE, DURING = 50, 104


def bundle(folder: Path, xid: str, at: int, *, unit: str = "MainPID=0\nExecMainPID=41\n") -> Triage:
    """A bundle of an invocation with the processes 41 (main) and 42, which began at second 100."""
    journal = [
        {"MESSAGE": text, "_PID": "42", "__REALTIME_TIMESTAMP": str((100 + n) * 1_000_000)}
        for n, text in enumerate(ERROR)
    ]
    kernel = {
        "MESSAGE": xid,
        "_TRANSPORT": "kernel",
        "__REALTIME_TIMESTAMP": str(at * 1_000_000),
    }
    (folder / "manifest.json").write_text("{}")
    (folder / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in journal))
    (folder / "kernel.jsonl").write_text(json.dumps(kernel) + "\n")
    (folder / "unit.txt").write_text(unit)
    return triage_bundle(folder)


@pytest.mark.parametrize(
    ("xid", "at", "counts"),
    [
        (MMU.format(who=OURS), DURING, True),
        (MMU.format(who=OURS.replace("42", "41")), DURING, True),  # the main process says nothing
        (MMU.format(who=OTHERS), DURING, False),
        (MMU.format(who=OTHERS), BEFORE, False),
        (MMU.format(who=NOBODYS), DURING, True),
        (MMU.format(who=""), DURING, True),
        (LOST.format(who=NOBODYS), DURING, True),
        (LOST.format(who=""), DURING, True),
        # A card that is gone is gone for all: the pid is of whoever noticed.
        (LOST.format(who=OTHERS), DURING, True),
        (LOST.format(who=OTHERS), BEFORE, False),
    ],
)
def test_an_xid_counts_unless_it_is_of_another_process(
    tmp_path: Path, xid: str, at: int, counts: bool
) -> None:
    found = bundle(tmp_path, xid, at)
    assert ("xid" in found.captured) == counts
    assert (found.label == "code-bug") == (not counts)
    shown = {c.kind for c in found.cascades}
    assert ("xid-of-another-process" in shown) == (not counts)


def test_a_text_log_knows_no_pids_and_believes_the_driver() -> None:
    text = "\n".join([f"[  104.000001] {MMU.format(who=OTHERS)}", *ERROR])
    assert triage_text(text.encode()).captured["xid"] == "31"
