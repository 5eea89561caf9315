"""Xid lines as the driver prints them, and the action they ask for."""

from __future__ import annotations

import pytest

from fleetctl.triage import xid

# Printed by driver 580 on an H200, by bug reports and by test data of NVIDIA's and Lepton's monitors.
PAGE_FAULT = "[   48.563276] NVRM: Xid (PCI:0000:00:06): 31, pid=506, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"
WARP = "NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address"
REMAP = "NVRM: Xid (PCI:0000:9c:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x00000000001b2c40) marked"
LOST = "[74889.642138] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
LOST_IN_WORDS = "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."
RECOVERY = "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"
CONTAINED = "NVRM: Xid (PCI:0000:9c:00): 94, pid=1904, name=python3, Contained memory error, channel 0x00000008"
LINK = "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
LINK_EVENT = "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)"


def read(line: str) -> xid.XidLine:
    found = xid.parse(line)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "code", "pid", "process"),
    [
        (PAGE_FAULT, 31, 506, "python3"),
        (WARP, 13, None, None),
        (REMAP, 63, None, None),
        (LOST, 79, None, None),
        (LOST_IN_WORDS, 79, None, None),
    ],
)
def test_code_pid_and_process_are_read(
    line: str, code: int, pid: int | None, process: str | None
) -> None:
    found = read(line)
    assert (found.code, found.pid, found.process) == (code, pid, process)


def test_other_kernel_lines_are_no_xid() -> None:
    assert xid.parse("NVRM: loading NVIDIA UNIX Open Kernel Module") is None


def test_the_words_of_nvlink_5_are_decoded() -> None:
    link = read(LINK).link5
    assert link == xid.Link5("NETIR_LINK_EVT", fatal=True, link=8, sub_code=4, error_status=0)
    assert read(LINK_EVENT).link5 == xid.Link5(
        "RLW_RXPIPE", fatal=False, link=13, sub_code=0, error_status=8
    )
    assert read(LINK_EVENT).process == "ray::WorkerDict"


def test_a_cut_line_of_nvlink_5_gives_its_code_alone() -> None:
    found = read("NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406")
    assert (found.code, found.link5) == (149, None)


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        ([], "none"),
        ([PAGE_FAULT], "restart_unit"),
        ([LOST], "reboot_host"),
        ([PAGE_FAULT, LOST], "reboot_host"),
        ([CONTAINED, RECOVERY], "reboot_host"),
        ([LINK], "reset_gpu"),
        ([LINK_EVENT], "none"),
        (["NVRM: Xid (PCI:0000:02:00): 999, something new"], "none"),
    ],
)
def test_the_action_is_the_heaviest_unless_the_driver_names_one(
    lines: list[str], action: str
) -> None:
    assert xid.action_for(map(read, lines)) == action


def test_the_drivers_own_word_beats_the_table() -> None:
    reset = "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)"
    assert xid.action_for([read(LOST), read(reset)]) == "reset_gpu"


def test_an_unknown_recovery_number_asks_for_support() -> None:
    line = "NVRM: Xid (PCI:0000:9c:00): 154, GPU recovery action changed from 0x0 (None) to 0x9 (Something)"
    assert read(line).recovery == "contact_support"


def test_every_row_has_a_source_and_an_action_of_the_list() -> None:
    for entry in xid.catalogue().values():
        assert entry.our_action in xid.ACTIONS
        assert set(entry.source.split()) <= xid.SOURCES.keys()
        assert entry.source


def test_a_site_overrides_the_action() -> None:
    entries = xid.overridden("code,our_action\n94,reset_gpu\n500,contact_support\n")
    assert xid.action_for([read(CONTAINED)], entries) == "reset_gpu"
    assert entries[500].our_action == "contact_support"


@pytest.mark.parametrize("row", ["94,explode", "x,none", "94"])
def test_a_wrong_override_names_its_line(row: str) -> None:
    with pytest.raises(ValueError, match=r"^2: "):
        xid.overridden(f"code,our_action\n{row}\n")
