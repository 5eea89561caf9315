"""A log means the same in every form: the label, the crash and the root do not change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.model.triage import Triage
from fleetctl.triage import triage_path, triage_text
from tests.triage.forms import PACKED, TEXT_FORMS
from tests.triage.score import SETS, Case, cases, judge

OPEN = list(cases(SETS["open"]))
FEW = OPEN[::9]


def wrong(case: Case, found: Triage) -> list[str]:
    marks = judge(case, found)
    return [k for k in ("label", "crash", "root message") if not marks.get(k, True)]


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_gives_the_same_answer(form: str) -> None:
    differ = {}
    for case in OPEN:
        text = case.path.read_bytes().decode("utf-8", "replace")
        bad = wrong(case, triage_text(TEXT_FORMS[form](text)))
        if bad:
            differ[case.path.name] = bad
    assert differ == {}


@pytest.mark.parametrize("packing", PACKED)
def test_compressed_logs_are_read_from_bytes_and_from_files(packing: str, tmp_path: Path) -> None:
    for case in FEW:
        data = PACKED[packing](case.path.read_bytes())
        path = tmp_path / f"{case.path.name}.{packing}"
        path.write_bytes(data)
        assert triage_text(data) == triage_path(path)
        assert wrong(case, triage_path(path)) == []


def test_the_line_is_that_of_the_decompressed_text() -> None:
    case = next(c for c in OPEN if c.path.name == "011.log")
    lines = case.path.read_text("utf-8").split("\n")
    found = triage_text(PACKED["gz"](case.path.read_bytes()))
    assert found.root is not None
    assert lines[found.root.line - 1].startswith("torch.AcceleratorError: CUDA error")


def test_the_line_is_the_record_number_in_json_and_export() -> None:
    case = next(c for c in OPEN if c.path.name == "011.log")
    text = case.path.read_text("utf-8")
    plain = triage_path(case.path).root
    assert plain is not None
    for form in ("journal-json", "journal-export"):
        root = triage_text(TEXT_FORMS[form](text)).root
        assert root is not None
        assert root.line == plain.line


def test_json_records_are_put_in_the_order_of_their_cursors() -> None:
    case = next(c for c in OPEN if c.path.name == "022.log")
    rows = TEXT_FORMS["journal-json"](case.path.read_text("utf-8")).splitlines()
    shuffled = b"\n".join(rows[1::2] + rows[::2])
    assert wrong(case, triage_text(shuffled)) == []


def test_a_message_that_journald_cut_at_its_line_limit_is_joined() -> None:
    rows = [
        {
            "MESSAGE": "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):"
        },
        {"MESSAGE": "RuntimeError: CUDA error: an illegal mem", "_LINE_BREAK": "line-max"},
        {"MESSAGE": "ory access was encountered"},
    ]
    base = {"_PID": "7", "_TRANSPORT": "stdout", "_STREAM_ID": "a"}
    data = "\n".join(
        json.dumps({"__CURSOR": f"s=a;i={n};b=c", **base, **row}) for n, row in enumerate(rows, 1)
    )
    assert triage_text(data.encode()).label == "illegal-memory-access"


def test_messages_that_journald_suppressed_are_counted_and_weaken_the_verdict() -> None:
    case = next(c for c in OPEN if c.path.name == "011.log")
    text = case.path.read_text("utf-8")
    notice = (
        "Nov 26 04:10:10 h systemd-journald[99]: Suppressed 4711 messages from sglang.service\n"
    )
    found = triage_text((notice + text).encode())
    assert found.coverage.suppressed_messages == 4711
    assert (found.verdict, triage_text(text.encode()).verdict) == ("supported", "established")


def test_processes_that_share_a_journal_are_told_apart_by_their_pid() -> None:
    """Two ranks write line by line in turn; their tracebacks do not mix."""
    one = (
        "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/site-packages/sglang/srt/models/a.py", line 1, in forward',
        "    a = b.c",
        "AttributeError: 'NoneType' object has no attribute 'c'",
    )
    two = (
        "[2026-01-01 00:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 9, in broadcast',
        "    work.wait()",
        "RuntimeError: [/gloo/transport/tcp/pair.cc:537] Connection closed by peer [10.0.0.4]:33120",
    )
    rows = [
        f"Jan 01 00:00:00 h python3[{pid}]: {line}"
        for pair in zip(two, one, strict=True)
        for pid, line in zip((11, 10), pair, strict=True)
    ]
    found = triage_text("\n".join(rows).encode())
    assert found.root is not None
    assert (found.label, found.root.ranks) == ("code-bug", ("TP0",))
    assert [f.module for f in found.root.frames] == ["sglang.srt.models.a"]
