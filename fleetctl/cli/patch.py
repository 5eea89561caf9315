"""``fleetctl patch``: what patches there are, whether they fit a version, and a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.errors import Exit, UsageError

if TYPE_CHECKING:
    from fleetctl.patching.anchors import Checked
    from fleetctl.patching.model import Patch

HELP = """Diagnostic patches: pushed in seconds, proven active, gone when their time is over.

A patch is a folder with patch.toml (docs/reference/patch-toml.md). The site's own come first.
"""
app = new_app(HELP)

Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Name = Annotated[str, typer.Argument(metavar="PATCH", autocompletion=complete.patches)]
Params = Annotated[
    list[str],
    typer.Option("--param", metavar="NAME=VALUE", help="Set one parameter (repeatable)."),
]


@app.callback()
def group() -> None:
    """Diagnostic patches: pushed in seconds, proven active, gone when their time is over."""


def site_root() -> Path | None:
    """Return the site's folder, or None where there is none."""
    from fleetctl.config import places
    from fleetctl.errors import ConfigError

    try:
        return places.site_folder()
    except ConfigError:
        return None


def pairs(options: list[str]) -> dict[str, str]:
    """Return ``--param`` options as a mapping. Raises UsageError ``wrong-parameter``."""
    found = {}
    for option in options:
        name, mark, value = option.partition("=")
        if not mark or not name:
            raise UsageError("wrong-parameter", f"{option!r}: NAME=VALUE is wanted")
        found[name] = value
    return found


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the patches of the site and the shipped ones; a broken one is shown as a fault at the end."""
    from fleetctl.config.check import gathered, raise_all
    from fleetctl.errors import FleetError
    from fleetctl.patching import catalog

    faults: list[FleetError] = []
    for name, patch in catalog.each(site_root()):
        if isinstance(patch, FleetError):
            faults += gathered(patch)
        elif as_json:
            show.json_line({"schema": "fleetctl.patch-row/1", **_row(patch)})
        else:
            show.out(f"{name:22}  {patch.rung:11}  {patch.sglang:14}  {patch.summary}")
    raise_all(faults)


def _row(patch: Patch) -> dict[str, Any]:
    from fleetctl.patching import catalog

    return {
        "name": patch.name, "summary": patch.summary, "sglang": patch.sglang,
        "rung": patch.rung, "expire": patch.expire, "at_expiry": patch.at_expiry,
        "shipped": catalog.shipped(patch), "folder": str(patch.folder),
    }  # fmt: skip


@app.command("show")
def show_(name: Name, as_json: Json = False) -> None:
    """Show what a patch is for, where it goes, what it prints and what its silence means."""
    from fleetctl.patching import catalog

    patch = catalog.find(name, site_root())
    if as_json:
        show.json_line({
            "schema": "fleetctl.patch-show/1", **_row(patch), "why": patch.why,
            "tried": patch.tried, "targets": [str(t) for t in patch.targets],
            "diffs": [d.file for d in patch.diffs], "environment": dict(patch.environment),
            "parameters": {p.name: {"default": p.default, "help": p.help} for p in patch.parameters},
            "captures": dict(patch.marker.captures), "silent": patch.marker.silent,
        })  # fmt: skip
        return
    for line in _described(patch):
        show.out(line)


def _described(patch: Patch) -> list[str]:
    lines = [f"{patch.name}: {patch.summary}", patch.why.strip(), ""]
    lines += [
        f"for sglang {patch.sglang}, tried on {', '.join(patch.tried) or 'none'}",
        f"{patch.rung}, {patch.expire / 3600:g} h, then {patch.at_expiry}; {patch.folder}",
    ]
    lines += [f"  instruments {t}" + (f" ({t.sglang})" if t.sglang else "") for t in patch.targets]
    lines += [f"  applies {d.file} ({d.sglang})" for d in patch.diffs]
    lines += [f"  sets {name}={value}" for name, value in patch.environment]
    lines += [f"  --param {p.name}={p.default}  {p.help}" for p in patch.parameters]
    lines += [f"  says {name}: {meaning}" for name, meaning in patch.marker.captures]
    return lines + ([f"  silence means: {patch.marker.silent}"] if patch.marker.silent else [])


@app.command()
def check(
    name: Name,
    versions: Annotated[
        list[str],
        typer.Option("--sglang", metavar="VERSION", help="A version (repeatable)."),
    ],
    params: Params = [],  # noqa: B006  Typer copies it
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FOLDER", help="Also write the patched files there."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Verify a patch against the sources of versions, without a host.

    The wheel is fetched into the cache when it is not there; nothing is installed.
    """
    from fleetctl.patching import anchors, catalog, wheels

    patch = catalog.find(name, site_root())
    good = True
    for version in versions:
        tree = wheels.tree(version, show.note)
        result = anchors.check(patch, version, tree, pairs(params))
        good = good and result.ok
        if as_json:
            show.json_line(result.to_json())
        else:
            _print_check(result)
        if write is not None and result.ok:
            for path in anchors.write(patch, version, tree, write, pairs(params)):
                show.note(f"wrote {path}")
    return int(Exit.OK if good else Exit.NEGATIVE)


def _print_check(result: Checked) -> None:
    show.out(f"{result.name} on sglang {result.version}: {'ok' if result.ok else 'does not fit'}")
    if result.problem:
        show.out(f"  {result.problem}")
    for anchor in result.anchors:
        place = f"{anchor.file}:{anchor.line}" if anchor.ok else anchor.file
        show.out(
            f"  {'ok' if anchor.ok else '--'}  {place}  {anchor.symbol}  {anchor.problem}".rstrip()
        )


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new patch's name.")],
    symbol: Annotated[
        str,
        typer.Option("--symbol", metavar="MODULE:NAME", help="The function to instrument."),
    ],
    sglang: Annotated[
        str, typer.Option("--sglang", metavar="SPECIFIER", help="The versions it is for.")
    ] = ">=0.5.9,<0.6",
    as_json: Json = False,
) -> None:
    """Write a first patch for a function into the site's patches/, ready for `patch check`."""
    from fleetctl.patching import loader, scaffold

    root = site_root()
    if root is None:
        raise UsageError(
            "no-site", "a site is wanted, whose patches/ gets it", hint="fleetctl init"
        )
    written = scaffold.write(root / "patches", name, symbol, sglang)
    loader.load(root / "patches" / name)
    if as_json:
        files = [str(p) for p in written]
        show.json_line({"schema": "fleetctl.patch-new/1", "name": name, "files": files})
        return
    for path in written:
        show.out(f"wrote {path}")
    show.note(f"next: fleetctl patch check {name} --sglang VERSION")


from fleetctl.cli import patch_hosts  # noqa: E402, F401  its verbs belong to this command
