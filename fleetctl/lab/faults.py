"""Faults of a host, made from outside, and the way back from each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass

from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import UsageError
from fleetctl.lab import bed, cgroup, container, network, shell
from fleetctl.lab.state import Lab, LabHost

SSH = 22
MOUNTED = "/run/lab-disk-full"  # on the host: one line a path


@dataclass(frozen=True, slots=True)
class Order:
    """What a fault may be told: a port, a path, a size in bytes, a share in percent, a rate."""

    port: int = SSH
    path: str = ""
    size: int = 0
    percent: int = 30
    rate: str = "64kbit"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what a client sees of it, what makes it, and what is said once it is there."""

    seen: str
    make: Callable[[Lab, LabHost, Order], None]
    told: str = ""  # with the order's values in it; as ``seen`` where it takes none

    def done(self, order: Order) -> str:
        """Return what is so now."""
        return self.told.format_map(asdict(order)) if self.told else self.seen


def cause(lab: Lab, host: LabHost, name: str, order: Order | None = None) -> None:
    """Make a fault; raise UsageError for one that is not known, FleetError where it cannot be made."""
    fault = FAULTS.get(name)
    if fault is None:
        raise UsageError(
            "unknown-fault", f"{name!r} is no fault", hint=f"faults: {', '.join(FAULTS)}"
        )
    fault.make(lab, host, order or Order())


def heal(_: Lab, host: LabHost, order: Order | None = None) -> None:
    """Take back every fault of a running host: cable, packet rules, rate, memory, frozen PID 1, full disks."""
    del order
    pid = container.init(host)
    if pid is None:
        return
    os.kill(pid, signal.SIGCONT)
    port = network.port(host.machine)
    shell.run(["ip", "link", "set", port, "up"])
    for prefix, device in _ends(host):
        shell.run([*prefix, "tc", "qdisc", "del", "dev", device, "root"], check=False)
    shell.run(["nsenter", f"--target={pid}", "--net", "nft", "flush", "ruleset"])
    if not cgroup.booted_with_systemd():
        cgroup.limit_memory(host.machine, None)
    inside(
        host, f"test ! -e {MOUNTED} || {{ xargs -rd '\\n' umount -l < {MOUNTED}; rm {MOUNTED}; }}"
    )


def inside(host: LabHost, script: str, *words: str) -> str:
    """Run a shell script as root on the host's console and return what it printed."""
    argv = container.enter(host, ["/bin/sh", "-c", script, "lab", *words])
    return shell.run(argv, doing=f"on {host.name}").stdout


def _cable(way: str) -> Callable[[Lab, LabHost, Order], None]:
    def make(_: Lab, host: LabHost, __: Order) -> None:
        shell.run(
            ["ip", "link", "set", network.port(host.machine), way], doing=f"cable of {host.name}"
        )

    return make


def rules(verdicts: dict[str, str]) -> str:
    """Return an nft ruleset with one rule for each chain (input, output)."""
    chains = [
        f"chain {hook} {{\ntype filter hook {hook} priority 0\npolicy accept\n{rule}\n}}"
        for hook, rule in verdicts.items()
    ]
    return "\n".join(["table inet lab {", *chains, "}", ""])


def _filter(host: LabHost, verdicts: dict[str, str]) -> None:
    pid = container.init(host)
    if pid is None:
        raise shell.failed(f"packet rules of {host.name}", "the host is off")
    # Into the host's own network namespace, so that nothing leaks onto this computer.
    argv = ["nsenter", f"--target={pid}", "--net", "nft", "-f", "-"]
    shell.run(argv, stdin=rules(verdicts), doing=f"packet rules of {host.name}")


def _refuse(_: Lab, host: LabHost, order: Order) -> None:
    _filter(host, {"input": f"tcp dport {order.port} reject with tcp reset"})


def _drop(_: Lab, host: LabHost, order: Order) -> None:
    _filter(host, {"input": f"tcp dport {order.port} drop"})


def _loss(_: Lab, host: LabHost, order: Order) -> None:
    lose = f"numgen random mod 100 < {order.percent} drop"
    _filter(host, {"input": lose, "output": lose})


def _slow(_: Lab, host: LabHost, order: Order) -> None:
    bucket = ["tbf", "rate", order.rate, "burst", "2kb", "latency", "400ms"]
    for prefix, device in _ends(host):
        shell.run(
            [*prefix, "tc", "qdisc", "replace", "dev", device, "root", *bucket],
            doing=f"slow link of {host.name}",
        )


def _ends(host: LabHost) -> list[tuple[list[str], str]]:
    """Return both ends of a host's cable: what to run a command with there, and the device."""
    own = ["nsenter", f"--target={container.init(host)}", "--net"]
    return [([], network.port(host.machine)), (own, "host0")]


def _kill(_: Lab, host: LabHost, __: Order) -> None:
    container.kill(host)


def _boot(lab: Lab, host: LabHost, _: Order) -> None:
    bed.boot(lab, host)


def _reboot(_: Lab, host: LabHost, __: Order, clock: Clock | None = None) -> None:
    clock = clock or SystemClock()
    before = container.init(host)
    inside(host, "systemctl reboot")
    end = clock.monotonic() + 60
    while container.init(host) in (before, None):
        if clock.monotonic() > end:
            raise shell.failed(f"rebooting {host.name}", "it did not come back within 60 s")
        clock.sleep(0.05)


def _signal_init(number: int) -> Callable[[Lab, LabHost, Order], None]:
    def make(_: Lab, host: LabHost, __: Order) -> None:
        pid = container.init(host)
        if pid is None:
            raise shell.failed(f"signal to PID 1 of {host.name}", "the host is off")
        os.kill(pid, number)

    return make


FILL = """\
set -e
path=$1 free=$2
mkdir -p "$path" /run/lab-disk
need=$(du -sk "$path" | cut -f1)
mount -t tmpfs -o size=$(( need * 2 + free / 1024 + 1024 ))k lab-disk-full /run/lab-disk
cp -a "$path/." /run/lab-disk/
chown --reference="$path" /run/lab-disk
chmod --reference="$path" /run/lab-disk
mount --bind /run/lab-disk "$path"
umount /run/lab-disk
dd if=/dev/zero of="$path/.lab-ballast" bs=64k 2>/dev/null || true
dd if=/dev/zero of="$path/.lab-ballast" bs=4k conv=notrunc oflag=append 2>/dev/null || true
truncate -s -"$free" "$path/.lab-ballast"
echo "$path" >> /run/lab-disk-full
"""


def _disk_full(_: Lab, host: LabHost, order: Order) -> None:
    if not order.path.startswith("/"):
        raise UsageError("no-path", "which folder of the host?", hint="--path /etc/fleetctl")
    inside(host, FILL, order.path, str(order.size))


def _memory(_: Lab, host: LabHost, order: Order) -> None:
    if not order.size:
        raise UsageError("bad-size", "how much memory?", hint="--size 300M")
    cgroup.limit_memory(host.machine, order.size)


FAULTS: dict[str, Fault] = {
    "cable-out": Fault("connect times out; a session dies by its keepalive", _cable("down")),
    "cable-in": Fault("the cable is back", _cable("up")),
    "refuse": Fault(
        "connection refused on --port (22)", _refuse, "connection refused on port {port}"
    ),
    "drop": Fault("connect to --port (22) times out", _drop, "connect to port {port} times out"),
    "loss": Fault(
        "--percent (30) of the packets are lost each way; hangs after connect",
        _loss,
        "{percent} % of the packets are lost each way",
    ),
    "slow": Fault("the link has --rate (64kbit)", _slow, "the link has {rate}"),
    "kill": Fault("the host is off at once; its disk stays", _kill),
    "boot": Fault("a host that is off boots", _boot),
    "reboot": Fault("an orderly reboot", _reboot),
    "freeze": Fault("PID 1 hangs: ssh works, systemctl hangs", _signal_init(signal.SIGSTOP)),
    "thaw": Fault("PID 1 goes on", _signal_init(signal.SIGCONT)),
    "disk-full": Fault(
        "no space left in --path, but for --size (0) bytes",
        _disk_full,
        "no space left in {path}, but for {size} bytes",
    ),
    "memory": Fault(
        "the whole host has --size memory; above it the kernel kills",
        _memory,
        "the whole host has {size} bytes of memory; above it the kernel kills",
    ),
    "heal": Fault("everything but kill is taken back", heal),
}
