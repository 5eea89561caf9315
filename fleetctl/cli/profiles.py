"""``fleetctl profiles``: what can be launched, and where each value of it was written."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import complete, show
from fleetctl.cli.app import new_app
from fleetctl.model.launch import shown

if TYPE_CHECKING:
    from fleetctl.model.fleet import Profile

app = new_app("Launch profiles: list them, show what they merge to, keep a changed one.")

Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Set = Annotated[
    list[str], typer.Option("--set", metavar="FLAG=VALUE", help="Change one value (repeatable).")
]
Unset = Annotated[
    list[str], typer.Option("--unset", metavar="FLAG", help="Take one away (repeatable).")
]
Name = Annotated[str, typer.Argument(metavar="PROFILE", autocompletion=complete.profiles)]


@app.callback()
def group() -> None:
    """Launch profiles: list them, show what they merge to, keep a changed one."""


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the profiles of the site; one that cannot be read is a fault, shown at the end."""
    from fleetctl.config import places
    from fleetctl.config.check import gathered, raise_all
    from fleetctl.config.site import load_site
    from fleetctl.errors import FleetError

    site = load_site()
    if places.only_example():
        show.note("no site is near: this is the packaged example; `fleetctl init` writes yours")
    faults: list[FleetError] = []
    rows: list[tuple[str, str, str]] = []
    for name in site.profile_names():
        try:
            profile = site.profile(name)
        except FleetError as error:
            faults += [e for e in gathered(error) if str(e) not in {str(f) for f in faults}]
            continue
        parents = site.lineage(name)[:-1]
        if as_json:
            show.json_line({"schema": "fleetctl.profile-row/1", "name": name, "model": profile.model,
                            "lineage": parents, "path": str(site.profile_path(name))})  # fmt: skip
        rows.append((name, " < ".join(reversed(parents)), profile.model))
    if not as_json:
        _table([("PROFILE", "EXTENDS", "MODEL"), *rows])
    raise_all(faults)


def _table(rows: list[tuple[str, str, str]]) -> None:
    widths = [max(len(row[n]) for row in rows) for n in range(2)]
    for row in rows:
        show.out(f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip())


@app.command("show")
def show_(
    name: Name,
    sets: Set = [],  # noqa: B006  Typer copies it
    unsets: Unset = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Show what a profile merges to, and where each value was written."""
    from fleetctl.config.site import load_site

    profile = load_site().profile(name, sets, unsets)
    if as_json:
        body = dataclasses.asdict(profile)
        sglang = {"python": body.pop("python"), "schema": body.pop("schema")}
        show.json_line({"schema": "fleetctl.profile/1"} | body | {"sglang": sglang})
        return
    rows = list(_rows(profile))
    width = max(len(text) for text, _ in rows)
    for text, key in rows:
        origin = profile.origins.get(key)
        show.out(f"{text:{width}}  {origin.where if origin else 'default'}")


def _rows(profile: Profile) -> Any:
    """Yield each line and the key of its origin."""
    yield f"model: {profile.model}", "model"
    for name in sorted(profile.flags):
        value = profile.flags[name]
        yield f"--{name}" + ("" if value is True else f" {shown(value)}"), f"flags.{name}"
    for name, ref in sorted(profile.secret_flags.items()):
        yield f"--{name} (secret: {ref.kind} {ref.value})", f"secrets.flags.{name}"
    for name, text in sorted(profile.env.items()):
        yield f"{name}={text}", f"env.{name}"
    for name, ref in sorted(profile.secret_env.items()):
        yield f"{name}=(secret: {ref.kind} {ref.value})", f"secrets.env.{name}"
    yield f"python: {profile.python}", "sglang.python"
    yield f"schema: {_short(profile.schema)}", "sglang.schema"
    yield f"runtime: {profile.runtime}", "runtime"
    for name, value in sorted(profile.unit.items()):
        yield f"unit {name}: {shown(value)}", f"unit.{name}"
    for key in ("diag", "patches"):
        if getattr(profile, key):
            yield f"{key}: {', '.join(getattr(profile, key))}", key


def _short(schema: str) -> str:
    """Return a schema file's path as a person would type it; a version stays as it is."""
    from pathlib import Path

    from fleetctl.config.nodes import shown_path

    return shown_path(Path(schema)) if "/" in schema else schema


@app.command("diff")
def diff(
    before: Annotated[str, typer.Argument(metavar="OLD", autocompletion=complete.profiles)],
    after: Annotated[str, typer.Argument(metavar="NEW", autocompletion=complete.profiles)],
    sets: Set = [],  # noqa: B006
    unsets: Unset = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Show the atoms in which two profiles differ; --set and --unset change the new one."""
    from fleetctl.config.site import load_site
    from fleetctl.render import compare

    site = load_site()
    atoms = compare(site.profile(before), site.profile(after, sets, unsets))
    if as_json:
        show.json_line({"schema": "fleetctl.profile-diff/1", "before": before, "after": after,
                        "atoms": [dataclasses.asdict(a) | {"text": str(a)} for a in atoms]})  # fmt: skip
        return
    for atom in atoms:
        show.out(str(atom))
    show.note(f"{len(atoms)} atom{'' if len(atoms) == 1 else 's'}")


@app.command("save-as")
def save_as_(
    name: Annotated[str, typer.Argument(metavar="NEW", help="The new profile's name.")],
    base: Annotated[
        str,
        typer.Option("--profile", "-p", help="What it extends.", autocompletion=complete.profiles),
    ],
    sets: Set = [],  # noqa: B006
    unsets: Unset = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Write over a profile.")] = False,
    as_json: Json = False,
) -> None:
    """Keep a profile changed by --set and --unset under a name of its own."""
    from fleetctl.config.site import load_site
    from fleetctl.config.write import save_as

    path = save_as(load_site(), name, base, sets, unsets, force=force)
    if as_json:
        show.json_line({"schema": "fleetctl.profile-saved/1", "name": name, "path": str(path)})
    else:
        show.out(f"wrote {path}")
