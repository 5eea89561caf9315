"""Real hosts for tests: a lab shared by the session, a host of a test's own, one real SGLang.

docs/howto/lab.md tells how to use them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.lab import bed, needs, spec
from fleetctl.lab.box import Box
from tests.lab.deploying import Operator

WHY_NOT = needs.why_not()
NAME = f"t{os.getpid()}"
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/lab/" in str(item.path):
            item.add_marker("lab")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without root or Linux the lab cannot run: skipped with the reason, but a failure in CI."""
    if WHY_NOT and item.get_closest_marker("lab"):
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the lab tests: {WHY_NOT}", pytrace=False)
        pytest.skip(WHY_NOT)


def start(text: str) -> Box:
    """Add a host to the session's lab and return it."""
    one = spec.parse_host(text)
    bed.up(NAME, [one], owner=os.getpid(), say=print)
    return Box(NAME, one.name)


@pytest.fixture(scope="session")
def lab_name() -> Iterator[str]:
    """The name of the session's lab; taken down at the end with all its hosts."""
    yield NAME
    bed.down(NAME)


@pytest.fixture(scope="session")
def _replay(lab_name: str) -> Box:
    return start("shared-replay=replay")


@pytest.fixture
def replay_host(_replay: Box) -> Iterator[Box]:
    """A replay host that tests share one after the other: healed and clean before each."""
    _replay.heal()
    _replay.clean()
    yield _replay
    _replay.heal()


@pytest.fixture
def ops(tmp_path: Path, replay_host: Box) -> Operator:
    """An operator whose inventory has the replay host as ``lab-01``; the founding story is on there."""
    operator = Operator(tmp_path)
    operator.add(replay_host, "lab-01")
    replay_host.scenario("founding", speed=100)
    return operator


@pytest.fixture
def private_host(lab_name: str) -> Iterator[Callable[[str], Box]]:
    """A function that makes a host for this test alone: ``private_host("replay:0.5.23")``; gone afterwards."""
    made: list[Box] = []

    def make(engine: str = "bare") -> Box:
        made.append(start(f"own-{next(_numbers)}={engine}"))
        return made[-1]

    yield make
    for box in made:
        bed.drop(box.lab_name, box.name)


@pytest.fixture(scope="session")
def sglang_host(lab_name: str) -> Box:
    """The one host with the real SGLang 0.5.12.post1; tests share it and clean it before use."""
    return start("shared-sglang=sglang:0.5.12.post1")
