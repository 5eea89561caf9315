"""The operator's own record: what was changed, and what was only asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.apply import audit
from fleetctl.errors import RemoteError
from fleetctl.report.history import audit as told

DEPLOY = {"do": "deploy", "host": "a", "service": "main", "launch": "l1", "summary": "1 atom"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))


def test_a_change_that_was_made_is_one_line() -> None:
    with audit.change(DEPLOY):
        assert [x["do"] for x in audit.local({"a/main"}, 9)] == ["deploy"], "written beforehand"
    assert [x["do"] for x in audit.local({"a/main"}, 9)] == ["deploy"]


def test_a_change_that_was_refused_says_so_and_why() -> None:
    with pytest.raises(RemoteError), audit.change(DEPLOY):
        raise RemoteError("locked", "bob holds the lock", where="a")
    first, second = audit.local({"a/main"}, 9)
    assert (first["do"], second["do"]) == ("deploy", "deploy failed")
    assert (second["error"], second["launch"], second["host"]) == ("locked", "l1", "a")
    assert told(second).endswith("locked")
