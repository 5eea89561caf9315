"""Checks of the operating system."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.doctor.finding import Finding, Severity
from fleetctl.doctor.look import GIB, Look, gib

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
FULL = 200 * 1024**2  # below that a launch's own files may not fit


def systemd(look: Look) -> Iterator[Finding]:
    """Units can be kept here: systemd runs the host and answers, and nothing else failed."""
    facts = look.group("systemd")
    if not facts:
        return
    if facts["version"] is None:
        message = "systemd does not run this host, so no unit can be kept here"
        yield Finding("no-systemd", ERROR, message, "no /run/systemd/system")
        return
    if not facts["state"]:
        message = "systemd does not answer: PID 1 hangs"
        yield Finding("systemd-hangs", ERROR, message, "systemctl is-system-running: no answer")
    others = [u for u in facts["failed"] if not u.startswith("sglang-")]
    if others:
        message = f"{len(others)} other units failed: {', '.join(others[:4])}"
        fix = f"systemctl status {others[0]}"
        yield Finding("units-failed", WARNING, message, f"is-system-running: {facts['state']}", fix)


def rights(look: Look) -> Iterator[Finding]:
    """The agent is root: only root sees others' sockets and writes units."""
    if look.group("clock").get("root") is False:
        message = "the login is not root here; a deploy cannot write units"
        yield Finding("not-root", ERROR, message, "uid is not 0", "set become: sudo in hosts.yaml")


def names(look: Look) -> Iterator[Finding]:
    """The host knows its own name: each look-up without an answer holds a start up for 10 s."""
    facts = look.group("names")
    if not facts or (facts.get("address") and (facts.get("seconds") or 0) < 1.0):
        return
    took = (
        f"after {facts['seconds']} s" if facts.get("seconds") is not None else "no answer in 1.2 s"
    )
    message = f"{facts['hostname']} does not find its own name; each rank waits for that at start"
    fix = f"echo '127.0.1.1 {facts['hostname']}' >> /etc/hosts"
    yield Finding("own-name", ERROR, message, f"{facts.get('error', 'look-up')}: {took}", fix)


def clock(look: Look) -> Iterator[Finding]:
    """The clocks agree, so that journals of several hosts can be read together."""
    if look.offset is None or abs(look.offset) - look.unsure <= look.expect.clock:
        return
    message = f"its clock is {abs(look.offset):.1f} s {'ahead' if look.offset > 0 else 'behind'}"
    evidence = f"offset {look.offset:+.3f} s ± {look.unsure:.3f} s against this computer"
    yield Finding("clock-off", WARNING, message, evidence, "timedatectl set-ntp true")


def disks(look: Look) -> Iterator[Finding]:
    """Space, inodes and write access where the launch, its evidence and its model lie."""
    told: set[tuple[int, int]] = set()
    for disk in look.rows("disks"):
        path, total = disk["path"], disk.get("total", 0)
        if disk.get("read_only") and path in ("/etc", "/var/lib/fleetctl", "/tmp", "/"):  # noqa: S108
            fix = f"mount -o remount,rw {path}"
            yield Finding("read-only", ERROR, f"{path} cannot be written", f"{path}: ro", fix)
        if not total or path == "/dev/shm" or (total, disk["free"]) in told:  # noqa: S108
            continue
        told.add((total, disk["free"]))
        evidence = f"{path}: {gib(disk['free'])} of {gib(total)} free"
        fix = f"du -xh {path} | sort -h | tail"
        if disk["free"] < FULL:
            yield Finding("disk-full", ERROR, f"no space left at {path}", evidence, fix)
        elif disk["free"] < look.expect.disk:
            yield Finding("disk-low", WARNING, f"little space left at {path}", evidence, fix)
        if disk["inodes"] and disk["inodes_free"] < max(1000, disk["inodes"] // 1000):
            evidence = f"{path}: {disk['inodes_free']} of {disk['inodes']} inodes free"
            fix = f"du --inodes -x {path} | sort -n | tail"
            yield Finding("inodes-low", ERROR, f"no inodes left at {path}", evidence, fix)


def shared_memory(look: Look) -> Iterator[Finding]:
    """Shared memory is large enough: NCCL and the tokenizer processes talk through it."""
    shm = look.group("memory").get("shm") or {}
    total, free = shm.get("total", 0), shm.get("free", 0)
    if not total or free >= look.expect.shm:
        return
    message = f"shared memory: {gib(free)} free in /dev/shm, {gib(look.expect.shm)} are wanted"
    full = total >= look.expect.shm
    fix = "ls -lS /dev/shm | head" if full else "mount -o remount,size=50% /dev/shm"
    evidence = f"{gib(free)} of {gib(total)} free in /dev/shm"
    yield Finding("shm-small", ERROR if free < GIB / 4 else WARNING, message, evidence, fix)


def ports(look: Look) -> Iterator[Finding]:
    """The service's port is free or its own, and no client socket can take it meanwhile."""
    own = look.group("unit").get("name", "")
    for user in look.rows("ports"):
        if user["unit"] == own and own:
            continue
        who = user["unit"] or user["command"] or "somebody"
        message = f"port {user['port']} is taken by {who}"
        evidence = f"pid {user['pid']}: {user['command']}"
        yield Finding("port-taken", ERROR, message, evidence, f"ss -ltnp 'sport = :{user['port']}'")
    kernel, port = look.group("kernel"), int(look.facts.get("port") or 0)
    low, high = kernel.get("ephemeral") or (0, 0)
    if port and low <= port <= high and not _reserved(port, kernel.get("reserved", "")):
        message = f"port {port} lies among the ports that any outgoing connection may take"
        evidence = f"net.ipv4.ip_local_port_range = {low} {high}"
        fix = f"sysctl -w net.ipv4.ip_local_reserved_ports={port}-{port + 300}"
        yield Finding("port-ephemeral", WARNING, message, evidence, fix)


def _reserved(port: int, text: str) -> bool:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if int(first) <= port <= int(last or first):
            return True
    return False


def leftovers(look: Look) -> Iterator[Finding]:
    """No process of SGLang outside a unit: it holds ports, shared memory and GPU memory."""
    rows = look.rows("leftovers")
    if rows:
        pids = " ".join(str(r["pid"]) for r in rows)
        message = f"{len(rows)} processes of SGLang belong to no unit of fleetctl"
        evidence = (
            f"pid {rows[0]['pid']} ({rows[0]['unit'] or 'no unit'}): {rows[0]['command'][:120]}"
        )
        yield Finding("leftover-processes", WARNING, message, evidence, f"kill {pids}")


def journal(look: Look) -> Iterator[Finding]:
    """The journal survives a reboot and keeps all lines."""
    facts = look.group("journal")
    if not facts or look.group("systemd").get("version") is None:
        return
    if facts["storage"] == "none":
        message = "journald keeps nothing, so no crash can be read afterwards"
        yield Finding("journal-none", ERROR, message, "Storage=none", "set Storage=persistent")
    elif not facts["persistent"]:
        message = "the journal is kept in memory: a reboot loses the evidence of a crash"
        evidence = f"Storage={facts['storage']}, no /var/log/journal"
        fix = "mkdir -p /var/log/journal && systemctl restart systemd-journald"
        yield Finding("journal-volatile", WARNING, message, evidence, fix)


def kernel_log(look: Look) -> Iterator[Finding]:
    """No Xid and no process killed for memory since the boot."""
    lines = look.group("kernel_log").get("lines") or []
    xids = [line for line in lines if "NVRM: Xid" in line]
    if xids:
        codes = sorted({m.group(1) for x in xids if (m := re.search(r"\): (\d+)", x))}, key=int)
        message = f"{len(xids)} Xids since the boot: code {', '.join(codes)}"
        yield Finding("xid", ERROR, message, xids[-1], "journalctl -k -b -g Xid")
    killed = [line for line in lines if "ut of memory" in line]
    if killed:
        message = f"the kernel killed {len(killed)} processes for memory since the boot"
        yield Finding(
            "oom-kill", WARNING, message, killed[-1], "journalctl -k -b -g 'ut of memory'"
        )


def tracing(look: Look) -> Iterator[Finding]:
    """py-spy is where the unit finds it: SGLang's watchdog calls it, and so does a dump of a hang."""
    python = look.group("python")
    if python.get("packages", {}).get("sglang") and not python.get("py_spy"):
        message = "py-spy is not where the unit looks for it: a hang leaves no stacks"
        fix = f"{python['path']} -m pip install py-spy"
        yield Finding("py-spy-missing", WARNING, message, f"no py-spy beside {python['path']}", fix)


CHECKS = (
    systemd, rights, names, clock, disks, shared_memory, ports, leftovers, journal, kernel_log,
    tracing,
)  # fmt: skip
