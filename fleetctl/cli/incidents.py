"""``fleetctl incidents``: what failed, where, how often, and what people said of it."""

from __future__ import annotations

import getpass
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import show
from fleetctl.cli.app import new_app
from fleetctl.clock import SystemClock, rfc3339
from fleetctl.errors import UsageError
from fleetctl.model.incident import Event, EventKind, Occurrence

if TYPE_CHECKING:
    from fleetctl.incidents.store import Store

app = new_app("What failed, where, how often, and what people said of it.")

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on standard output.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="An incident's id, or the beginning of it.")]


def _open() -> Store:
    from fleetctl.incidents.store import open_store

    return open_store()


@app.command("list")
def list_(
    host: Annotated[str, typer.Option(help="Only this host.")] = "",
    label: Annotated[str, typer.Option(help="Only this label.")] = "",
    since: Annotated[str, typer.Option(help="Only from this time on: 12h, 3d or RFC 3339.")] = "",
    group: Annotated[
        bool, typer.Option("--group", help="One line a group of equal failures.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List incidents, the newest last."""
    from fleetctl.report.incident import row

    store = _open()
    groups = store.groups()
    start = _moment(since)
    rows = [
        row(o, groups[o.fingerprint])
        for o in store.occurrences()
        if (not host or o.host == host)
        and (not label or o.triage.get("label") == label)
        and o.observed_at >= start
    ]
    if group:
        rows = list({r["fingerprint"]: r for r in rows}.values())
    if as_json:
        for one in rows:
            show.json_line(one)
        return
    if not rows:
        show.note("no incidents")
        return
    show.out(
        f"{'ID':14} {'WHEN':20} {'SERVICE':22} {'LABEL':24} {'PHASE':14} {'SEEN':>4}  {'STATUS':9} SIGNATURE"
    )
    for one in rows:
        service = f"{one['host']}/{one['service']}"
        show.out(
            f"{one['id']:14} {one['observed_at'][:19]:20} {service:22} {one['label']:24} {one['phase']:14} "
            f"{one['count']:4}  {one['status']:9} {show.safe_line(str(one['signature']))[:70]}"
        )


@app.command("show")
def show_(
    incident: Id,
    format_: Annotated[
        str, typer.Option("--format", help="text or issue (a bug report to paste upstream).")
    ] = "text",
    as_json: Json = False,
) -> None:
    """Show one incident whole."""
    from fleetctl.report.incident import full_text, issue_text

    store = _open()
    occurrence = store.occurrence(incident)
    group = store.group(occurrence.fingerprint)
    if as_json:
        show.json_line(_whole(occurrence) | {"group": asdict(group)})
    elif format_ == "text":
        show.out(full_text(occurrence, group))
    elif format_ == "issue":
        show.out(issue_text(occurrence, group))
    else:
        raise UsageError("unknown-format", f"no format {format_!r}", hint="text or issue")


@app.command()
def ack(
    incident: Id, text: Annotated[str, typer.Option("-m", "--message", help="Why.")] = ""
) -> None:
    """Say that somebody looks after this group of failures."""
    _say(incident, EventKind.ACKED, text)


@app.command()
def assign(incident: Id, person: Annotated[str, typer.Argument(help="Who owns it.")]) -> None:
    """Give a group of failures to somebody."""
    _say(incident, EventKind.ASSIGNED, person)


@app.command()
def comment(incident: Id, text: Annotated[str, typer.Argument(help="What to write.")]) -> None:
    """Add a remark to a group of failures."""
    _say(incident, EventKind.COMMENTED, text)


@app.command()
def link(
    incident: Id, url: Annotated[str, typer.Argument(help="An issue, a pull request, a page.")]
) -> None:
    """Link a group of failures to where it is dealt with."""
    _say(incident, EventKind.LINKED, url)


@app.command()
def resolve(
    incident: Id, text: Annotated[str, typer.Option("-m", "--message", help="What fixed it.")] = ""
) -> None:
    """Close a group; it shows as regressed when it is seen again."""
    _say(incident, EventKind.RESOLVED, text)


@app.command()
def reopen(
    incident: Id, text: Annotated[str, typer.Option("-m", "--message", help="Why.")] = ""
) -> None:
    """Open a resolved group again."""
    _say(incident, EventKind.REOPENED, text)


def _say(incident: str, kind: EventKind, text: str) -> None:
    from fleetctl.remote.redact import redact

    store = _open()
    fingerprint = store.occurrence(incident).fingerprint
    at = rfc3339(SystemClock().now())
    store.add_event(Event(fingerprint, kind, at, getpass.getuser(), redact(text)))
    show.note(f"{kind.value}: {store.group(fingerprint).signature or fingerprint}")


def _whole(occurrence: Occurrence) -> dict[str, Any]:
    from fleetctl.model.incident import SCHEMA

    return {"schema": SCHEMA} | asdict(occurrence)


def _moment(text: str) -> str:
    """Return the RFC 3339 beginning of a period given as 12h, 3d, 30m or a time; "" for none."""
    if not text:
        return ""
    from datetime import datetime, timedelta

    units = {"m": 60, "h": 3600, "d": 86400}
    if text[:-1].isdigit() and text[-1] in units:
        past = timedelta(seconds=int(text[:-1]) * units[text[-1]])
        return rfc3339(SystemClock().now() - past)
    try:
        return rfc3339(datetime.fromisoformat(text))
    except ValueError:
        raise UsageError(
            "bad-time", f"{text!r} is not a time", hint="12h, 3d or 2026-11-29T03:00:00Z"
        ) from None
