"""The benches' own arithmetic; what they measure is not tested here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import harness
from tests.bench.harness import Report, Sample
from tests.bench.run import BENCHES


def sample(wall: float, cpu: float = 1.0, **more: float) -> Sample:
    return Sample(wall, cpu, more.get("server", 0.0), 0.0, True, others=more.get("others", 0.0))


def test_a_goal_that_was_not_measured_is_neither_passed_nor_missed() -> None:
    report = Report("x")
    report.goal("a", 1.0, 1.0)
    report.goal("b", 1.0, 1.01)
    report.goal("c", 1.0, None, why="not installed")
    assert [g.verdict for g in report.goals] == ["pass", "FAIL", "not measured"]
    assert "not measured (not installed)" in report.text()


def test_a_ratio_pairs_the_runs_of_a_round() -> None:
    ours, theirs = [sample(1), sample(30), sample(2)], [sample(2), sample(60), sample(4)]
    assert harness.ratio(ours, theirs) == 0.5


def test_a_ratio_of_unequal_rounds_is_that_of_the_medians() -> None:
    assert harness.ratio([sample(1), sample(2), sample(9)], [sample(4)]) == 0.5


def test_the_floor_leaves_out_what_others_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "CORES", 2)
    assert sample(1.0, 1.0, server=1.0).floor_ratio == 1.0
    assert sample(2.0, 1.0, server=1.0, others=2.0).floor_ratio == 1.0
    assert sample(2.0, 1.0, server=1.0).floor_ratio == 2.0


def test_a_program_s_children_count_and_its_output_is_checked() -> None:
    argv = [sys.executable, "-c", "import subprocess; subprocess.run(['sh', '-c', 'echo child'])"]
    good = harness.run_once(argv, check=lambda said: said == "child\n")
    assert good.ok
    assert good.cpu > 0
    assert not harness.run_once(argv, check=lambda said: said == "other").ok
    assert not harness.run_once(["false"]).ok


def test_what_a_program_leaves_running_is_ended_and_nothing_else() -> None:
    with subprocess.Popen(["sleep", "302"]) as mine:
        harness.run_once(["sh", "-c", "setsid -f sleep 301"])
        assert [p for p in harness.descendants(1) if "301" in _words(p)] == []
        assert mine.poll() is None  # what was there before stays
        mine.kill()


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def test_a_report_is_kept_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "OUT", tmp_path)
    report = Report("x")
    report.goal("a", 1.0, 0.5, "peer")
    body = json.loads(report.save().read_text())
    assert body["schema"] == "fleetctl.bench/1"
    assert body["goals"][0]["verdict"] == "pass"
    assert body["machine"]["cores"] > 0


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_of_the_table_is_there(name: str) -> None:
    module, _, function = BENCHES[name].place.partition(":")
    text = Path(__file__).parent.joinpath(module.rpartition(".")[2] + ".py").read_text()
    assert f"def {function}(options: Options) -> Report:" in text
