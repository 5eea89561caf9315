"""The way to a host fails at every step of a deploy: the host is old or new, and the report says which.

So do other faults that are mostly waited for: lost packets, a PID 1 that hangs, a jump host without power.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from fleetctl.lab import bed, container
from fleetctl.lab.box import Box
from tests.lab import doors
from tests.lab.conftest import start
from tests.lab.deploying import Done, Operator, leftovers
from tests.lab.launches import NEXT, Seen, look

# Where the agent stands when the line fails: the door's expressions for a service.
STEPS = {
    "facts": (r"^list .*/launches/{0}$",),
    "lock": (r"^mkdir .*/lock\.d/{0}$",),
    "verify": (r"^mkdir .*/lock\.d/{0}$", r"^run systemd-analyze verify"),
    "put files": (r"^rename /etc/systemd/system/sglang-{0}\.service",),
    "daemon-reload": (
        r"^rename /etc/systemd/system/sglang-{0}\.service",
        r"^run systemctl .*daemon-reload",
    ),
    "restart": (r"^run systemctl .*start .*sglang-{0}\.service",),
}


@dataclass(frozen=True)
class End:
    """How a deploy ended, and what its host has."""

    done: Done
    seen: Seen


@dataclass(frozen=True)
class Cables:
    """What comes of cables that are out, and of a jump host without power."""

    out: dict[str, End]
    jump_back: End
    jump_off: Done


@dataclass(frozen=True)
class Elsewhere:
    """What comes of the faults on hosts of their own."""

    loss: Future[End]
    freeze: Future[dict[str, tuple[End, End]]]


class Bench:
    """A host with an old launch, and a line to it."""

    def __init__(self, ops: Operator, box: Box, line: doors.Line) -> None:
        self.ops = ops
        self.box = box
        self.line = line


def words(host: str, profile: str) -> tuple[str, ...]:
    """The command line of a deploy."""
    return ("deploy", host, "-p", profile, "--yes", "--json")


@pytest.fixture(scope="module")
def box(_replay: Box) -> Iterator[Box]:
    """The shared host, with doors."""
    _replay.heal()
    _replay.clean()
    doors.build(_replay)
    _replay.scenario("founding", speed=100)
    yield _replay
    _replay.clean()


@pytest.fixture(scope="module", autouse=True)
def elsewhere(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """Faults that are mostly waited for, on hosts of their own, while the other tests of this file run."""
    hosts = [start(f"{name}=replay") for name in ("lossy", "frozen")]
    with ThreadPoolExecutor(len(hosts)) as pool:
        lossy, frozen = (Operator(tmp_path_factory.mktemp(box.name)) for box in hosts)
        yield Elsewhere(
            pool.submit(over_a_lossy_line, lossy, hosts[0]),
            pool.submit(with_a_frozen_pid_1, frozen, hosts[1]),
        )
    for box in hosts:
        bed.drop(lab_name, box.name)


@pytest.fixture(scope="module")
def bench(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A host with an old launch that is ready; each test leaves the old one or a new one behind."""
    ops = Operator(tmp_path_factory.mktemp("cable"))
    with doors.line(box, ops.folder) as (line, way):
        ops.add(box, "lab-01", **way)
        ops.profile("next", NEXT)
        assert ops.deploy("lab-01", "tp8").rc == 0
        yield Bench(ops, box, line)


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
    deploy = words("lab-01", "next")
    if step == "facts":  # nothing has begun: nobody comes back for it
        done = bench.ops.run(*deploy)
        door.open()
    else:
        done = bench.ops.until(deploy, lambda e: e.get("state") == "back", lambda _: door.open())
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


def test_a_connection_is_reset_while_the_evidence_comes(bench: Bench) -> None:
    def reset(_: object) -> None:
        bench.line.cut()
        bench.line.mend()

    failed = bench.ops.until(words("lab-01", "ep8-nvls"), lambda e: e["event"] == "failed", reset)
    result = failed.result
    assert (failed.rc, result["state"]) == (1, "failed-start"), failed.out
    if result["incident"] is None:  # what did not come is told, and comes with the next command
        assert "connection-lost" in result["evidence"]
    collected = [
        json.loads(x) for x in bench.ops.run("collect", "lab-01", "--json").out.splitlines()
    ]
    (mine,) = [c for c in collected if c["invocation_id"] == result["invocation_id"]]
    assert mine["label"] == "cublas-capture"


SLOW = "name: slow\nextends: next\nenv: {REPLAY_SPEED: '4'}\n"
SILENT = ("connect", *STEPS, "watching")


@pytest.fixture(scope="module")
def jump(lab_name: str) -> Iterator[Box]:
    """A host that leads to another; it is gone afterwards, whatever became of it."""
    box = start("jump=bare")
    yield box
    bed.drop(lab_name, box.name)


@pytest.fixture(scope="module")
def cables(box: Box, jump: Box, tmp_path_factory: pytest.TempPathFactory) -> Cables:
    """A first deploy for each step, all at the same time, each of a service of its own over its own cable.

    The cable is out when the agent stands at the step, and back once the client says that it is lost.
    """
    box.clean()
    ops, behind = (Operator(tmp_path_factory.mktemp(name)) for name in ("cables", "jump"))
    with ThreadPoolExecutor(len(SILENT) + 1) as pool, ExitStack() as lines:
        jumped = pool.submit(behind_a_jump_host, behind, box, jump)
        made = []
        for number, step in enumerate(SILENT):
            service = step.replace(" ", "-")
            line, way = lines.enter_context(doors.line(box, ops.folder))
            ops.add(box, service, services={service: {"port": 30100 + number}}, **way)
            made.append((step, service, line))
        ops.profile("next", NEXT.replace("flags: {", "flags: {tp-size: 1, "))
        ops.profile("slow", SLOW)
        runs = {m[0]: pool.submit(without_cable, ops, box, *m) for m in made}
        dones = {step: run.result() for step, run in runs.items()}
    assert leftovers(box) == ""
    ends = {step: End(dones[step], look(box, service)) for step, service, _ in made}
    return Cables(ends, *jumped.result())


@pytest.mark.parametrize("step", SILENT)
def test_the_cable_is_out(cables: Cables, step: str) -> None:
    done, seen = cables.out[step].done, cables.out[step].seen
    if step in ("connect", "facts"):
        fault = "unreachable-timeout" if step == "connect" else "connection-lost"
        assert (done.rc, done.result["error"], seen.word) == (4, fault, "old"), done.out
    else:
        assert (done.rc, done.result["state"], seen.word) == (0, "ready", "new"), done.out
        assert done.result["invocation_id"] == seen.invocation
        assert done.named("connection")[-1]["state"] == "back"


def without_cable(ops: Operator, box: Box, step: str, service: str, line: doors.Line) -> Done:
    """Deploy a service; its cable is out at that step, until the client knows."""
    deploy = words(service, "next")
    if step == "connect":
        line.cable_out()
        return ops.run(*deploy)
    if step == "watching":
        once = iter((line.cable_out,))

        def lost(event: dict[str, Any]) -> bool:
            if event["event"] == "phase":
                for out in once:
                    out()
            return event.get("state") == "lost"

        return ops.until(words(service, "slow"), lost, lambda _: line.mend())
    door = doors.Door(box, f"silent-{service}", *(e.format(service) for e in STEPS[step]))

    def fail() -> None:
        door.wait()
        line.cable_out()
        door.open()

    failing = threading.Thread(target=fail)
    failing.start()

    def mend(_: object) -> None:
        failing.join()  # a loss of another kind may come first, and the cable would stay out
        line.mend()

    if step != "facts":
        return ops.until(deploy, lambda e: e.get("state") == "lost", mend)
    done = ops.run(*deploy)
    mend(done)
    return done


def over_a_lossy_line(ops: Operator, box: Box) -> End:
    """Deploy while 30 % of the packets are lost on either way."""
    ops.add(box)
    ops.profile("next", NEXT)
    box.scenario("serves", speed=100)
    box.fault("loss", percent=30)
    done = ops.run(*words(box.name, "next"))
    box.heal()
    return End(done, look(box, "main"))


def test_three_packets_of_ten_are_lost(elsewhere: Elsewhere) -> None:
    end = elsewhere.loss.result()
    ready = end.done.result["state"] == "ready"
    assert (end.done.rc, end.seen.word) == ((0, "new") if ready else (4, "old")), end.done.out


def with_a_frozen_pid_1(ops: Operator, box: Box) -> dict[str, tuple[End, End]]:
    """Deploy two services, stop PID 1 in the middle of it, let it go on, and deploy again."""
    doors.build(box)
    box.scenario("serves", speed=100)
    steps = {"reload": STEPS["daemon-reload"], "launch": STEPS["restart"]}
    held = []
    for number, (name, step) in enumerate(steps.items()):
        way = {"services": {name: {"port": 30100 + number}}, "python": doors.PYTHON}
        ops.add(box, name, **way)
        held.append(doors.Door(box, name, *(e.format(name) for e in step)))
    ops.profile("next", NEXT.replace("flags: {", "flags: {tp-size: 1, "))
    with ThreadPoolExecutor(len(steps)) as pool:
        runs = {name: pool.submit(ops.run, *words(name, "next")) for name in steps}
        for door in held:
            door.wait()
        box.fault("freeze")
        for door in held:
            door.open()
        dones = {name: run.result() for name, run in runs.items()}
    box.fault("thaw")
    first = {name: End(done, look(box, name)) for name, done in dones.items()}
    again = {name: ops.run(*words(name, "next")) for name in steps}
    return {name: (first[name], End(done, look(box, name))) for name, done in again.items()}


@pytest.mark.parametrize("step", ["reload", "launch"])
def test_pid_1_hangs(elsewhere: Elsewhere, step: str) -> None:
    end, again = elsewhere.freeze.result()[step]
    assert (end.done.rc, end.done.result["error"]) == (6, "systemd-silent"), end.done.out
    assert "PID 1" in end.done.result["hint"]
    if step == "reload":
        assert end.seen.word == "old"
    else:
        assert "once it does" in end.done.result["message"]
    assert (again.done.rc, again.seen.word) == (0, "new"), again.done.out


def behind_a_jump_host(ops: Operator, box: Box, jump: Box) -> tuple[End, Done]:
    """Deploy by way of a host that loses its power while one watches; then while it lets nobody in."""
    ops.add(jump, "jump")
    ops.add(box, "behind", services={"behind": {"port": 30200}}, jump="jump")
    ops.profile("next", NEXT.replace("flags: {", "flags: {tp-size: 1, "))
    ops.profile("slow", SLOW)

    def power(event: dict[str, Any]) -> bool:
        if event["event"] == "phase" and container.init(jump.host) is not None:
            jump.fault("kill")
        return event.get("state") == "lost"

    done = ops.until(words("behind", "slow"), power, lambda _: jump.heal())
    jump.fault("refuse")
    return End(done, look(box, "behind")), ops.run(*words("behind", "next"))


def test_the_jump_host_is_down(cables: Cables) -> None:
    end, off = cables.jump_back, cables.jump_off
    assert (end.done.rc, end.done.result["state"], end.seen.word) == (0, "ready", "new")
    assert (off.rc, off.result["error"]) == (4, "jump-failed"), off.out
    assert "jump" in off.result["message"]
