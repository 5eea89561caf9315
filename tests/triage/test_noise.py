"""What frightens but broke nothing changes no answer, wherever it stands in a log of a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.triage import triage_path
from tests.triage.score import SETS, Case, cases, judge

NOISE = Path(__file__).parent / "noise"


def _crashes(phase: str = "") -> Iterator[Case]:
    for case in cases(SETS["open"]):
        if case.want["crash"] and phase in ("", case.want["phase"]):
            yield case


def _wrong(case: Case, data: bytes, folder: Path) -> list[str]:
    """Return what the label says otherwise of a log; ranks and phase may be those of the noise."""
    log = folder / "noisy.log"
    log.write_bytes(data)
    marks = judge(case, triage_path(log))
    return [
        what for what in ("label", "crash", "root message", "no root") if not marks.get(what, True)
    ]


def _noise(name: str) -> bytes:
    return (NOISE / f"{name}.log").read_bytes()


@pytest.mark.parametrize("case", [*_crashes()], ids=lambda c: c.path.stem)
def test_warnings_of_a_start_change_no_answer_before_or_after_a_crash(
    case: Case, tmp_path: Path
) -> None:
    log = case.path.read_bytes()
    assert not _wrong(case, _noise("build") + log, tmp_path)
    assert not _wrong(case, _noise("start") + log, tmp_path)
    assert not _wrong(case, log + b"\n" + _noise("start"), tmp_path)


@pytest.mark.parametrize("case", [*_crashes("serving")], ids=lambda c: c.path.stem)
def test_requests_that_failed_before_a_crash_of_the_server_are_not_its_root(
    case: Case, tmp_path: Path
) -> None:
    assert not _wrong(case, _noise("serving") + case.path.read_bytes(), tmp_path)


_OF_PEERS = ("peer-lost", "root-not-in-log", "nccl-init", "external-kill")
_ALONE = ("startup-args", "import")


def _of_ranks() -> Iterator[Case]:
    """Yield the crashes of a rank that its peers would have noticed."""
    for case in _crashes():
        want = case.want
        ranked = any(rank.startswith(("TP", "DP")) for rank in want["root_ranks"])
        if ranked and want["label"] not in _OF_PEERS and want["phase"] not in _ALONE:
            yield case


@pytest.mark.parametrize("case", [*_of_ranks()], ids=lambda c: c.path.stem)
def test_ranks_that_only_lost_their_peer_are_not_the_root_before_or_after_it(
    case: Case, tmp_path: Path
) -> None:
    log = case.path.read_bytes()
    assert not _wrong(case, _noise("victims") + log, tmp_path)
    assert not _wrong(case, log + b"\n" + _noise("victims"), tmp_path)
