"""What a unit that does not run is about to do, from systemd's properties."""

from __future__ import annotations

import pytest

from fleetctl.remote.pending import coming, how


@pytest.mark.parametrize(
    ("active", "sub", "comes"),
    [
        ("activating", "auto-restart", True),
        ("activating", "auto-restart-queued", True),
        ("deactivating", "stop-post", True),
        ("deactivating", "stop-sigterm", True),
        ("activating", "start", False),
        ("active", "running", False),
        ("failed", "failed", False),
        ("inactive", "dead", False),
    ],
)
def test_after_an_end_it_is_waited_for_what_systemd_does_next(
    active: str, sub: str, comes: bool
) -> None:
    assert coming({"ActiveState": active, "SubState": sub}) is comes


def test_a_unit_that_is_down_is_told_by_systemds_words_and_one_that_is_not_there_by_ours() -> None:
    down = {"LoadState": "loaded", "ActiveState": "failed", "Result": "signal"}
    assert how(down) == "failed, result signal"
    assert how({"LoadState": "not-found", "ActiveState": "inactive"}) == "there is no such unit"
    assert how({}) == "there is no such unit"
