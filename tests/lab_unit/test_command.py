"""``fleetctl lab`` where no lab is up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.cli.app import run


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_LAB_STATE", str(tmp_path / "labs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FLEETCTL_LAB", raising=False)


def test_status_of_no_labs_is_an_empty_list_and_says_how_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["lab", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": "fleetctl.labs/1", "labs": []}
    assert run(["lab", "status"]) == 0
    assert "fleetctl lab up --host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "reference"),
    [
        (["status", "--name", "x"], 2, "no-lab"),
        (["exec", "a", "--", "true"], 2, "no-lab"),
        (["fault", "a", "kill"], 2, "no-lab"),
        (["scenario", "a"], 2, "no-lab"),
        (["up", "--host", "a=vllm"], 2, "unknown-engine"),
        (["up", "--host", "a", "--host", "a"], 2, "duplicate-host"),
        (["prepare", "sglang:9"], 2, "unknown-version"),
    ],
)
def test_a_fault_has_its_reference_and_exit_code(
    args: list[str], code: int, reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lab", *args]) == code
    assert f"error[{reference}]" in capsys.readouterr().err


def test_down_is_safe_to_repeat(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "down", "--name", "x"]) == 0
    assert capsys.readouterr().out == "no lab named x\n"
    assert run(["lab", "down", "--stale"]) == 0
    assert run(["lab", "down", "--all"]) == 0


def test_faults_are_listed_with_what_a_client_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "fault", "a"]) == 0
    text = capsys.readouterr().out
    assert "cable-out  connect times out" in text
    assert "disk-full" in text


def test_prepare_says_beforehand_what_it_would_fetch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "prepare", "--dry-run", "replay", "sglang:0.5.23"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "root file system of the hosts",
        "what SGLang needs on the CPU",
        "SGLang 0.5.23",
    ]
    assert all(" MB" in line for line in lines)


def test_prune_of_an_empty_cache_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "prune"]) == 0
    assert capsys.readouterr().out == "removed nothing\n"
