"""Facts of several hosts, folded: the most common value is the reference."""

from __future__ import annotations

from typing import Any

from fleetctl.errors import UnreachableError
from fleetctl.fleet.diff_hosts import differences, flat
from fleetctl.fleet.doctor import Visit


def host(
    name: str, torch: str = "2.11.0", flags: dict[str, Any] | None = None, **more: Any
) -> Visit:
    facts = {
        "python": {"version": "3.12.3", "packages": {"torch": torch, "triton": None}},
        "kernel": {"release": "6.8.0", "os": "Ubuntu 24.04", "ephemeral": [32768, 60999]},
        "launch": {"config": {"model": "/m", "flags": flags or {"tp-size": "8"}, "env": {}}},
        "memory": {"total": 2 * 1024**4, "available": 7},
    } | more
    return Visit(name, facts={"main": facts})


def test_equal_hosts_have_no_difference() -> None:
    assert differences([host("a"), host("b"), host("c")]) == []


def test_the_most_common_value_is_the_reference() -> None:
    rows = differences([host("a", "2.9.0"), host("b"), host("c")])
    assert [(r.fact, r.values) for r in rows] == [
        ("package torch", (("2.11.0", ("b", "c")), ("2.9.0", ("a",))))
    ]
    assert rows[0].to_json() == {
        "fact": "package torch", "reference": "2.11.0", "hosts": ["b", "c"],
        "others": [{"value": "2.9.0", "hosts": ["a"]}],
    }  # fmt: skip


def test_a_flag_that_only_one_has_is_told() -> None:
    rows = differences([host("a"), host("b", flags={"tp-size": "8", "ep-size": "8"})])
    assert [(r.fact, r.values) for r in rows] == [("flag ep-size", (("", ("a",)), ("8", ("b",))))]


def test_hosts_that_did_not_answer_do_not_count() -> None:
    gone = Visit("c", error=UnreachableError("unreachable-timeout", "no answer"))
    assert differences([host("a"), host("b"), gone]) == []


def test_what_is_in_use_now_is_no_difference() -> None:
    other = host("b", memory={"total": 2 * 1024**4, "available": 99})
    assert differences([host("a"), other]) == []


def test_gpus_are_counted_by_model() -> None:
    gpu = {"gpus": [{"name": "NVIDIA H200"}] * 2, "driver": "580.159.04", "multicast": True}
    assert flat({"gpu": gpu})["gpus"] == "2 × NVIDIA H200"


def test_services_of_one_host_are_compared_too() -> None:
    one = host("a").facts or {}
    two = Visit("a", facts={"main": one["main"], "draft": one["main"] | {"kernel": {}}})
    assert {r.fact for r in differences([two])} == {"kernel", "os", "ephemeral ports"}
