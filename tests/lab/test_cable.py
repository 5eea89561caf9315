"""The line fails at every step of a deploy: the host is old or new, never between, and the report says which."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fleetctl.lab.box import Box
from tests.lab import doors
from tests.lab.deploying import Operator, leftovers
from tests.lab.launches import NEXT, look

# Where the agent stands when the line fails: the door's expressions for a service.
STEPS = {
    "facts": (r"^run systemctl .*show .* sglang-{0}\.service",),
    "lock": (r"^mkdir .*/lock\.d/{0}$",),
    "verify": (r"^mkdir .*/lock\.d/{0}$", r"^run systemd-analyze verify"),
    "put files": (r"^rename /etc/systemd/system/sglang-{0}\.service",),
    "daemon-reload": (
        r"^rename /etc/systemd/system/sglang-{0}\.service",
        r"^run systemctl .*daemon-reload",
    ),
    "restart": (r"^run systemctl .*restart .*sglang-{0}\.service",),
}


class Bench:
    """A host with an old launch, and a line to it."""

    def __init__(self, ops: Operator, box: Box, line: doors.Line) -> None:
        self.ops = ops
        self.box = box
        self.line = line

    def deploy(self, profile: str, *more: str) -> tuple[str, ...]:
        return ("deploy", "lab-01", "-p", profile, "--yes", "--json", *more)


@pytest.fixture(scope="module")
def bench(_replay: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The shared host with an old launch that is ready; each test leaves an old or a new one behind."""
    _replay.heal()
    _replay.clean()
    doors.build(_replay)
    _replay.scenario("serves", speed=100)
    ops = Operator(tmp_path_factory.mktemp("cable"))
    with doors.line(_replay, ops.folder) as (line, way):
        ops.add(_replay, "lab-01", **way)
        ops.profile("next", NEXT)
        assert ops.deploy("lab-01", "tp8").rc == 0
        yield Bench(ops, _replay, line)


@pytest.mark.parametrize("step", STEPS)
def test_a_connection_is_reset(bench: Bench, step: str) -> None:
    before = look(bench.box, "main")
    assert before.word == "old"
    door = doors.Door(bench.box, step, *(e.format("main") for e in STEPS[step]))

    def fail() -> None:
        door.wait()
        bench.line.cut()
        bench.line.mend()

    failing = threading.Thread(target=fail)
    failing.start()
    words = bench.deploy("next")
    if step == "facts":  # nothing has begun: nobody comes back for it
        done = bench.ops.run(*words)
        door.open()
    else:
        done = bench.ops.until(words, lambda e: e.get("state") == "back", lambda _: door.open())
    failing.join()
    after = look(bench.box, "main")
    if step == "restart":
        assert (done.rc, done.result["state"], after.word) == (0, "ready", "new"), done.out
        assert done.result["invocation_id"] == after.invocation != before.invocation
    else:
        assert (done.rc, done.result["state"]) == (4, "unreachable"), done.out
        assert done.result["error"] == "connection-lost"
        assert after == before
        if step != "facts":
            assert "the host has its old launch" in done.result["message"]
    assert leftovers(bench.box) == ""
