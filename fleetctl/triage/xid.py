"""What an Xid line of the NVIDIA driver says, and what to do about it.

The catalogue is ``data/xid.csv``; its ``source`` column names the keys of ``SOURCES``. A site may
override ``our_action`` with a CSV of two columns, ``code`` and ``our_action``. A code that no
source describes is not in the catalogue: its text is shown as it is, without advice.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

SOURCES = {
    "nvidia-catalog": "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    "nvsentinel": "https://github.com/NVIDIA/NVSentinel (charts/gpu-health-monitor/xiderrorsmapping.csv)",
    "driver-message": "the text of the line itself: old and new recovery action as hex",
}

ACTIONS = (  # light to heavy
    "none", "follow_message", "restart_unit", "drain_p2p", "reset_gpu", "reboot_host",
    "inspect_hardware", "contact_support",
)  # fmt: skip

# Xid 154 names the recovery action as a number; its words differ between driver branches.
RECOVERY = {0: "none", 1: "reset_gpu", 2: "reboot_host", 3: "drain_p2p", 4: "reset_gpu"}

_LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\): (?P<code>\d{1,4}), ?"
    r"(?:pid='?(?P<pid>\d+|<unknown>)'?, )?(?:name=(?P<name>[^,]{0,64}), )?(?P<text>.{0,500})"
)
_RECOVERY = re.compile(
    r"recovery action changed from 0x[0-9a-f]+ \([^)]{0,40}\) to 0x(?P<new>[0-9a-f]+)",
    re.IGNORECASE,
)
_LINK5 = re.compile(
    r"(?P<unit>[A-Z0-9_]{2,40}) (?P<severity>Fatal|Nonfatal) (?P<cross>XC\d) i\d+ Link (?P<link>-?\d+) "
    r"\((?P<info>0x[0-9a-f]{1,8}) (?P<status>0x[0-9a-f]{1,8})"
)
# The driver says these without a code (Xid 79's event in other words).
_LOST = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\S{0,2}:? ?"
    r"(?:GPU )?has fallen off the bus"
)


@dataclass(frozen=True, slots=True)
class Link5:
    """The further words of Xid 144 to 150 (NVLink 5): unit, link, and the sub-code of the first word."""

    unit: str
    fatal: bool
    link: int
    sub_code: int
    error_status: int


@dataclass(frozen=True, slots=True)
class XidLine:
    """One line of the kernel log. ``pid`` is None where the driver did not know it."""

    code: int
    pci: str
    text: str
    pid: int | None = None
    process: str | None = None
    recovery: str | None = None  # an action, from Xid 154
    link5: Link5 | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the catalogue."""

    code: int
    mnemonic: str
    meaning: str
    nvidia_immediate: str
    nvidia_followup: str
    our_action: str
    hardware: bool
    source: str


def parse(line: str) -> XidLine | None:
    """Return what a kernel line says, or None when it is no Xid line."""
    found = _LINE.search(line)
    if not found:
        lost = _LOST.search(line)
        return XidLine(79, lost["pci"].rstrip(":."), "GPU has fallen off the bus") if lost else None
    text, code = found["text"].strip(), int(found["code"])
    return XidLine(
        code=code,
        pci=found["pci"],
        text=text,
        pid=int(found["pid"]) if (found["pid"] or "").isdigit() else None,
        process=found["name"] if found["name"] not in (None, "<unknown>") else None,
        recovery=_recovery(text) if code == 154 else None,
        link5=_link5(text) if 144 <= code <= 150 else None,
    )


def _recovery(text: str) -> str | None:
    found = _RECOVERY.search(text)
    return RECOVERY.get(int(found["new"], 16), "contact_support") if found else None


def _link5(text: str) -> Link5 | None:
    found = _LINK5.search(text)
    if not found:
        return None
    info = int(found["info"], 16)
    return Link5(
        unit=found["unit"],
        fatal=found["severity"] == "Fatal",
        link=int(found["link"]),
        sub_code=info >> 20 & 0x3F,
        error_status=int(found["status"], 16),
    )


@functools.cache
def catalogue() -> dict[int, Entry]:
    """Return the shipped catalogue by code."""
    text = importlib.resources.files("fleetctl.triage").joinpath("data/xid.csv").read_text("utf-8")
    entries = (
        Entry(int(row.pop("code")), hardware=row.pop("hardware") == "yes", **row)
        for row in csv.DictReader(text.splitlines())
    )
    return {entry.code: entry for entry in entries}


def overridden(text: str) -> dict[int, Entry]:
    """Return the catalogue with the actions of a site's CSV (``code,our_action``).

    Raise ValueError for a code that is no number or an action that is not in ACTIONS, with the line.
    """
    entries = dict(catalogue())
    for number, row in enumerate(csv.DictReader(text.splitlines()), 2):
        code, action = (row.get("code") or "").strip(), (row.get("our_action") or "").strip()
        if not code.isdigit() or action not in ACTIONS:
            raise ValueError(
                f"{number}: {code!r}, {action!r} is no code and action of {', '.join(ACTIONS)}"
            )
        unknown = Entry(int(code), "", "", "", "", "none", hardware=True, source="site")
        entries[int(code)] = replace(entries.get(int(code), unknown), our_action=action)
    return entries


def action_for(lines: Iterable[XidLine], entries: dict[int, Entry] | None = None) -> str:
    """Return the one action for all Xids of an incident.

    The newest Xid 154 decides where there is one (the driver knows best); else the heaviest of the table.
    A non-fatal NVLink 5 event asks for nothing by itself.
    """
    table = catalogue() if entries is None else entries
    known = list(lines)
    asked = [line.recovery for line in known if line.recovery and line.recovery != "none"]
    if asked:
        return asked[-1]
    return max(("none", *(_action(line, table) for line in known)), key=ACTIONS.index)


def _action(line: XidLine, table: dict[int, Entry]) -> str:
    entry = table.get(line.code)
    if entry is None or line.code == 154 or (line.link5 is not None and not line.link5.fatal):
        return "none"
    return entry.our_action
