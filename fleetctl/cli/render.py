"""``fleetctl render``: what a deploy would put on a host, without going there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, options, show
from fleetctl.cli.app import new_app
from fleetctl.cli.profiles import Json, Set, Unset
from fleetctl.cli.selectors import Everything, Selectors, chosen
from fleetctl.errors import Exit

if TYPE_CHECKING:
    from fleetctl.render import Rendered

app = new_app()


@app.command()
def render_(
    profile: Annotated[
        str, typer.Option("--profile", "-p", autocompletion=complete.profiles, help="What to run.")
    ],
    selectors: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    sets: Set = [],  # noqa: B006
    unsets: Unset = [],  # noqa: B006
    systemd: Annotated[
        int, typer.Option(help="The host's systemd; newer settings only from it on.")
    ] = 0,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Write the files below this folder.")
    ] = "",
    sglang: Annotated[
        str,
        typer.Option(
            "--sglang", metavar="VERSION|FILE", help="Lint against it [the profile's own]."
        ),
    ] = "",
    no_lint: options.NoLint = None,
    as_json: Json = False,
) -> int:
    """Show the unit and the files of a launch. Nothing is contacted; secrets are never fetched.

    The profile is linted too, where its SGLang is known: findings go to standard error, exit 1 for errors.
    """
    from fleetctl.cli.lint import remarks
    from fleetctl.config.site import load_site
    from fleetctl.model import nodes
    from fleetctl.render import render

    site = load_site()
    launch = site.profile(profile, sets, unsets)
    sound = remarks(launch, sglang, no_lint or ())
    targets = chosen(site, selectors, everything)
    own = nodes.profiles(launch, targets) if launch.nodes > 1 else {}
    for target in targets:
        mine = own.get(str(target), launch)
        done = render(mine, target, systemd=systemd or None, templates=site.templates())
        if out:
            for path in _write(done, Path(out)):
                show.note(f"wrote {path}")
        if as_json:
            show.json_line(_plain(done))
        elif not out:
            _print(done)
    return int(Exit.OK if sound else Exit.NEGATIVE)


def _print(done: Rendered) -> None:
    for file in done.files:
        show.out(f"# {done.target.host.name}: {file.path} ({file.mode:04o} {file.owner})")
        show.out(file.content)
    for warning in done.warnings:
        show.note(f"warning: {warning}")


def _write(done: Rendered, folder: Path) -> list[Path]:
    from fleetctl.config.write import write_text_as_is

    base = folder / str(done.target.host.name)
    return [write_text_as_is(base / f.path.lstrip("/"), f.content, f.mode) for f in done.files]


def _plain(done: Rendered) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "schema": "fleetctl.rendered/1",
        "host": done.target.host.name,
        "service": done.target.service.name,
        "unit": done.unit,
        "argv": list(done.argv),
        "env": done.env,
        "files": [asdict(f) for f in done.files],
        "config": asdict(done.config),
        "digest": done.config.digest(),
        "complete": done.complete,
        "warnings": list(done.warnings),
    }
