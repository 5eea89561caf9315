"""Marker lines: one line of JSON with whatever a logger put before it."""

from __future__ import annotations

import pytest

from fleetctl.remote import patch_marker
from fleetctl.triage import patched


def test_a_marker_is_read_whatever_stands_before_it() -> None:
    line = '2026-11-29T13:59:01 h4 python3[191]: fleetctl-patch none-in-foreach-copy v1 {"index":5}'
    marker = patch_marker.parse(line, 86)
    assert marker == patch_marker.Marker("none-in-foreach-copy", {"index": 5}, 86)


def test_the_beacon_is_told_apart() -> None:
    marker = patch_marker.parse('fleetctl-patch a v1 {"event":"loaded","pid":3}')
    assert marker is not None
    assert marker.event == "loaded"


@pytest.mark.parametrize(
    "line",
    [
        "fleetctl-patch a v1 {",
        "fleetctl-patch a v1 [1]",
        'fleetctl-patch a v2 {"x":1}',
        'fleetctl-patch ../a v1 {"x":1}',
        "fleetctl-patch a v1 " + '{"x":' * 40_000 + "1" + "}" * 40_000,
        "fleetctl-patch a v1 {" + "[" * 5000 + "}",
    ],
)
def test_what_only_looks_like_one_is_none(line: str) -> None:
    assert patch_marker.parse(line) is None


def test_scan_keeps_the_place() -> None:
    found = list(patch_marker.scan(["x", 'fleetctl-patch a v1 {"y":1}', "z"]))
    assert [(m.patch, m.at) for m in found] == [("a", 1)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"event": "none", "pid": 1, "process": "x", "message": "pair 5 of 6", "side": "src"}, "pair 5 of 6"),
        ({"event": "called", "pid": 1, "process": "x", "arguments": {"a": [1]}, "n": 2}, "called: arguments {'a': [1]}, n 2"),
        ({"event": "called", "pid": 1}, "called: no more than that"),
        ({"message": 7}, "7"),
        ({"x": "y" * 999}, "printed: x " + "y" * 298),
    ],
)  # fmt: skip
def test_what_a_marker_says_to_a_person(fields: dict[str, object], words: str) -> None:
    assert patch_marker.said(fields) == words


def test_a_patch_that_spoke_without_a_message_is_not_called_silent() -> None:
    marker = {"patch": "mine", "event": "called", "arguments": "x"}
    row = {"name": "mine", "markers": 1, "result": "called: arguments x"}
    assert patched.findings({"patch_markers": [marker], "patches": [row]}) == [
        "mine: called: arguments x"
    ]
    assert patched.findings({"patches": [row]}) == ["mine: called: arguments x"]
    silent = row | {"markers": 0, "result": "it is elsewhere"}
    assert patched.findings({"patches": [silent]}) == ["mine: silent: it is elsewhere"]
