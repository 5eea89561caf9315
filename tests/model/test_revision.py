"""Which revision a rollback means, and that a profile comes back as it was."""

from __future__ import annotations

import json

import pytest

from fleetctl.model.fleet import Origin, Profile, SecretRef
from fleetctl.model.launch import LaunchConfig
from fleetctl.model.revision import Revision, choose, profile_from_json, profile_to_json


def revision(number: int, profile: str, *, ready: bool = True) -> Revision:
    config = LaunchConfig(profile, f"/models/{profile}")
    return Revision(number, f"l{number}", config, {"name": profile}, ready=ready)


@pytest.mark.parametrize(
    ("kept", "to", "wanted"),
    [
        ([revision(2, "bad", ready=False), revision(1, "good")], None, 1),
        ([revision(2, "new"), revision(1, "old")], None, 1),
        # The same configuration again is no way back.
        ([revision(3, "a"), revision(2, "a"), revision(1, "b")], None, 1),
        ([revision(3, "c"), revision(2, "b", ready=False), revision(1, "a")], None, 1),
        ([revision(3, "c"), revision(2, "b", ready=False), revision(1, "a")], 2, 2),
        ([revision(3, "c"), revision(1, "a")], 3, 3),
    ],
)
def test_a_rollback_means_the_last_ready_one_that_differs_or_the_one_that_is_named(
    kept: list[Revision], to: int | None, wanted: int
) -> None:
    found = choose(kept, to)
    assert isinstance(found, Revision)
    assert found.number == wanted


@pytest.mark.parametrize(
    ("kept", "to", "why"),
    [
        ([], None, "no revision is kept there"),
        ([revision(1, "a")], None, "no earlier revision became ready"),
        ([revision(2, "a"), revision(1, "b", ready=False)], None, "no earlier revision"),
        ([revision(2, "a"), revision(1, "b")], 7, "revision 7 is not kept there; these are: 2, 1"),
    ],
)
def test_where_there_is_no_way_back_the_reason_is_said(
    kept: list[Revision], to: int | None, why: str
) -> None:
    found = choose(kept, to)
    assert isinstance(found, str)
    assert why in found


def test_a_profile_comes_back_as_it_was_with_references_for_its_secrets() -> None:
    profile = Profile(
        "p", "/m", flags={"cuda-graph-bs": ("1", "2"), "tp-size": "8", "json": {"a": [1]}},
        secret_flags={"api-key": SecretRef("env", "KEY")}, unit={"timeout_stop": 9},
        origins={"flags.tp-size": Origin("p.yaml:1:1")}, patches=("nccl-init",),
    )  # fmt: skip
    kept = json.loads(json.dumps(profile_to_json(profile)))
    assert "origins" not in kept
    back = profile_from_json(kept)
    assert back.flags == profile.flags
    assert back.secret_flags == profile.secret_flags
    assert (back.unit, back.patches, back.python) == (profile.unit, profile.patches, profile.python)
