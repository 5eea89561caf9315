"""``fleetctl lab``: disposable hosts on this computer."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app

app = new_app(
    "Disposable systemd hosts on this computer: real sshd, real journald, real or replayed SGLang."
)

NAME = typer.Option("lab", "--name", "-n", envvar="FLEETCTL_LAB", help="Which lab.")
JSON = typer.Option(False, "--json", help="Print one documented object.")


@app.command()
def up(
    host: list[str] = typer.Option(
        [],
        "--host",
        metavar="NAME=ENGINE[:VERSION]",
        help="A host: bare, replay:0.5.12.post1, sglang:0.5.12.post1 (+graphcopy adds that lever).",
    ),
    name: str = NAME,
    owner: int | None = typer.Option(
        None, "--owner", metavar="PID", help="Stale once PID is gone."
    ),
    as_json: bool = JSON,
) -> None:
    """Bring a lab up, or add hosts to it; what runs already is left alone."""
    from fleetctl.lab import bed, spec, status

    lab = bed.up(name, spec.parse_hosts(host), owner=owner, say=show.note)
    _print(status.describe(lab), as_json)


@app.command()
def status(
    name: str = typer.Option("", "--name", "-n", help="One lab."), as_json: bool = JSON
) -> None:
    """Show the labs of this computer: hosts, addresses, keys, where the site is."""
    from fleetctl.lab import state
    from fleetctl.lab import status as lab_status

    labs = [state.require(name)] if name else state.load_all()
    described = [lab_status.describe(lab) for lab in labs]
    if as_json:
        show.json_line(described[0] if name else {"schema": "fleetctl.labs/1", "labs": described})
        return
    for one in described:
        _print(one, as_json=False)
    if not described:
        show.note("no lab is up; start one: fleetctl lab up --host lab-01=replay")


def _print(lab: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.json_line(lab)
        return
    for host in lab["hosts"]:
        engine = f"{host['engine']}:{host['version']}" if host["version"] else host["engine"]
        show.out(
            f"{lab['name']}  {host['name']:<10} {host['address']:<14} {host['state']:<4} {engine}"
        )
    show.out(f"site: {lab['site']}    ({lab['ssh']})")


@app.command()
def down(
    name: str = NAME,
    stale: bool = typer.Option(False, "--stale", help="Only labs whose owner is gone."),
    every: bool = typer.Option(False, "--all", help="Every lab of this computer."),
) -> None:
    """Take a lab down and remove all it left. Safe to repeat."""
    from fleetctl.lab import bed, state

    if stale:
        for gone in bed.sweep(show.note) or ["nothing"]:
            show.out(f"removed {gone}")
        return
    for one in [lab.name for lab in state.load_all()] if every else [name]:
        show.out(f"removed {one}" if bed.down(one) else f"no lab named {one}")


@app.command()
def prepare(
    engine: list[str] = typer.Argument(
        metavar="ENGINE[:VERSION]…", help="replay, sglang:0.5.12.post1 …"
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be fetched."),
) -> None:
    """Build what hosts of these engines need, so that `lab up` fetches nothing."""
    from fleetctl.lab import layers, needs, spec

    hosts = spec.parse_hosts([f"h{n}={text}" for n, text in enumerate(engine)])
    if dry_run:
        for what in layers.missing(hosts):
            show.out(what)
        return
    needs.require()
    for host in hosts:
        layers.ensure(host, show.note)


@app.command()
def prune(
    days: float = typer.Option(7, "--days", min=0, help="Not used for so long."),
) -> None:
    """Remove layers from the cache that no host uses and nobody asked for lately."""
    from fleetctl.lab import layers

    for gone in layers.prune(days) or ["nothing"]:
        show.out(f"removed {gone}")


@app.command("exec", context_settings={"ignore_unknown_options": True})
def run_inside(
    host: str, command: list[str] = typer.Argument(metavar="-- COMMAND…"), name: str = NAME
) -> None:
    """Run a command as root on a host's console: works without network and without sshd."""
    from fleetctl.lab import container, state

    lab = state.require(name)
    argv = container.enter(lab.host(host), command)
    raise typer.Exit(subprocess.run(argv, check=False, env=dict(os.environ)).returncode)


@app.command()
def fault(
    host: str,
    name_of_fault: str = typer.Argument("", metavar="FAULT", help="Without one: list them."),
    name: str = NAME,
    port: int = typer.Option(22, "--port", help="Of refuse and drop."),
    path: str = typer.Option("", "--path", help="Folder of disk-full."),
    size: str = typer.Option(
        "0", "--size", help="Bytes left by disk-full, memory of memory (64k, 300M)."
    ),
    percent: int = typer.Option(30, "--percent", min=1, max=100, help="Of loss."),
    rate: str = typer.Option("64kbit", "--rate", help="Of slow."),
) -> None:
    """Make a fault on a host, or take it back: cable, packets, power, PID 1, disk, memory."""
    from fleetctl.lab import faults, spec, state

    if not name_of_fault:
        for known, what in faults.FAULTS.items():
            show.out(f"{known:<10} {what.seen}")
        return
    lab = state.require(name)
    order = faults.Order(port, path, spec.parse_size(size), percent, rate)
    faults.cause(lab, lab.host(host), name_of_fault, order)
    show.note(f"{host}: {faults.FAULTS[name_of_fault].done(order)}")


@app.command()
def scenario(
    host: str,
    file: str = typer.Argument(
        "", help="A TOML file or a shipped name; without one: what the host has."
    ),
    name: str = NAME,
    speed: float | None = typer.Option(
        None, "--speed", min=0, help="Times as fast as recorded; 0: at once."
    ),
) -> None:
    """Tell a replay host what its starts come to (docs/howto/lab.md describes the file)."""
    from fleetctl.lab import scenarios, state

    lab = state.require(name)
    if file:
        scenarios.give(lab, lab.host(host), file, speed)
    show.out(scenarios.current(lab, lab.host(host)))
