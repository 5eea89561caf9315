"""``fleetctl triage``: name what broke a server, from logs and bundles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app
from fleetctl.errors import ConfigError, Exit

if TYPE_CHECKING:
    from fleetctl.model.triage import Triage

app = new_app()


@app.command()
def triage(
    paths: list[str] = typer.Argument(
        ..., metavar="PATH…", help="Log files, bundle folders, or - for standard input."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a path, one line each."),
    explain_fingerprint: bool = typer.Option(
        False, "--explain-fingerprint", help="Show what the fingerprint was made of."
    ),
    rules: list[Path] = typer.Option(
        [], "--rules", metavar="DIR", help="Further rule packs (may be repeated)."
    ),
    record: bool = typer.Option(
        False, "--record", help="Put crashes and hangs in the incident log."
    ),
) -> int:
    """Find the root of a crash in logs of any form, in bundles, or in standard input."""
    from fleetctl.cli import rule_sets, triage_text
    from fleetctl.config import places
    from fleetctl.evidence.source import UnreadableError
    from fleetctl.triage import Context, explain_path

    context = Context(rules=rule_sets.chosen(rules), cache=places.cache() / "scan")
    code = Exit.OK
    unreadable = False
    for number, path in enumerate(paths):
        try:
            found = explain_path(path, context)
        except UnreadableError as error:
            unreadable = True
            _unreadable(path, str(error), as_json=as_json)
            continue
        bad = found.triage.crash or found.triage.state == "hung"
        code = Exit.NEGATIVE if bad else code
        if record and bad:
            unreadable = not _recorded(path, found.triage, as_json=as_json) or unreadable
        if as_json:
            body = found.triage.to_json(path)
            if explain_fingerprint:
                body["fingerprint_parts"] = [
                    {"part": k, "value": v} for k, v in found.identity.parts
                ]
            show.json_line(body)
            continue
        if number:
            show.out()
        show.out(triage_text.render(path, found, parts=explain_fingerprint))
    return int(Exit.CONFIG if unreadable else code)


def _recorded(path: str, found: Triage, *, as_json: bool) -> bool:
    """Record a crash and return whether its bundle could be; what triage found is shown all the same."""
    from fleetctl.cli.app import report

    try:
        _record(path, found)
    except ConfigError as error:
        report(error, as_json=as_json)
        return False
    return True


def _record(path: str, found: Triage) -> None:
    """Record a bundle under its host and invocation, a bare log under its content."""
    from fleetctl import __version__
    from fleetctl.apply import evidence
    from fleetctl.clock import SystemClock, rfc3339
    from fleetctl.incidents import intake
    from fleetctl.incidents.store import open_store

    if (Path(path) / "manifest.json").is_file():
        said = evidence.read_manifest(Path(path))
        name, _ = evidence.record(str(said["host"]), said, Path(path), found.to_json(path))
    else:
        store = open_store()
        try:
            now = rfc3339(SystemClock().now())
            name = intake.record_log(path, found, store, version=__version__, now=now)
        finally:
            store.close()
    show.note(f"recorded as {name}")


def _unreadable(path: str, why: str, *, as_json: bool) -> None:
    if as_json:
        show.json_line({"path": path, "error": why})
    else:
        show.note(f"error[unreadable]: {show.safe_line(path)}: {why}")
