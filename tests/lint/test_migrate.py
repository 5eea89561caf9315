"""A profile is taken to another release by what SGLang says of its own flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.config import lintable
from fleetctl.engines.sglang import schema
from fleetctl.lint import lint_profile
from fleetctl.lint.migrate import plan, rewritten

HEAD = "# mine\nmodel: /m\nflags:\n"
CASES = {
    "a renamed flag keeps its value and its remark": (
        "0.5.23", "  cuda-graph-max-bs: 16  # keep\n", "  cuda-graph-max-bs-decode: 16  # keep\n"),
    "a switch becomes a value": (
        "0.5.15", "  disable-piecewise-cuda-graph: true\n", "  cuda-graph-backend-prefill: disabled\n"),
    "one becomes two": (
        "0.5.23", "  disable-cuda-graph: true\n",
        "  cuda-graph-backend-decode: disabled\n  cuda-graph-backend-prefill: disabled\n"),
    "a value is taken over from another flag": (
        "0.5.23", "  tp-size: 8\n  dp-size: 4  # four\n  enable-dp-attention: true\n",
        "  tp-size: 8\n  attn-dp-size: 4\n"),
    "renames are followed over several releases": (
        "0.5.23", "  nsa-decode-backend: fa3\n", "  dsa-decode-backend: fa3\n"),
    "a list stays a list": (
        "0.5.15", "  cuda-graph-bs: [1, 2]\n", "  cuda-graph-bs-decode: [1, 2]\n"),
    "what is gone without a successor goes": ("0.5.23", "  torchao-config: int4wo\n  page-size: 1\n", "  page-size: 1\n"),
    "what is fine stays": ("0.5.23", "  page-size:   1 # one\n", "  page-size:   1 # one\n"),
}  # fmt: skip
BY_HAND = {
    "a choice that is gone": ("0.5.23", "  attention-backend: cutlass_mla\n", "choose from"),
    "a flag of no release": ("0.5.23", "  ddtree-topk: 4\n", "see `fleetctl lint`"),
    "a flag from later": ("0.5.10", "  attn-dp-size: 4\n", "take it away"),
    "a flag that became a variable": ("0.5.15", "  enable-nan-detection: true\n", "set SGLANG_SPEC_NAN_DETECTION=1"),
    "the new name is there already": ("0.5.23", "  cuda-graph-max-bs: 16\n  cuda-graph-max-bs-decode: 32\n", "is set too"),
    "a list over several lines": ("0.5.15", "  cuda-graph-bs:\n    - 1\n", ""),
}  # fmt: skip


def migrated(folder: Path, version: str, body: str) -> tuple[str, list[str]]:
    path = folder / "one.yaml"
    path.write_text(HEAD + body)
    profile = lintable.profile(str(path))
    text, left = rewritten(HEAD + body, plan(profile, schema.load(version)))
    return text, [c.by_hand for c in left]


@pytest.mark.parametrize("name", CASES)
def test_rewritten(tmp_path: Path, name: str) -> None:
    version, before, after = CASES[name]
    assert migrated(tmp_path, version, before) == (HEAD + after, [])


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing_and_lint_has_no_error(tmp_path: Path, name: str) -> None:
    version, before, after = CASES[name]
    migrated(tmp_path, version, before)
    assert migrated(tmp_path, version, after) == (HEAD + after, [])
    profile = lintable.profile(str(tmp_path / "one.yaml"))
    ids = {f.id for f in lint_profile(profile, schema.load(version))}
    assert not ids & {"removed-flag", "unknown-flag", "deprecated-flag", "wrong-choice"}


@pytest.mark.parametrize("name", BY_HAND)
def test_left_to_a_person(tmp_path: Path, name: str) -> None:
    version, body, why = BY_HAND[name]
    text, left = migrated(tmp_path, version, body)
    assert text == HEAD + body
    assert len(left) == 1
    assert why in left[0]
