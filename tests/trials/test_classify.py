"""What a launch says of the hunted crash. A new case is an entry of cases/outcomes.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.bisect.model import Outcome
from fleetctl.bisect.state import Hunted
from fleetctl.trials.classify import hunted_by, judge, sign_of

CASES = json.loads((Path(__file__).parent / "cases" / "outcomes.json").read_text())
HUNTED = Hunted("v1:hunted", "boom", "cublas-capture", "graph-capture")


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_an_outcome(case: dict[str, Any]) -> None:
    judged = judge(case["result"], HUNTED)
    assert (judged.outcome.value, judged.phase) == (case["outcome"], case["phase"])
    if judged.outcome is Outcome.OTHER:
        assert judged.signature
        assert judged.fingerprint


def test_the_first_failure_of_the_bad_end_is_what_is_hunted_also_a_hang() -> None:
    result = {"state": "hung", "error": "silent", "phase": "dist-init", "triage": None}
    judged = judge(result, None)
    assert judged.outcome is Outcome.SAME
    hunted = hunted_by(judged, "sign")
    assert judge(result, hunted).outcome is Outcome.SAME
    elsewhere = result | {"phase": "warmup"}
    assert judge(elsewhere, hunted).outcome is Outcome.OTHER


def test_the_hosts_fault_is_not_hunted_by_its_first_sighting() -> None:
    triage = {"fingerprint": "v1:xid", "signature": "Xid 79", "label": "gpu-hw-fault"}
    result = {"state": "failed-start", "error": "crashed", "phase": "weight-load", "triage": triage}
    assert judge(result, None).outcome is Outcome.INFRA


def test_a_first_line_is_compared_without_what_differs_from_run_to_run() -> None:
    one = {
        "exception_type": "E",
        "function": "f",
        "message": "at 0x7ffe12 rank 3 of 8",
        "file_line": 7,
    }
    other = {
        "exception_type": "E",
        "function": "f",
        "message": "at 0x7aaa99 rank 5 of 8",
        "file_line": 9,
    }
    assert sign_of(one) == sign_of(other) != ""
    assert sign_of(one) != sign_of(other | {"function": "g"})
    assert sign_of(None) == sign_of({}) == ""
