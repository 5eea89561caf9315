"""Login and exec in a process that runs already: what a readiness poll or a second command costs."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from fleetctl.model.fleet import Host
from tests.bench.harness import Report
from tests.bench.run import Options
from tests.bench.sshd_fleet import Fleet, fleet

TIMES = 25


def bench(options: Options) -> Report:
    """Measure one host, interleaved, medians."""
    report = Report("wire")
    times = 5 if options.quick else TIMES
    with (
        tempfile.TemporaryDirectory(prefix="fleetctl-bench-") as folder,
        fleet(Path(folder), 1) as made,
    ):
        cold = _rounds(times, _cold(made))
        warm_ways, close = _warm(made)
        warm = _rounds(times, warm_ways)
        close()
    for title, found in (
        ("login + true + close", cold),
        ("one more true on an open session", warm),
    ):
        rows = [[n, 1000 * median(v), 1000 * min(v)] for n, v in found.items()]
        report.table(
            title, ["way", "median ms", "best ms"], sorted(rows, key=lambda r: float(str(r[1])))
        )
    ours = median(cold["fleetctl"])
    report.goal(
        "login + exec in a running process",
        0.25,
        ours / median(cold["ssh"]),
        "ssh (curve25519, gcm)",
    )
    report.goal(
        "login + exec in a running process", 0.25, ours / median(cold["ssh default"]), "ssh default"
    )
    report.goal(
        "warm exec", 0.4, median(warm["fleetctl"]) / median(warm["ssh master"]), "ControlMaster"
    )
    report.data["samples"] = {"cold": cold, "warm": warm}
    return report


def _rounds(times: int, ways: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for name in ways:
        ways[name]()
    for _ in range(times):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            found[name].append(time.perf_counter() - began)
    return found


def _host(made: Fleet) -> Host:
    return Host(
        name="h001", address="127.0.0.1", port=made.port("h001"), user="root",
        key=str(made.folder / "keys/id"), known_hosts=str(made.folder / "known_hosts"),
    )  # fmt: skip


def _ssh(made: Fleet, config: str) -> Callable[[], Any]:
    argv = ["ssh", "-n", "-F", str(made.folder / config), "h001", "true"]
    return lambda: subprocess.run(argv, check=True)


def _cold(made: Fleet) -> dict[str, Callable[[], Any]]:
    from fleetctl.transport import connect

    def ours() -> None:
        connection = connect(_host(made))
        assert connection.exec("true").rc == 0
        connection.close()

    def fabric() -> None:
        with _fabric(made) as c:
            c.run("true")

    return {
        "fleetctl": ours, "fabric": fabric, "ssh": _ssh(made, "ssh_config_fast"),
        "ssh default": _ssh(made, "ssh_config"),
    }  # fmt: skip


def _fabric(made: Fleet) -> Any:
    from fabric import Connection
    from fabric.config import Config

    config = Config(
        overrides={"run": {"hide": True, "in_stream": False}, "load_ssh_configs": False}
    )
    key = {"key_filename": str(made.folder / "keys/id")}
    return Connection("127.0.0.1", "root", made.port("h001"), config=config, connect_kwargs=key)


def _warm(made: Fleet) -> tuple[dict[str, Callable[[], Any]], Callable[[], None]]:
    from fleetctl.transport import connect

    ours, fabric = connect(_host(made)), _fabric(made)
    fabric.open()
    ways = {
        "fleetctl": lambda: ours.exec("true"), "fabric": lambda: fabric.run("true"),
        "ssh master": _ssh(made, "ssh_config_cm"),
    }  # fmt: skip

    def close() -> None:
        ours.close()
        fabric.close()
        end = ["ssh", "-F", str(made.folder / "ssh_config_cm"), "-O", "exit", "h001"]
        subprocess.run(end, check=False, capture_output=True)

    return ways, close
