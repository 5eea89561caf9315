from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from fleetctl.config.select import select, select_hosts
from fleetctl.errors import FleetError, ManyErrors
from fleetctl.model.fleet import Host, Service

TWO = (Service("main"), Service("draft", 30010))
HOSTS = {
    h.name: h
    for h in (
        Host("b-01", "1", groups=("b",)),
        Host("b-02", "2", groups=("b", "odd"), services=TWO),
        Host("b-03", "3", services=(Service("x"), Service("y"))),
        Host("c-1", "4", services=(Service("only"),)),
        Host("bastion", "5", groups=("way",), services=()),
    )
}


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (["b-01"], ["b-01/main"]),
        (["c-1"], ["c-1/only"]),
        (["b-02/draft", "b-01"], ["b-01/main", "b-02/draft"]),
        (["b-02/*"], ["b-02/main", "b-02/draft"]),
        (["@b"], ["b-01/main", "b-02/main"]),
        (["@b/draft"], ["b-02/draft"]),
        (["b-[01-02]", "b-02", "@odd"], ["b-01/main", "b-02/main"]),
        (["c-?"], ["c-1/only"]),
        (["b*/main"], ["b-01/main", "b-02/main"]),
        (["--all"], ["b-01/main", "b-02/main", "b-02/draft", "b-03/x", "b-03/y", "c-1/only"]),
    ],
)
def test_a_selector_picks_services_in_inventory_order(
    patterns: list[str], wanted: list[str]
) -> None:
    assert [str(t) for t in select(HOSTS, patterns)] == wanted


@pytest.mark.parametrize(
    ("pattern", "reference", "hint"),
    [
        ("b-03", "which-service", "say b-03/x or b-03/y, or b-03/* for all"),
        ("b-04", "unknown-host", "did you mean b-03, b-02, b-01?"),
        ("zzz", "unknown-host", "`fleetctl hosts list` shows the inventory"),
        ("z*", "unknown-host", "`fleetctl hosts list` shows the inventory"),
        ("b-[01-05]", "unknown-host", "did you mean b-03, b-02, b-01?"),
        ("b-[5-1]", "bad-range", ""),
        ("@xyz", "unknown-group", "there are b, odd, way"),
        ("@wy", "unknown-group", "did you mean way?"),
        ("b-01/mian", "unknown-service", "did you mean main?"),
        ("bastion", "no-service", "see services: in hosts.yaml"),
        ("@way", "no-service", "see services: in hosts.yaml"),
    ],
)
def test_a_selector_that_picks_nothing_is_a_usage_error(
    pattern: str, reference: str, hint: str
) -> None:
    with pytest.raises(FleetError) as caught:
        select(HOSTS, [pattern])
    assert (caught.value.reference, caught.value.hint) == (reference, hint)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (["bastion"], ["bastion"]),
        (["@way", "b-01"], ["b-01", "bastion"]),
        (["b-03"], ["b-03"]),
        (["b-02/draft"], ["b-02"]),
        (["b*"], ["b-01", "b-02", "b-03", "bastion"]),
        (["--all"], ["b-01", "b-02", "b-03", "c-1", "bastion"]),
        (["c-1,b-[01,03],bastion"], ["b-01", "b-03", "c-1", "bastion"]),
    ],
)
def test_as_a_machine_each_host_counts_whatever_it_serves(
    patterns: list[str], wanted: list[str]
) -> None:
    assert [h.name for h in select_hosts(HOSTS, patterns)] == wanted


def test_several_stand_in_one_word_with_commas() -> None:
    found = [str(t) for t in select(HOSTS, ["c-1,b-[01,02],", "b-02/draft"])]
    assert found == ["b-01/main", "b-02/main", "b-02/draft", "c-1/only"]


@pytest.mark.parametrize("patterns", [[], [""], [","], ["", ",,"]])
@pytest.mark.parametrize("pick", [select, select_hosts])
def test_no_selector_never_means_all(
    pick: Callable[[Mapping[str, Host], Sequence[str]], object], patterns: list[str]
) -> None:
    with pytest.raises(FleetError) as caught:
        pick(HOSTS, patterns)
    assert caught.value.reference == "no-host"


def test_all_unknown_names_are_said_at_once() -> None:
    with pytest.raises(ManyErrors) as caught:
        select(HOSTS, ["x", "@y", "b-01"])
    assert [e.reference for e in caught.value.errors] == ["unknown-host", "unknown-group"]


def test_an_inventory_without_groups_says_so() -> None:
    with pytest.raises(FleetError) as caught:
        select({"c-1": HOSTS["c-1"]}, ["@b"])
    assert caught.value.hint == "the inventory has no groups"
