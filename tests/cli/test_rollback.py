"""The exit code of ``fleetctl rollback``: that of all hosts, and a dry run that went well is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply.outcome import Outcome, State
from fleetctl.cli.app import run
from fleetctl.errors import RefusedError
from fleetctl.fleet import rollback

GONE = RefusedError("no-revision", "no revision is kept there", where="a-2/main")


@pytest.mark.parametrize(
    ("words", "faults", "ends", "code"),
    [
        (["--dry-run"], [], [], 0),
        (["--dry-run"], [GONE], [], 7),
        ([], [], [State.READY, State.READY], 0),
        ([], [GONE], [State.READY], 1),
        ([], [], [State.LOCKED, State.LOCKED], 5),
    ],
)
def test_it_is_that_of_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], faults: list[RefusedError],
    ends: list[State], code: int,
) -> None:  # fmt: skip
    (tmp_path / "hosts.yaml").write_text("hosts:\n  a-[1-2]: {transport: local}\n")
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))

    def wishes(targets: Any, *_: Any) -> Any:
        return {}, [(targets[-1], error) for error in faults]

    def carry_out(*_: Any) -> list[Outcome]:
        return [Outcome("a-1", "main", state) for state in ends]

    monkeypatch.setattr(rollback, "wishes", wishes)
    monkeypatch.setattr(rollback, "carry_out", carry_out)
    assert run(["rollback", "a-*", *words]) == code
