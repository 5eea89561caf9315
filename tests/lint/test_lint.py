"""Each profile in ``cases/`` says at its end what it is held against and which findings it has."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.config import lintable
from fleetctl.engines.sglang import history, schema
from fleetctl.lint import Finding, ModelFacts, allowances, lint_profile, settle, void
from fleetctl.lint import flags as lint_flags

CASES = Path(__file__).parent / "cases"


def check(path: Path, **more: Any) -> list[Finding]:
    head, _, options = re.search(
        r"^# against: (\S+)( ?)(.*)$", path.read_text(), re.MULTILINE
    ).groups()  # type: ignore[union-attr]  # every case has it
    asked = dict(o.split("=") for o in options.split())
    flags = schema.load(head)
    if "origin" in asked:
        flags = dataclasses.replace(flags, origin=asked["origin"])
    context: dict[str, Any] = {}
    if "gpus" in asked:
        context["gpus"] = int(asked["gpus"])
    if "multicast" in asked:
        context["multicast"] = asked["multicast"] == "yes"
    if "model" in asked:
        body = json.loads((CASES / f"{asked['model']}.json").read_text())
        context["model"] = ModelFacts(body, body.pop("weights", None), "/m")
    if "gpu_memory" in asked:
        context["gpu_memory"] = int(asked["gpu_memory"]) * 1024**3
    profile = lintable.profile(str(path))
    texts = lintable.texts([profile])
    found = [*lint_profile(profile, flags, **context), *void(texts)]
    allowed = {p: allowances(t) for p, t in texts.items()}
    return settle(found, allowed=allowed, **more)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    wanted = re.findall(r"^# expect: (.*)$", path.read_text(), re.MULTILINE)
    assert [f"{f.id} {f.severity} {f.line}" for f in check(path)] == wanted


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_finding_says_where_and_how_to_go_on(path: Path) -> None:
    for finding in check(path):
        body = finding.to_json()
        assert finding.fault or body["override"].startswith(f"--no-lint={finding.id}")
        assert finding.message
        assert finding.line >= 1
        assert Path(body["file"]).name == path.name


def test_strict_makes_warnings_errors_and_leaves_remarks_alone() -> None:
    found = check(CASES / "abbreviated.yaml", strict=True)
    assert [str(f.severity) for f in found] == ["error"]
    assert [str(f.severity) for f in check(CASES / "idle-gpus.yaml", strict=True)] == ["info"]


def test_an_override_takes_one_finding_away() -> None:
    assert check(CASES / "mistyped.yaml", no_lint=["unknown-flag"]) == []
    assert check(CASES / "mistyped.yaml", no_lint=["wrong-value"]) != []


HINTS = {
    "mistyped": "did you mean --enable-nccl-nvls?",
    "underscore-removed-in-023": "use --cuda-graph-max-bs-decode instead",
    "deprecated-in-015": "use --cuda-graph-max-bs-decode instead",
    "dp-attention-023": "use --attn-dp-size <dp-size> instead",
    "env-deprecated": "use SGLANG_LOG_GC instead",
    "env-mistyped": "did you mean SGLANG_ENABLE_TORCH_COMPILE?",
    "human-size": "it wants a whole number, as in 8192, 8k or 8Ki",
    "wrong-type": "it wants a whole number",
    "model-experts": "with ep 8: ep-num-redundant-experts 4, or another ep-size",
}


@pytest.mark.parametrize("name", HINTS)
def test_the_hint_names_what_to_write(name: str) -> None:
    assert check(CASES / f"{name}.yaml")[0].hint == HINTS[name]


def test_the_memory_estimate_shows_its_arithmetic() -> None:
    [found] = check(CASES / "model-kv-too-small.yaml")
    # 24 GiB × 0.72 - 16 GiB = 1.28 GiB; 32 layers × 2 × 8 heads × 128 × 2 bytes = 128 KiB a token
    assert "16.0 GiB / (tp 1 × pp 1) = 16.0 GiB a GPU" in found.message
    assert "24.0 GiB × 0.72 = 17.3 GiB" in found.message
    assert "128.0 KiB a token" in found.message
    assert "10485 tokens" in found.message


def test_what_is_left_for_graphs_is_held_against_sglang_s_own_estimate() -> None:
    [found] = check(CASES / "model-rest-too-small.yaml")
    # 512 + 8192 × 1.5 + 512 × 2 + 1 × 1 / 8 × 1024 = 13952 MiB; 80 GiB × 0.05 = 4 GiB
    assert "leaves 4.0 GiB of 80.0 GiB" in found.message
    assert "512 + 8192 × 1.5 + 512 × 2 + 128 MiB = 13.6 GiB" in found.message
    assert found.hint.startswith("at most 0.83")


def test_a_flag_that_a_prefix_now_stands_for_is_told() -> None:
    """0.5.23 takes a removed name for the only flag that begins so, in silence."""
    from fleetctl.engines.sglang import history

    flags = schema.load("0.5.23")
    stolen = [
        n for n in schema.load("0.5.12.post1").flags
        if n not in flags.flags and len(flags.prefixed(n)) == 1 and history.flag(n)
    ]  # fmt: skip
    for name in stolen:
        from fleetctl.model.fleet import Profile

        found = lint_profile(Profile("x", "/m", {name[2:]: "1"}), flags)
        assert "in silence" in " ".join(f.message for f in found if f.id == "removed-flag"), name


def test_a_ring_of_successors_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = {
        "--a": SimpleNamespace(use="--b"),
        "--b": SimpleNamespace(use="--c"),
        "--c": SimpleNamespace(use="--b"),
    }
    monkeypatch.setattr(history, "flag", ring.get)
    assert lint_flags.successor(schema.load("0.5.23"), "--a") is None
