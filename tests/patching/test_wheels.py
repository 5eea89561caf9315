"""What is told when pip cannot fetch a wheel."""

from __future__ import annotations

from fleetctl.patching import wheels

INDEX = (
    "ERROR: Could not find a version that satisfies the requirement sglang==0.5.99 "
    "(from versions: 0.5.1, 0.5.9, 0.5.22, 0.5.23)\n"
    "ERROR: No matching distribution found for sglang==0.5.99\n"
)


def test_a_version_that_the_index_has_not_is_told_with_those_near_it() -> None:
    fault = wheels._missing("0.5.99", INDEX)
    assert fault.message.endswith("the index has 4 versions, and not this one")
    assert fault.hint.startswith("the newest there is 0.5.23; near it are 0.5.9")
    assert fault.context == ()


def test_what_pip_says_of_an_index_that_does_not_answer_is_shown() -> None:
    said = "WARNING: Retrying\nERROR: Could not find a version (from versions: none)\nERROR: No matching"
    fault = wheels._missing("0.5.99", said)
    assert list(fault.context) == said.splitlines()[1:]
    assert "whether pip can reach its index" in fault.hint
