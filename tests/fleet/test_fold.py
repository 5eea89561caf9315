"""Equal answers once; names compressed so that the inventory reads them back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.config.ranges import expand
from fleetctl.fleet.fold import fold, ranges


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["b300-01", "b300-02", "b300-03", "b300-04"], "b300-[01-04]"),
        (["b300-04", "b300-01", "b300-02"], "b300-[01-02,04]"),
        (["b300-01"], "b300-01"),
        (["h9", "h10", "h11"], "h[9-11]"),
        (["h09", "h10", "h11"], "h[09-11]"),
        (["h7", "h07"], "h7,h07"),
        (["b300-01", "rtx-01", "b300-02", "bastion"], "b300-[01-02],rtx-01,bastion"),
        (["gpu1.rack2.lan", "gpu1.rack3.lan"], "gpu1.rack[2-3].lan"),
        (["a", "a"], "a"),
        ([], ""),
    ],
)
def test_runs_of_numbers_are_bracketed(names: list[str], text: str) -> None:
    assert ranges(names) == text


@given(
    st.lists(
        st.builds(
            lambda head, number, width, tail: f"{head}{str(number).zfill(width)}{tail}",
            st.sampled_from(["b300-", "h", "rack1-gpu"]),
            st.integers(0, 120),
            st.integers(1, 3),
            st.sampled_from(["", ".lan"]),
        )
        | st.sampled_from(["bastion", "login"]),
        max_size=30,
    )
)
def test_ranges_name_the_same_hosts_again(names: list[str]) -> None:
    parts = re.split(r",(?![^\[]*\])", ranges(names)) if names else []
    again = [n.name for part in parts for n in expand(part)]
    assert sorted(again) == sorted(set(names))


def test_equal_answers_fold_most_hosts_first() -> None:
    found = fold([("a", 1), ("b", 2), ("c", 2), ("d", 3)])
    assert found == [(2, ["b", "c"]), (1, ["a"]), (3, ["d"])]
