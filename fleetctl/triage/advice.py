"""What to do next where the rule itself does not say: one step for each label."""

from __future__ import annotations

from collections.abc import Iterable

from fleetctl.model.triage import Advice
from fleetctl.triage import xid

_BY_LABEL: dict[str, tuple[Advice, ...]] = {
    "healthy-startup": (Advice("none", "the server is up"),),
    "benign-warning": (Advice("none", "the line looks bad and is harmless"),),
    "request-error": (Advice("tell_client", "one request failed; the server goes on"),),
    "graceful-shutdown": (Advice("none", "somebody asked for the stop"),),
    "external-kill": (
        Advice(
            "find_killer",
            "the process was ended from outside, not by a fault of its own",
            "journalctl -k -b | grep -iE 'oom|killed'",
        ),
        Advice(
            "collect_more",
            "if a stop ran into its time limit, allow more time",
            "systemctl show -p TimeoutStopUSec UNIT",
        ),
    ),
    "host-down": (
        Advice(
            "collect_more",
            "the host went down while it ran: neither the server nor its flags ended it",
            "fleetctl run HOST -- journalctl -b -1 -n 50 --no-pager",
        ),
        Advice("restart_unit", "a service that is not enabled stays down after a boot"),
    ),
    "root-not-in-log": (
        Advice(
            "collect_more",
            "only consequences are here: fetch earlier lines, the other ranks and the kernel log",
            "fleetctl collect HOST",
        ),
    ),
    "hang-healthcheck": (
        Advice(
            "collect_more",
            "take the stacks of all ranks before anybody restarts it",
            "py-spy dump --pid PID",
        ),
        Advice(
            "restart_unit",
            "a long prefill can look like this: look at the last Prefill line first",
            disruptive=True,
        ),
    ),
    "unknown": (Advice("collect_more", "nothing in this log tells", "fleetctl collect HOST"),),
}


def for_label(label: str) -> tuple[Advice, ...]:
    """Return the next steps of a label that needs no rule, or none."""
    return _BY_LABEL.get(label, ())


_COMMANDS = {
    "restart_unit": "systemctl restart UNIT",
    "reset_gpu": "nvidia-smi --gpu-reset -i GPU",
    "reboot_host": "systemctl reboot",
}


def for_xids(lines: Iterable[str]) -> tuple[Advice, ...]:
    """Return the next steps that the driver's own lines ask for, or none.

    The newest Xid 154 decides where there is one, else the heaviest action of the catalogue.
    """
    found = [x for x in map(xid.parse, lines) if x is not None]
    action = xid.action_for(found)
    if action == "none":
        return ()
    table = xid.catalogue()
    said = dict.fromkeys(
        f"Xid {x.code} on {x.pci}: {table[x.code].meaning}" for x in found if x.code in table
    )
    cards = {x.pci for x in found}
    command = _COMMANDS.get(action)
    if command is not None and len(cards) == 1:
        command = command.replace("GPU", cards.pop())
    light = ("follow_message", "restart_unit")
    steps = [Advice("drain_host", "take the host out of service first", None, disruptive=True)]
    return (
        *(steps if action not in light else ()),
        Advice(action, "; ".join(list(said)[:3]), command, disruptive=True),
        Advice("inspect_hardware", "if it comes back on the same card after that"),
    )
