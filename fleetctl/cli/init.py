"""``fleetctl init``: a first inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app

app = new_app()


@app.command()
def init(
    hosts: Annotated[
        list[str], typer.Argument(metavar="[HOST]...", help="Default: every Host of ssh_config.")
    ] = [],  # noqa: B006  Typer copies it
    folder: Annotated[str, typer.Option("--dir", help="Where inventories/ goes.")] = ".",
    name: Annotated[str, typer.Option(help="The site's name.")] = "site",
    ssh_config: Annotated[str, typer.Option(help="What to read.")] = "~/.ssh/config",
    model: Annotated[str, typer.Option(help="Write a first profile with this model too.")] = "",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each host.")] = 0,
    sudo: Annotated[bool, typer.Option("--sudo", help="Become root by `sudo -n` there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Write a first inventory from the hosts of ~/.ssh/config, or from the names given."""
    from fleetctl.config.ssh_import import aliases, write_inventory

    named = [] if hosts else list(aliases(Path(ssh_config).expanduser()))
    found = hosts or [word for word, why in named if not why]
    left = {word: why for word, why in named if why and word != "*"}
    for word, why in left.items():
        show.note(f"left out: {word} ({why})")
    written = write_inventory(
        Path(folder) / "inventories" / name, found, model=model, gpus=gpus, sudo=sudo
    )
    if as_json:
        show.json_line({"schema": "fleetctl.init/1", "hosts": list(dict.fromkeys(found)),
                        "left_out": left, "files": [str(p) for p in written]})  # fmt: skip
        return
    for path in written:
        show.out(f"wrote {path}")
    show.note(
        f"{len(dict.fromkeys(found))} hosts; take out what is no GPU host, then `fleetctl hosts list`"
    )
