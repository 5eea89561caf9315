"""``fleetctl hosts trust``: the first contact with machines, by their key's fingerprint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli import show
from fleetctl.cli.selectors import Everywhere, Selectors, patterns_of
from fleetctl.cli.spans import at_least
from fleetctl.errors import Exit, FleetError, ManyErrors, RefusedError, UsageError

if TYPE_CHECKING:
    from fleetctl.model.fleet import Host
    from fleetctl.transport.first_contact import Shown

UNASKED = (
    ": without a terminal nobody is asked; --yes believes what is shown, --fingerprint compares it"
)


def trust(
    selectors: Selectors = [],  # noqa: B006  Typer copies it
    everything: Everywhere = False,
    fingerprint: Annotated[
        str,
        typer.Option(metavar="SHA256:…", help="What the one host's key must be; nobody is asked."),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Believe what is shown, unasked.")
    ] = False,
    connect_timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=at_least(0.1), help="For the way to each host."),
    ] = 10.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON line a host; needs --yes.")
    ] = False,
) -> int:
    """Show the hosts' keys, ask, and write new ones to known_hosts.

    A key that changed is refused, and both are shown. Compare a fingerprint with what the machine
    says on its own console: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub
    """
    from fleetctl.fleet.selection import hosts_of

    hosts = hosts_of(*patterns_of(selectors, everything))
    if fingerprint and len(hosts) != 1:
        raise UsageError("one-host", f"--fingerprint is for one host, not {len(hosts)}")
    if as_json and not (yes or fingerprint):
        raise UsageError("needs-yes", "--json asks nobody", hint="add --yes or --fingerprint")
    shown, faults = _look(hosts, connect_timeout)
    if not as_json:
        for one in shown:
            show.out(f"{one.host.name:<24} {one.state:<8} {one.kind:<20} {one.fingerprint}")
    new = _believable(shown, faults)
    if fingerprint:
        _compare(shown, fingerprint)
    believed = bool(new) and _agreed(new, yes=yes or bool(fingerprint), as_json=as_json)
    files = {one.host.name: _write(one) for one in new} if believed else {}
    _tell(shown, files, as_json=as_json)
    if faults:
        raise faults[0] if len(faults) == 1 else ManyErrors(faults)
    return int(Exit.OK if believed or not new else Exit.NEGATIVE)


def _look(hosts: list[Host], timeout: float) -> tuple[list[Shown], list[FleetError]]:
    """Ask all hosts at once; return keys in the inventory's order, and faults."""
    from fleetctl.fleet.fanout import fan_out
    from fleetctl.transport import first_contact

    remote = [h for h in hosts if h.transport == "ssh"]
    found = fan_out(remote, lambda host: first_contact.look(host, timeout))
    answers = {host.name: answer for host, answer in found}
    ordered = [answers[h.name] for h in remote]
    faults = [a for a in ordered if isinstance(a, FleetError)]
    return [a for a in ordered if not isinstance(a, FleetError)], faults


def _believable(shown: list[Shown], faults: list[FleetError]) -> list[Shown]:
    """Return the new keys; changed and revoked ones become faults."""
    from fleetctl.transport import first_contact

    new = []
    for one in shown:
        try:
            first_contact.refuse(one)
        except RefusedError as error:
            faults.append(error)
        else:
            new += [one] if one.state == "new" else []
    return new


def _compare(shown: list[Shown], fingerprint: str) -> None:
    for one in shown:
        if one.fingerprint != fingerprint:
            raise RefusedError(
                "wrong-fingerprint", f"it shows {one.fingerprint}, not {fingerprint}",
                where=one.host.name, hint="this may not be the machine; nothing was written",
            )  # fmt: skip


def _agreed(new: list[Shown], *, yes: bool, as_json: bool) -> bool:
    count = "this key" if len(new) == 1 else f"these {len(new)} new keys"
    return show.confirm(f"Believe {count} from now on?", yes=yes, as_json=as_json)


def _write(one: Shown) -> str:
    from fleetctl.transport import first_contact

    return first_contact.believe(one)


def _tell(shown: list[Shown], files: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        for one in shown:
            show.json_line({
                "schema": "fleetctl.hosts-trust/1", "host": one.host.name, "state": one.state,
                "kind": one.kind, "fingerprint": one.fingerprint, "file": files.get(one.host.name),
            })  # fmt: skip
    elif files:
        for file in dict.fromkeys(files.values()):
            show.note(f"written to {file}")
    elif any(one.state == "new" for one in shown):
        show.note("nothing was written" + ("" if sys.stdin.isatty() else UNASKED))
