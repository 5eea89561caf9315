"""Bundles of the real SGLang that failed on a real GPU, each in a way that is known (corpus/gpu)."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.triage import triage_bundle
from tests.triage.score import Case, cases, judge

GPU = Path(__file__).parent.parent / "corpus/gpu"
CASES = list(cases(GPU))
named = pytest.mark.parametrize("case", CASES, ids=[c.path.name for c in CASES])


def markers(case: Case) -> list[dict[str, Any]]:
    found = triage_bundle(case.path).captured.get("patch_markers", [])
    return [dict(marker) for marker in found]


@named
def test_label_phase_and_root_are_what_was_done_to_it(case: Case) -> None:
    found = triage_bundle(case.path)
    assert [what for what, right in judge(case, found).items() if not right] == []
    assert (found.root.step if found.root else None) == case.want["step"]


@named
def test_only_an_xid_of_the_service_itself_is_captured(case: Case) -> None:
    assert triage_bundle(case.path).captured.get("xid") == case.want["xid"]


@named
def test_what_patches_said_is_captured(case: Case) -> None:
    assert {m["patch"] for m in markers(case)} == set(case.want["markers"])
    if "field" in case.want:
        assert case.want["field"] in {m.get("field") for m in markers(case)}


def test_the_same_cause_is_one_group_and_different_ones_are_not() -> None:
    prints = [(c.want["group"], triage_bundle(c.path).fingerprint) for c in CASES]
    for (one, of_one), (other, of_other) in itertools.combinations(prints, 2):
        assert (one == other) == (of_one == of_other), (one, other)


def test_bundles_are_what_their_manifests_say() -> None:
    for case in CASES:
        files = json.loads((case.path / "manifest.json").read_text("utf-8"))["files"]
        sizes = {name: (case.path / name).stat().st_size for name in files}
        assert sizes == {name: said["bytes"] for name, said in files.items()}
