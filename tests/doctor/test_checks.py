"""Checks that no lab host can provoke, and what a site may expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.doctor import CHECKS, CRITICAL, IDS, QUICK, Look, critical, examine
from fleetctl.doctor.expect import GIB, Expect, fits, known, parse
from fleetctl.errors import ConfigError, UsageError
from fleetctl.fleet.doctor import visit
from fleetctl.remote import doctor as remote

KERNEL = (Path(__file__).parent / "recorded" / "kernel.txt").read_text().splitlines()


def test_xids_and_killed_processes_are_told_by_their_last_line() -> None:
    found = examine(Look({"kernel_log": {"readable": True, "lines": KERNEL}}))
    assert [(f.id, str(f.severity)) for f in found] == [("xid", "error"), ("oom-kill", "warning")]
    assert found[0].message == "1 Xids since the boot: code 31"
    assert found[0].evidence == KERNEL[0]


@pytest.mark.parametrize(("offset", "unsure", "told"), [(90.0, 0.1, True), (-90.0, 0.1, True), (3.0, 1.5, False), (0.2, 0.0, False)])  # fmt: skip
def test_a_clock_is_off_only_beyond_what_the_round_trip_hides(offset: float, unsure: float, told: bool) -> None:  # fmt: skip
    found = examine(Look({}, Expect(), offset, unsure))
    assert [f.id for f in found] == (["clock-off"] if told else [])


def test_an_answer_without_any_group_has_no_finding() -> None:
    assert examine(Look({})) == []


def test_a_group_that_failed_is_told() -> None:
    [found] = examine(Look({"errors": {"gpu": "OSError: no"}}))
    assert (found.id, found.evidence) == ("look-failed", "OSError: no")


def test_the_quick_groups_are_groups_and_hold_what_critical_checks_read() -> None:
    assert set(QUICK) <= set(remote.GROUPS)
    for check in CHECKS:
        assert check.__doc__, check


def test_critical_is_a_part_of_the_errors() -> None:
    look = Look({"python": {"path": "/p", "exists": False}, "patches": [{"name": "x"}]})
    assert [f.id for f in critical(look)] == ["python-missing"]
    assert critical(look, skip=["python-missing"]) == []
    assert "patch-active" not in CRITICAL


def test_every_finding_has_an_id_that_is_listed_and_described() -> None:
    root = Path(__file__).parents[2]
    sources = [p.read_text() for p in (root / "fleetctl" / "doctor").glob("*.py")]
    used = {i for text in sources for i in re.findall(r'Finding\(\s*"([a-z0-9-]+)"', text)}
    made = {"sglang-version", "torch-version", "kernel-version"}
    assert used | made == IDS
    page = (root / "docs" / "howto" / "doctor.md").read_text()
    assert {i for i in IDS if f"`{i}`" not in page} == set()
    assert CRITICAL <= IDS


def test_an_id_that_no_check_has_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        next(visit([], Path("/nowhere"), only=["shm-smal"]))
    assert caught.value.hint.startswith("did you mean shm-small")


def test_a_patch_past_its_time_is_a_warning() -> None:
    facts = {"clock": {"now": 100.0, "root": True}}
    for until, severity in ((200.0, "info"), (50.0, "warning")):
        [found] = examine(
            Look(facts | {"patches": [{"name": "x", "expires_at": until, "by": "ann"}]})
        )
        assert (found.id, str(found.severity)) == ("patch-active", severity)
        assert found.fix == "fleetctl patch revert x HOST"  # without a host it is refused


def test_expectations_of_globs_win_over_the_site() -> None:
    value = {"gpus": 8, "shm": "32GiB", "skip": "clock-off", "hosts": {"rtx-*": {"gpus": 4}}}
    assert parse(value, "b300-01") == Expect(gpus=8, shm=32 * GIB, skip=("clock-off",))
    assert parse(value, "rtx-01").gpus == 4


@pytest.mark.parametrize("value", [{"gpu-count": 8}, {"gpus": "many"}, {"driver": ">>580"}, {"shm": "big"},
                                   {"hosts": {"a": 1}}, {"hosts": ["a"]}, {"disk-paths": {"a": 1}}, {"hosts": {"z": {"gpuz": 1}}}, {"fabric": "maybe"}])  # fmt: skip
def test_a_wrong_expectation_is_told_for_every_host(value: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(value, "a")
    assert caught.value.reference == "bad-expectation"


def test_a_check_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"skip": ["shm-smal"]}, "a")
    assert caught.value.reference == "unknown-check"
    assert caught.value.hint.startswith("did you mean shm-small")


def test_one_that_was_typed_is_a_fault_of_the_command_line() -> None:
    with pytest.raises(UsageError) as caught:
        known(["shm-smal"])
    assert caught.value.reference == "unknown-check"


@pytest.mark.parametrize(("version", "wanted", "good"), [
    ("580.159.04", ">=580", True), ("570.1", ">=580", False), ("6.8.0-91-generic", ">=6.8", True),
    ("0.5.12.post1", ">=0.5.12,<0.5.15", True), ("2.9.1+cu128", "==2.9.1", True), ("2.11.0", "2.11.0", True),
    ("unknown", ">=1", False),
])  # fmt: skip
def test_versions(version: str, wanted: str, good: bool) -> None:
    assert fits(version, wanted) is good
