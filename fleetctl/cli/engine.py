"""``fleetctl engine``: SGLang releases on hosts, side by side; the profile says which one runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import app as root
from fleetctl.cli import patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everything, Selectors, patterns_of
from fleetctl.errors import Exit, FleetError

if TYPE_CHECKING:
    from fleetctl.apply.session import Session
    from fleetctl.model.facts import PatchNote
    from fleetctl.model.fleet import Host

app = new_app("SGLang releases on hosts, side by side: install, list, remove, bundle.")
Json = Annotated[bool, typer.Option("--json", help="Print a JSON line for each.")]
SCHEMA = "fleetctl.engine/1"
What = Annotated[
    str,
    typer.Argument(
        metavar="VERSION|BUNDLE|git+URL@SHA", help="What to install.", show_default=False
    ),
]
Work = Callable[["Session", "Host"], list[dict[str, Any]]]


@app.command()
def install(
    what: What,
    hosts: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    name: Annotated[str, typer.Option(help="Its folder below /opt/sglang [the version].")] = "",
    python: Annotated[str, typer.Option(help="The host's Python that the venv is made of.")] = "",
    index: Annotated[str, typer.Option("--index-url", help="A package index of your own.")] = "",
    as_json: Json = False,
) -> int:
    """Install SGLang on hosts in a venv of its own, verified; what runs is not touched.

    A second run changes nothing. A profile chooses it by ``sglang: {python: /opt/sglang/NAME/bin/python}``.
    """
    from fleetctl.fleet import engines

    asked = engines.source(what, name)

    def work(session: Session, host: Host) -> list[dict[str, Any]]:
        def tell(event: dict[str, Any]) -> None:
            show.note(f"{host.name}: {event['do'].removeprefix('engine-')} {event['target']}")

        return [engines.install(session, host, asked, tell, python=python, index=index)]

    return _each(hosts, everything, as_json, work)


@app.command("list")
def list_(
    hosts: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    as_json: Json = False,
) -> int:
    """List the engines of hosts, and which services use them or could be rolled back to them."""
    from fleetctl.fleet import engines

    return _each(hosts, everything, as_json, lambda session, _: engines.listed(session))


@app.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    hosts: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everything = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that only kept revisions name.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Remove an engine. One that a service runs from stays, whatever is said."""
    from fleetctl.fleet import engines

    return _each(
        hosts, everything, as_json,
        lambda session, host: [engines.remove(session, host, name, force=force)],
    )  # fmt: skip


@app.command()
def bundle(
    what: Annotated[str, typer.Argument(metavar="VERSION|WHEEL|git+URL@SHA", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write it here.")],
    python: Annotated[str, typer.Option(help="The hosts' Python, 3.12 say.")] = "",
    platform: Annotated[
        list[str] | None, typer.Option(help="The hosts' platform, manylinux_2_28_x86_64 say.")
    ] = None,
    index: Annotated[str, typer.Option("--index-url", help="A package index of your own.")] = "",
    find_links: Annotated[str, typer.Option(help="A folder of wheels to look in too.")] = "",
    no_index: Annotated[bool, typer.Option("--no-index", help="Only look in that folder.")] = False,
    name: Annotated[str, typer.Option(help="Its name on hosts [the version].")] = "",
    as_json: Json = False,
) -> int:
    """Pack SGLang and all it needs into one file, for hosts without network. Several GB for a release."""
    from fleetctl.fleet import engines

    options = ["--python-version", python] if python else []
    options += [w for p in platform or () for w in ("--platform", p)]
    options += ["--only-binary=:all:"] if python or platform else []
    options += ["--index-url", index] if index else []
    options += ["--find-links", find_links] if find_links else []
    options += ["--no-index"] if no_index else []
    manifest = engines.bundle(what, out, options, name)
    if as_json:
        show.json_line(manifest | {"path": str(out)})
    else:
        count, size = len(manifest["files"]), manifest["bytes"] / 1024**2
        show.out(f"{out}: {manifest['requirement']} with {count} files, {size:.1f} MiB")
    return int(Exit.OK)


def _each(hosts: list[str], everything: bool, as_json: bool, work: Work) -> int:
    from fleetctl.apply import together
    from fleetctl.apply.session import NOTING, Session
    from fleetctl.fleet.selection import hosts_of

    found = {host.name: host for host in hosts_of(*patterns_of(hosts, everything))}
    noted: list[tuple[str, tuple[PatchNote, ...]]] = []

    def one(name: str) -> int:
        host = found[name]
        try:
            modules = ("engine", *NOTING)
            with Session(host, stop=hosts_.stop, modules=modules).noting() as session:
                lines = work(session, host)
                noted.extend(session.noted)
        except FleetError as error:
            error.where = error.where or name
            root.report(error, as_json=as_json)
            return int(error.exit_code)
        for line in lines:
            whole = {"schema": SCHEMA, "host": name} | line
            if as_json:
                show.json_line(whole)
            else:
                show.out(show.safe_line(_text(whole)))
        if not lines and not as_json:
            show.out(f"{name}: no engine below /opt/sglang")
        return int(Exit.OK)

    with together.crew() as hosts_:
        codes = set(hosts_.each(one, list(found)))
    patch_notes.tell(noted)
    return codes.pop() if len(codes) == 1 else int(Exit.NEGATIVE)


def _text(line: dict[str, Any]) -> str:
    parts = [f"{line['host']}: {line['name']}"]
    if line.get("state"):
        parts.append(line["state"])
    parts += [f"{k} {v}" for k, v in (line.get("versions") or {}).items()]
    if line.get("interpreter"):
        parts.append(str(line["interpreter"]))
    used = line.get("used_by") or {}
    if used.get("units"):
        parts.append(f"runs {', '.join(used['units'])}")
    return "  ".join(parts)
