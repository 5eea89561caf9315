"""A whole look at a host with a real GPU: what doctor makes of it (``recorded/README.md``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.doctor import Look, critical, examine
from fleetctl.doctor.expect import Expect, parse
from fleetctl.remote import look_gpu

HOST = Path(__file__).parent / "recorded" / "h200-host"


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    value = json.loads((HOST / "look.json").read_text("utf-8"))
    assert isinstance(value, dict)
    return value


def test_a_host_that_is_well_has_no_finding_but_the_missing_tool(facts: dict[str, Any]) -> None:
    look = Look(facts, Expect(), gpus=1, model="/opt/sglang/models/llama")
    assert [f.id for f in examine(look)] == ["py-spy-missing"]
    assert critical(look) == []


def test_what_the_inventory_says_beyond_the_host_is_found(facts: dict[str, Any]) -> None:
    assert [f.id for f in critical(Look(facts, Expect(), gpus=2))] == ["gpu-count"]


def test_what_a_site_expects_is_held_against_the_host(facts: dict[str, Any]) -> None:
    wish = parse({"driver": "580.159.04", "sglang": "0.5.15"}, "gpu1", "doctor.yaml")
    assert [f.id for f in critical(Look(facts, wish, gpus=1))] == ["sglang-version"]


def test_the_driver_s_answer_reads_as_it_did_on_the_host(facts: dict[str, Any]) -> None:
    read = look_gpu.parse((HOST / "smi.xml").read_text("utf-8"))
    there = facts["gpu"]
    assert (read["driver"], read["cuda"]) == (there["driver"], there["cuda"])
    changing = {"temperature", "throttled"}
    assert [{k: v for k, v in g.items() if k not in changing} for g in read["gpus"]] == [
        {k: v for k, v in g.items() if k not in changing} for g in there["gpus"]
    ]
