"""Labs: bring up, take down, ask. Several people and test workers do so at the same time."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import FleetError, RefusedError
from fleetctl.lab import cgroup, container, layers, needs, network, paths, shell, site, spec, state
from fleetctl.lab.spec import HostSpec
from fleetctl.lab.state import Lab, LabHost, Process

Say = Callable[[str], None]


def quiet(_: str) -> None:
    """Say nothing."""


def up(
    name: str,
    hosts: Sequence[HostSpec],
    *,
    owner: int | None = None,
    say: Say = quiet,
    timeout: float = 60,
    clock: Clock | None = None,
) -> Lab:
    """Bring these hosts of a lab up (none named: all it has), and return it once they answer on port 22.

    A host that runs already is left alone, one that is off is booted with the disk it had, a new
    one is added; a fault of a host that was not asked for is nobody's business here. ``owner`` is a
    process whose end makes the lab stale. Raises UsageError for a host that exists with another
    engine, FleetError when a step fails.
    """
    clock = clock or SystemClock()
    spec.check_name(name, "lab")
    needs.require()
    needs.room_for_watches(say)
    sweep(say)
    wanted = {one.name: layers.ensure(one, say) for one in hosts}
    with paths.locked(paths.labs() / name):
        lab = _claim(name, owner)
        lab = _add(lab, hosts)
        asked = [host for host in lab.hosts if host.name in wanted or not wanted]
        for host in asked:
            lab = _start(lab, host, wanted)
        _introduce(lab)
        site.write(lab)
    wait_for_ssh(lab, [lab.host(host.name) for host in asked], timeout, clock)
    return lab


def _claim(name: str, owner: int | None) -> Lab:
    """Return the lab of that name, new ones with a key and a network that nobody else has."""
    with paths.locked(paths.labs() / "networks"):
        lab = state.load(name)
        if lab is None:
            taken = network.taken() | {other.subnet for other in state.load_all()}
            lab = Lab(name, spec.choose_subnet(name, taken), Process.of(owner) if owner else None)
            lab.save()
        network.up(lab.subnet)
    if not lab.key.exists():
        comment = f"fleetctl-lab-{name}"
        shell.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", lab.key])
    return lab


def _add(lab: Lab, hosts: Sequence[HostSpec]) -> Lab:
    known = {host.name: host for host in lab.hosts}
    for one in hosts:
        there = known.get(one.name)
        if there is None:
            index = max((h.index for h in lab.hosts), default=-1) + 1
            lab = lab.with_host(
                LabHost(
                    name=one.name,
                    engine=one.engine,
                    version=one.version,
                    levers=one.levers,
                    index=index,
                    address=spec.address(lab.subnet, index),
                    machine=spec.machine(lab.subnet, index),
                )
            )
        elif there.spec != one:
            raise RefusedError(
                "host-exists",
                f"{one.name} is {there.spec} in lab {lab.name}, not {one}",
                hint=f"fleetctl lab down --name {lab.name}, or choose another host name",
            )
    lab.save()
    return lab


def _start(lab: Lab, host: LabHost, wanted: dict[str, list[Path]]) -> Lab:
    # Not by its PID 1, which may be still to come.
    running = host.container is not None and host.container.alive()
    stack = wanted.get(host.name) or layers.ensure(host.spec, quiet)
    root = container.mount(lab, host, stack)
    if running:
        return lab
    container.identify(lab, host, root)
    layers.customise(host.spec, root)
    lab = lab.with_host(container.boot(lab, host))
    lab.save()
    return lab


def _introduce(lab: Lab) -> None:
    """Tell every host that has its tree the names of all, and whoever logs in their keys."""
    roots = {host: lab.folder(host) / "root" for host in lab.hosts}
    there = {host: root for host, root in roots.items() if os.path.ismount(root)}
    for root in there.values():
        container.name_hosts(lab, root)
    lines = [f"{h.address},{h.name} {container.host_key(root)}\n" for h, root in there.items()]
    lab.known_hosts.write_text("".join(lines))


def boot(lab: Lab, host: LabHost) -> LabHost:
    """Boot one host that is off, with the disk it had; return it as it runs."""
    with paths.locked(paths.labs() / lab.name):
        lab = _start(state.require(lab.name), state.require(lab.name).host(host.name), {})
    container.wait_for_init(lab.host(host.name))
    return lab.host(host.name)


def wait_for_ssh(
    lab: Lab, hosts: Sequence[LabHost], timeout: float = 60, clock: Clock | None = None
) -> None:
    """Return once sshd of these hosts has sent its banner; raise FleetError naming one that did not."""
    clock = clock or SystemClock()
    end = clock.monotonic() + timeout
    waiting = list(hosts)
    while waiting:
        waiting = [host for host in waiting if not answers(host)]
        off = [host for host in waiting if host.container and not host.container.alive()]
        if off or (waiting and clock.monotonic() > end):
            raise _no_ssh(lab, (off or waiting)[0])
        if waiting:
            clock.sleep(0.05)


def answers(host: LabHost) -> bool:
    """Return whether sshd of the host says its banner within half a second."""
    with suppress(OSError), socket.create_connection((host.address, 22), timeout=0.5) as link:
        link.settimeout(0.5)
        return link.recv(4) == b"SSH-"
    return False


def _no_ssh(lab: Lab, host: LabHost) -> FleetError:
    console = lab.folder(host) / "console.log"
    tail = console.read_text(errors="replace").strip().splitlines()[-8:] if console.exists() else []
    return FleetError(
        "lab-host-silent",
        f"{host.name} does not answer on ssh ({host.address})",
        where=f"lab {lab.name}",
        context=tuple(tail),
        hint=f"its console is {console}; "
        f"fleetctl lab exec --name {lab.name} {host.name} -- systemctl --failed",
    )


def down(name: str) -> bool:
    """Stop a lab's hosts and remove all it left; return whether there was one. Safe to repeat."""
    with paths.locked(paths.labs() / name):
        lab = state.load(name)
        if lab is None:
            return False
        for host in lab.hosts:
            _erase(lab, host)
        network.down(lab.subnet)
        shutil.rmtree(lab.root, ignore_errors=True)
    return True


def drop(name: str, host_name: str) -> bool:
    """Take one host out of a lab; return whether it was there. The others are left alone."""
    with paths.locked(paths.labs() / name):
        lab = state.load(name)
        host = next((h for h in lab.hosts if h.name == host_name), None) if lab else None
        if lab is None or host is None:
            return False
        _erase(lab, host)
        shutil.rmtree(lab.folder(host), ignore_errors=True)
        lab = replace(lab, hosts=tuple(h for h in lab.hosts if h.name != host_name))
        lab.save()
        _introduce(lab)
        site.write(lab)
    return True


def _erase(lab: Lab, host: LabHost) -> None:
    container.kill(host)
    container.unmount(lab, host)
    cgroup.remove(host.machine)
    if os.path.ismount(lab.folder(host) / "root"):
        raise shell.failed(f"taking {host.name} down", "its tree is still mounted and in use")


def sweep(say: Say = quiet) -> list[str]:
    """Take down the labs whose owner is gone; return their names."""
    gone = [lab.name for lab in state.load_all() if lab.owner and not lab.owner.alive()]
    for name in gone:
        say(f"taking down stale lab {name}: its owner is gone")
        down(name)
    return gone
