"""The GPU checks over what real cards answered (``recorded/README.md`` says where it is from)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetctl.doctor import Look, examine
from fleetctl.doctor.expect import Expect
from fleetctl.remote import look_gpu

H200 = Path(__file__).parent / "recorded" / "h200-x2"


def facts(xml: str, p2p: str = "", **more: Any) -> dict[str, Any]:
    links = {"topology": {}, "p2p": look_gpu._matrix(p2p)}
    gpu = {"tools": True, "error": "", "links": links, "fabric_manager": {}, "multicast": True}
    return {"gpu": gpu | look_gpu.parse(xml) | more}


def ids(found: dict[str, Any], expect: Expect | None = None, **more: Any) -> list[str]:
    return [f.id for f in examine(Look(found, expect or Expect(), **more))]


@pytest.fixture(scope="module")
def xml() -> str:
    return (H200 / "smi.xml").read_text()


@pytest.fixture(scope="module")
def p2p() -> str:
    return (H200 / "p2p.txt").read_text()


def test_the_facts_of_two_h200(xml: str) -> None:
    found = look_gpu.parse(xml)
    assert (found["driver"], found["cuda"]) == ("580.159.04", "13.0")
    assert [g["name"] for g in found["gpus"]] == ["NVIDIA H200", "NVIDIA H200"]
    first = found["gpus"][0]
    assert first["memory_total"] == 143771 * 1024**2
    assert first["memory_used"] == 0
    assert (first["ecc"], first["ecc_uncorrected"], first["remap_pending"]) == ("Enabled", 0, "No")
    assert (first["power_limit"], first["persistence"], first["mig"]) == (
        700.0,
        "Enabled",
        "Disabled",
    )
    assert (first["fabric_state"], first["fabric_status"]) == ("Completed", "Success")
    assert first["throttled"] == []


def test_the_links_of_two_h200(p2p: str) -> None:
    assert look_gpu._matrix((H200 / "topo.txt").read_text()) == {
        "GPU0": {"GPU0": "X", "GPU1": "NV18"}, "GPU1": {"GPU0": "NV18", "GPU1": "X"},
    }  # fmt: skip
    assert look_gpu._matrix(p2p)["GPU0"] == {"GPU0": "X", "GPU1": "OK"}


def test_sound_cards_have_no_finding(xml: str, p2p: str) -> None:
    assert (
        ids(facts(xml, p2p), Expect(gpus=2, gpu="NVIDIA H200", driver=">=580", fabric=True)) == []
    )


# One documented value changed (nvidia-smi --help-query-gpu, NVIDIA's nvidia-smi(1)).
CHANGED = {
    "an uncorrectable error": ("<dram_uncorrectable>0<", "<dram_uncorrectable>2<", ["gpu-ecc"]),
    "a row to remap": ("<remapped_row_pending>No<", "<remapped_row_pending>Yes<", ["gpu-memory-row"]),
    "a row that cannot be remapped": ("<remapped_row_failure>No<", "<remapped_row_failure>Yes<", ["gpu-memory-row"]),
    "a repair pending": ("<channel_repair_pending>No<", "<channel_repair_pending>Yes<", ["gpu-repair"]),
    "an action asked for": ("<gpu_recovery_action>None<", "<gpu_recovery_action>Reset<", ["gpu-recovery"]),
    "too hot": (
        "<clocks_event_reason_hw_thermal_slowdown>Not Active<",
        "<clocks_event_reason_hw_thermal_slowdown>Active<", ["gpu-throttled"]),
    "a lowered power limit": ("<current_power_limit>700.00 W<", "<current_power_limit>400.00 W<", ["gpu-power-cap"]),
    "no persistence": ("<persistence_mode>Enabled<", "<persistence_mode>Disabled<", ["gpu-persistence"]),
    "split up": ("<current_mig>Disabled<", "<current_mig>Enabled<", ["gpu-mig"]),
    "outside the fabric": ("<state>Completed<", "<state>In Progress<", ["gpu-fabric"]),
    "another model": ("<product_name>NVIDIA H200<", "<product_name>NVIDIA H100<", ["gpu-mixed"]),
    "memory that nobody seen holds": ("<used>0 MiB<", "<used>9000 MiB<", ["gpu-held"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_one_changed_value_is_one_finding(xml: str, p2p: str, name: str) -> None:
    before, after, wanted = CHANGED[name]
    assert before in xml
    assert ids(facts(xml.replace(before, after, 1), p2p)) == wanted


def test_a_card_that_left_the_bus(xml: str) -> None:
    one = xml[: xml.rindex("<gpu id=")] + "</nvidia_smi_log>"
    assert ids(facts(one), gpus=2) == ["gpu-count"]


def test_expectations(xml: str) -> None:
    assert ids(facts(xml), Expect(driver="<580")) == ["driver-version"]
    assert ids(facts(xml), Expect(gpu="NVIDIA B*")) == ["gpu-model"]
    assert ids(facts(xml), Expect(gpus=8)) == ["gpu-count"]
    assert ids(facts(xml), Expect(gpus=8, skip=("gpu-count",))) == []


def test_pairs_that_cannot_read_each_other(xml: str, p2p: str) -> None:
    assert ids(facts(xml, p2p.replace("OK", "NS", 2))) == ["gpu-p2p"]


def test_who_holds_memory(xml: str) -> None:
    row = {"gpu": 0, "pid": 77, "memory": 9 * 1024**3, "command": "python train.py", "unit": ""}
    own = row | {"unit": "sglang-main.service"}
    other = row | {"unit": "sglang-old.service"}
    unit = {"unit": {"name": "sglang-main.service", "load_state": "not-found"}}
    assert ids(facts(xml, processes=[row]) | unit) == ["gpu-in-use"]
    assert ids(facts(xml, processes=[own]) | unit) == []
    [found] = examine(Look(facts(xml, processes=[other, other | {"gpu": 1}]) | unit))
    assert (str(found.severity), found.message) == (
        "info",
        "sglang-old.service holds 18.0 GiB on GPU 0, 1",
    )


@pytest.mark.parametrize(("torch", "cuda", "told"), [
    ("2.11.0+cu130", "13.0", []), ("2.9.1+cu128", "13.0", []), ("2.11.0+cu130", "12.8", ["cuda-mismatch"]),
    ("2.11.0", "12.8", []),
])  # fmt: skip
def test_the_driver_runs_the_cuda_of_torch(
    xml: str, torch: str, cuda: str, told: list[str]
) -> None:
    changed = xml.replace("<cuda_version>13.0<", f"<cuda_version>{cuda}<")
    python = {
        "python": {
            "path": "/p",
            "exists": True,
            "packages": {"sglang": "0.5.23", "torch": torch},
            "py_spy": "/x",
        }
    }
    assert ids(facts(changed) | python) == told


def test_a_real_process_without_a_unit_that_holds_memory() -> None:
    found = look_gpu.parse((H200.parent / "h200-held" / "smi.xml").read_text())
    [row] = found["processes"]
    assert row == {"gpu": 0, "pid": 414, "memory": 2566 * 1024**2, "command": "python3"}
    gpu = found | {"tools": True, "error": "", "processes": [row | {"unit": ""}]}
    [finding] = examine(Look({"gpu": gpu}))
    assert (finding.id, finding.message) == ("gpu-in-use", "python3 holds 2.5 GiB on GPU 0")


def test_a_machine_without_systemd() -> None:
    assert ids({"systemd": {"version": None, "state": "", "failed": []}}) == ["no-systemd"]


def test_no_tools_are_no_fault_where_no_gpus_are_expected() -> None:
    bare = {"gpu": {"tools": False, "error": "", "gpus": []}}
    assert ids(bare) == []
    assert ids(bare, gpus=8) == ["no-gpu-tools"]


@pytest.mark.parametrize(
    "text", ["", "<", "NVIDIA-SMI has failed", "<nvidia_smi_log></nvidia_smi_log>", "<a>"]
)
def test_what_is_no_answer_of_nvidia_smi_has_no_gpus(text: str) -> None:
    assert look_gpu.parse(text)["gpus"] == []
