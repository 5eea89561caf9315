"""From an incident back to the profile that made it, and the count of what came of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fleetctl.apply.collecting import since_of
from fleetctl.apply.reproduce import Tally, patches_of, profile_of, requests_of
from fleetctl.errors import UsageError
from fleetctl.model.fleet import Host, Profile, SecretRef, Service, Target
from fleetctl.model.incident import Occurrence
from fleetctl.patching import catalog, snippets
from fleetctl.render import render

PROFILE = Profile(
    "ep8",
    "/m",
    flags={
        "tp-size": "8",
        "enable-nccl-nvls": True,
        "cuda-graph-bs": ("1", "2"),
        "mem-fraction-static": "0.80",
    },
    env={"NCCL_DEBUG": "WARN"},
    secret_flags={"api-key": SecretRef("env", "KEY")},
    unit={"timeout_stop": 60},
)
TARGET = Target(Host("h", "a"), Service("main", 30000))


def occurrence(**more: object) -> Occurrence:
    from dataclasses import asdict

    config = asdict(render(PROFILE, TARGET, version="0.5.12.post1").config)
    fields: dict[str, object] = {"config": config, "triage": {"fingerprint": "v1:a"}}
    return Occurrence("i-1", "h", "main", "2026-01-01T00:00:00Z", **(fields | more))  # type: ignore[arg-type]


def test_the_launch_of_an_incident_renders_to_the_same_command_line() -> None:
    again = render(profile_of(occurrence()), TARGET, version="0.5.12.post1")
    first = render(PROFILE, TARGET, version="0.5.12.post1")
    assert again.argv == first.argv
    assert again.env == first.env
    assert again.profile.secret_flags == PROFILE.secret_flags


def test_it_is_not_restarted_by_systemd_while_it_is_counted() -> None:
    assert profile_of(occurrence()).unit["restart"] == "no"


def test_an_incident_without_a_launch_cannot_be_made_again() -> None:
    with pytest.raises(UsageError) as caught:
        profile_of(occurrence(config=None))
    assert caught.value.reference == "no-launch"


def test_the_recorded_requests_come_back() -> None:
    assert requests_of(occurrence(request='[{"path": "/generate", "body": {}}]')) == (
        {"path": "/generate", "body": {}},
    )
    assert requests_of(occurrence()) == ()


def patched(**digests: str) -> Occurrence:
    """An incident whose launch had these patches, ``capture-guard`` with a parameter of its own."""
    config = dict(occurrence().config or {}, patches=digests, versions={"sglang": "0.5.12.post1"})
    told = [{"name": "capture-guard", "state": "active", "parameters": {"ops": True, "gone": 1}}]
    return occurrence(config=config, triage={"captured": {"patches": told}})


def digest(name: str, **given: str) -> str:
    return snippets.render(catalog.find(name, None), "0.5.12.post1", given).digest()


def test_the_patches_of_the_launch_come_back_with_their_parameters() -> None:
    ran = {
        "capture-guard": digest("capture-guard", ops="true"),
        "rank-beacon": digest("rank-beacon"),
    }
    assert ran["capture-guard"] != digest("capture-guard")
    found, lines = patches_of(patched(**ran), None)
    assert lines == ()
    assert {p.name: snippets.render(p, "0.5.12.post1").digest() for p in found} == ran


@pytest.mark.parametrize(
    ("name", "kept", "said"),
    [
        ("no-such-patch", [], "put patches/no-such-patch back into the site"),
        ("rank-beacon", ["rank-beacon"], "something else than in that launch"),
    ],
)
def test_a_patch_that_is_gone_or_was_changed_is_told(name: str, kept: list[str], said: str) -> None:
    found, (line,) = patches_of(patched(**{name: "0" * 64}), None)
    assert [p.name for p in found] == kept
    assert said in line


def test_an_incident_without_patches_pushes_none() -> None:
    assert patches_of(occurrence(), None) == patches_of(occurrence(config=None), None) == ((), ())


def test_a_tally_tells_the_same_crash_from_another_and_from_none() -> None:
    tally = Tally("v1:a")
    same = {"state": "failed-start", "triage": {"fingerprint": "v1:a", "signature": "s"}}
    other = {"state": "failed-start", "triage": {"fingerprint": "v1:b", "signature": "t"}}
    said = [tally.add(r) for r in (same, other, other, {"state": "ready"}, {"state": "timed-out"})]
    assert said == ["same", "other", "other", "pass", "unclear"]
    assert tally.to_json("i-1")["others"] == [{"signature": "t", "count": 2}]
    assert next(iter(tally.lines())) == "crashed the same way 1 of 5 times"


NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"),
    [("12h", 43200), ("30min", 1800), ("30m", 1800), ("2d", 172800), ("1.5h", 5400)],
)
def test_a_span_counts_from_now(text: str, ago: float) -> None:
    assert since_of(text, NOW) == NOW.timestamp() - ago


@pytest.mark.parametrize(
    "text",
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T01:00:00+01:00", "2026-01-01"],
)
def test_a_time_may_be_written_out(text: str) -> None:
    assert since_of(text, NOW) == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_what_is_no_time_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        since_of("yesterday", NOW)
    assert caught.value.reference == "bad-time"
