"""The endpoint that proves readiness, by version."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.remote.probes import backoff, probe_for, release, wrong_model


@pytest.mark.parametrize(
    ("version", "paths", "ready_line"),
    [
        ("0.5.23", ["/ready", "/health"], False),
        ("0.5.20", ["/ready", "/health"], False),
        ("0.5.19", ["/health"], False),
        ("0.5.12.post1", ["/health"], False),
        ("0.4.10.post2", ["/health"], False),
        ("0.4.9.post2", ["/health_generate"], True),
        ("0.4.3", ["/health_generate"], True),
        (None, ["/health_generate"], False),
        ("a fork", ["/health_generate"], False),
    ],
)
def test_each_version_is_asked_what_proves_it(
    version: str | None, paths: list[str], ready_line: bool
) -> None:
    probe = probe_for(version)
    assert [path for path, _ in probe.paths] == paths
    assert probe.ready_line is ready_line


@pytest.mark.parametrize("version", ["0.4.9", "0.4.10", "0.5.5", "0.5.12", "0.5.23", None])
def test_no_version_is_asked_for_its_models(version: str | None) -> None:
    assert all("/v1/models" not in path for path, _ in probe_for(version).paths)


def test_a_deep_check_is_given_longer_than_the_server_takes_to_fail_it() -> None:
    assert dict(probe_for("0.5.12").paths)["/health"] > 20


def test_a_shallow_health_is_passed_over_for_the_deep_one() -> None:
    assert [p for p, _ in probe_for("0.5.12", shallow_health=True).paths] == ["/health_generate"]


def test_a_health_that_never_comes_up_without_warm_up_is_not_waited_for() -> None:
    probe = probe_for("0.4.10.post2", skip_warmup=True)
    assert [p for p, _ in probe.paths] == ["/get_model_info"]
    assert probe.ready_line


@pytest.mark.parametrize(
    ("version", "path"), [("0.5.6", "/model_info"), ("0.5.5", "/get_model_info")]
)
def test_the_identity_has_moved(version: str, path: str) -> None:
    assert probe_for(version).identity == path


@pytest.mark.parametrize(
    ("info", "wrong"),
    [
        ({"model_path": "/m/a"}, False),
        ({"model_path": "/m/a/"}, False),
        ({"model_path": "/m/b"}, True),
        ({}, False),
        ({"model_path": "/m/a", "served_model_name": "other"}, True),
    ],
)
def test_another_model_is_noticed(info: dict[str, Any], wrong: bool) -> None:
    assert bool(wrong_model(info, "/m/a", "a")) is wrong


def test_versions_are_read_loosely() -> None:
    assert release("v0.5.12.post1+local") == (0, 5, 12)
    assert release("nightly") is None


def test_backoff_grows_to_its_limit_and_jitter_only_shortens_it() -> None:
    assert backoff(0, 0.0) < backoff(3, 0.0) < backoff(30, 0.0) < backoff(30, 0.999) <= 5.0


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ("0.4.9.post2", []),
        ("0.4.10.post2", []),
        ("0.5.12.post1", []),
        ("0.5.19", []),
        ("0.5.20", ["/ready"]),
        ("0.5.23", ["/ready"]),
    ],
)
def test_after_the_ready_line_of_a_server_that_warmed_itself_up_little_is_left_to_ask(
    version: str, left: list[str]
) -> None:
    probe = probe_for(version, warms_up=True)
    assert probe.after_line is not None
    assert [path for path, _ in probe.after_line] == left
    assert probe.paths == probe_for(version).paths, "and where no line comes, all of it"


@pytest.mark.parametrize("version", [None, "a fork"])
def test_the_ready_line_of_an_unknown_version_proves_nothing(version: str | None) -> None:
    assert probe_for(version, warms_up=True).after_line is None


def test_the_ready_line_proves_nothing_where_no_request_came_before_it() -> None:
    assert probe_for("0.5.12", skip_warmup=True).after_line is None
