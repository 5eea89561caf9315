"""``fleetctl fetch``: a file of many hosts, packed on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetctl.cli import options, patch_notes, show
from fleetctl.cli.app import new_app
from fleetctl.cli.selectors import Everywhere, Selectors, patterns_of
from fleetctl.errors import FleetError, UsageError

if TYPE_CHECKING:
    from fleetctl.model.facts import PatchNote
    from fleetctl.model.fleet import Host
    from fleetctl.transport.fetch import Fetched

app = new_app()


@app.command(
    epilog="Each host's file is written as TO/HOST/NAME, whole or not at all, byte for byte as it is "
    "there: secrets in it stay in it. `fleetctl collect` fetches redacted evidence.",
)
def fetch(
    selectors: Selectors = [],  # noqa: B006  Typer copies it
    path: Annotated[
        str, typer.Argument(help="The file there; ~/ is the home there.", show_default=False)
    ] = "",
    everything: Everywhere = False,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="Where to put it.")] = Path(),
    limit: Annotated[int, typer.Option(metavar="MIB", min=1, help="Cut a file there.")] = 4096,
    connect_timeout: options.ConnectTimeout = 10.0,
    workers: Annotated[int, typer.Option(min=1, max=500, help="Hosts at once.")] = 50,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line a host, as they finish.")
    ] = False,
) -> int:
    """Copy a file of each host here, packed by zstd on the way."""
    from fleetctl.fleet import fanout
    from fleetctl.fleet.run import NOTES, noted
    from fleetctl.fleet.selection import hosts_of
    from fleetctl.transport import connect, load
    from fleetctl.transport.fetch import fetch_file

    if not path.strip("/"):
        raise UsageError("no-path", "no file is named", hint="fleetctl fetch @b300 /var/log/dmesg")
    hosts = hosts_of(*patterns_of(selectors, everything))
    load(hosts)
    name = Path(path).name
    notes: list[tuple[str, tuple[PatchNote, ...]]] = []

    def work(host: Host) -> Fetched:
        def heard(stderr: bytes) -> bytes:
            own, found = noted(stderr)
            notes.extend(patch_notes.of_host(host.name, found))
            return own

        connection = connect(host, connect_timeout, ask=len(hosts) == 1)
        try:
            return fetch_file(
                connection, path, to / host.name / name, limit=limit * 1024**2,
                before=NOTES, heard=heard,
            )  # fmt: skip
        finally:
            connection.close()

    codes = []
    for item in fanout.fan_out(hosts, work, workers):
        codes.append(int(item[1].exit_code) if isinstance(item[1], FleetError) else 0)
        _show(*item, as_json=as_json)
    patch_notes.tell(notes)
    return fanout.common_exit(codes)


def _show(host: Host, answer: Fetched | FleetError, *, as_json: bool) -> None:
    if as_json:
        show.json_line({"schema": "fleetctl.fetch/1", "host": host.name, **_fields(answer)})
    elif isinstance(answer, FleetError):
        show.fault(answer)
    else:
        cut = ", cut" if answer.truncated else ""
        show.out(
            f"{answer.path}  {answer.size} bytes{cut}, {answer.wire} on the wire ({answer.packer})"
        )


def _fields(answer: Fetched | FleetError) -> dict[str, Any]:
    if isinstance(answer, FleetError):
        return {"path": None, "error": answer.reference, "message": answer.message}
    return {
        "path": str(answer.path), "bytes": answer.size, "wire_bytes": answer.wire,
        "packer": answer.packer, "seconds": round(answer.seconds, 4),
        "truncated": answer.truncated, "error": None,
    }  # fmt: skip
