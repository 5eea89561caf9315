"""What a lab should be, as written on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import UsageError
from fleetctl.lab import spec
from fleetctl.lab.spec import HostSpec


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lab-01", HostSpec("lab-01")),
        ("lab-01=bare", HostSpec("lab-01", "bare")),
        ("lab-01=replay", HostSpec("lab-01", "replay", "0.5.12.post1")),
        ("a=sglang:0.5.23", HostSpec("a", "sglang", "0.5.23")),
        ("a=sglang+graphcopy", HostSpec("a", "sglang", "0.5.12.post1", ("graphcopy",))),
    ],
)
def test_a_host_is_name_engine_version_and_levers(text: str, wanted: HostSpec) -> None:
    assert spec.parse_host(text) == wanted


@pytest.mark.parametrize("text", ["lab-01", "lab-01=replay:0.5.15", "a=sglang:0.5.15+graphcopy"])
def test_a_host_is_written_as_it_is_read(text: str) -> None:
    one = spec.parse_host(text)
    assert spec.parse_host(str(one)) == one


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("Lab", "bad-name"),
        ("a b", "bad-name"),
        ("-a", "bad-name"),
        ("a" * 43, "bad-name"),
        ("", "bad-name"),
        ("a=vllm", "unknown-engine"),
        ("a=bare:1.0", "unknown-engine"),
        ("a=replay:0.4.9", "unknown-version"),
        ("a=replay:../x", "unknown-version"),
        ("a=replay+graphcopy", "unknown-lever"),
        ("a=sglang+nitro", "unknown-lever"),
        ("a=sglang:0.5.23+graphcopy", "unknown-lever"),
    ],
)
def test_a_wrong_host_is_refused_by_name(text: str, reference: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.parse_host(text)
    assert caught.value.reference == reference


def test_a_name_stands_for_one_host_and_a_lab_has_at_most_two_hundred() -> None:
    with pytest.raises(UsageError, match="given twice"):
        spec.parse_hosts(["a", "b", "a=replay"])
    with pytest.raises(UsageError, match="at most 200"):
        spec.parse_hosts([f"h{n}" for n in range(201)])


@given(st.text(min_size=1, max_size=20), st.sets(st.integers(1, 250), max_size=249))
def test_a_lab_gets_a_free_network_and_the_same_one_again(name: str, taken: set[int]) -> None:
    number = spec.choose_subnet(name, taken)
    assert number == spec.choose_subnet(name, taken)
    assert 1 <= number <= spec.SUBNETS
    assert number not in taken


def test_when_all_networks_are_taken_that_is_said() -> None:
    with pytest.raises(UsageError, match="in use"):
        spec.choose_subnet("x", set(range(1, 251)))


@given(st.integers(1, 250), st.integers(0, 199))
def test_every_host_has_an_address_and_an_interface_name_that_fit(subnet: int, index: int) -> None:
    assert int(spec.address(subnet, index).rpartition(".")[2]) in range(11, 211)
    assert len(f"vb-{spec.machine(subnet, index)}") <= 15
    assert len(spec.bridge(subnet)) <= 15


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("64k", 65536), ("10M", 10 << 20), ("2g", 2 << 30)]
)
def test_sizes_are_bytes_with_units(text: str, size: int) -> None:
    assert spec.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "10MB", "-1", "1.5G", "k"])
def test_a_wrong_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        spec.parse_size(text)
