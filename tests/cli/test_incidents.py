"""``fleetctl incidents`` as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.cli.app import run
from fleetctl.incidents.store import open_store
from tests.incidents.samples import crash


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of the one incident in a log of its own."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    store = open_store(tmp_path / "incidents.db")
    one = crash("a" * 32, changed_since_ready=("+ep-size=8", "+enable-nccl-nvls"))
    store.record_occurrence(one)
    store.close()
    return one.id


def test_list_prints_the_documented_fields(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "list", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    wanted = {
        "id",
        "launch_id",
        "host",
        "service",
        "invocation_id",
        "label",
        "phase",
        "signature",
        "fingerprint",
        "count",
        "first_seen",
        "last_seen",
        "status",
    }
    assert wanted <= row.keys()
    assert row["id"] == log


def test_list_filters_by_host_label_and_time(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--host", "other"], ["--label", "other"], ["--since", "2026-12-01T00:00:00Z"]):
        assert run(["incidents", "list", "--json", *option]) == 0
        assert capsys.readouterr().out == ""


def test_a_bad_time_is_named(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "list", "--since", "yesterday"]) == 2
    assert "error[bad-time]" in capsys.readouterr().err


def test_show_tells_root_changes_and_next_step(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["incidents", "show", log]) == 0
    text = capsys.readouterr().out
    for part in (
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "ranks TP0, TP3",
        "2 atoms since",
        "$ fleetctl bisect-flags  # disruptive",
        "×8",
    ):
        assert part in text


def test_how_systemd_words_the_end_is_told_once_and_is_no_consequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    one = crash("b" * 32)
    one.triage["cascades"] += [
        {"line": 990 + n, "kind": kind, "message": "Failed with result 'signal'.", "count": 1}
        for n, kind in enumerate(("unit-ended", "unit-result", "unit-status"))
    ]
    one.triage["captured"] |= {
        "exit_kind": "killed",
        "exit_status": "9/KILL",
        "unit_result": "signal",
    }
    store = open_store(tmp_path / "incidents.db")
    store.record_occurrence(one)
    store.close()
    assert run(["incidents", "show", one.id]) == 0
    text = capsys.readouterr().out
    assert "  ended       killed, 9/KILL" in text
    assert "unit-" not in text
    assert "unit_result" not in text
    assert "followed by wrapper ×8" in text


def test_the_issue_text_names_no_host(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "show", log, "--format", "issue"]) == 0
    text = capsys.readouterr().out
    assert "b300-01" not in text
    assert "## Reproduction" in text


def test_what_is_said_shows_in_the_list(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["incidents", "resolve", log, "-m", "api-key sk-abcdefghijklmnopqrstuvwx removed"]) == 0
    )
    capsys.readouterr()
    assert run(["incidents", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "resolved"


def test_an_unknown_id_is_a_usage_error(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["incidents", "show", "i-nothing"]) == 2
    assert "fleetctl incidents list" in capsys.readouterr().err


def test_what_an_answer_without_a_crash_rests_on_is_not_called_its_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    one = crash("b" * 32)
    calm = one.triage | {"crash": False, "state": "stopped", "label": "graceful-shutdown"}
    store = open_store(tmp_path / "incidents.db")
    store.record_occurrence(replace(one, triage=calm))
    store.close()
    assert run(["incidents", "show", one.id]) == 0
    text = capsys.readouterr().out
    assert "  seen        RuntimeError" in text or "  seen        CUDA error" in text
    assert "  root  " not in text
