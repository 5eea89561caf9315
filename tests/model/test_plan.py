from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.model import plan as plans
from fleetctl.model.facts import FactsRequest, HostFacts, Interpreter, UnitFacts
from fleetctl.model.plan import KINDS, Holder, Plan, Step, WriteFile, step_from_json, step_to_json

STEPS: list[tuple[Step, str]] = [
    (WriteFile("/a", "x"), "create /a (0644)"),
    (WriteFile("/a", "x", 0o600, secret=True, before="ab"), "update /a (0600, secret)"),
    (plans.RemoveFile("/a"), "remove /a"),
    (plans.VerifyUnit("u.service", "[Unit]"), "verify u.service with systemd-analyze"),
    (plans.DaemonReload(), "systemctl daemon-reload"),
    (plans.StopUnit("u.service"), "systemctl stop u.service"),
    (plans.StopUnit("u.service", "why"), "systemctl stop u.service (why)"),
    (plans.ResetFailed("u.service"), "systemctl reset-failed u.service"),
    (plans.EnableUnit("u.service"), "systemctl enable u.service"),
    (plans.StartUnit("u.service"), "systemctl start u.service"),
    (plans.RestartUnit("u.service"), "systemctl restart u.service"),
    (plans.WaitReady("u.service", 1, "/m"), "wait for u.service to be ready on port 1"),
]


@pytest.mark.parametrize(("step", "text"), STEPS)
def test_a_step_says_what_it_does_and_travels_as_json(step: Step, text: str) -> None:
    assert step.describe() == text
    assert step_from_json(json.loads(json.dumps(step_to_json(step)))) == step


def test_every_kind_of_step_is_tried_above() -> None:
    assert {s.kind for s, _ in STEPS} == set(KINDS)


def test_an_unknown_step_is_refused() -> None:
    with pytest.raises(ValueError, match="format-disk"):
        step_from_json({"do": "format-disk"})


def test_the_content_of_a_secret_is_masked_for_printing_alone() -> None:
    secret, open_ = WriteFile("/a", "hush", secret=True), WriteFile("/a", "said")
    assert step_to_json(secret, masked=True)["content"] == plans.MASK
    assert step_to_json(secret)["content"] == "hush"
    assert step_to_json(open_, masked=True)["content"] == "said"


@pytest.mark.parametrize(
    ("holder", "text"),
    [
        (Holder("x.service", gpus=(0,)), "x, holds GPU 0"),
        (Holder("x.service", port=1, state="READY", seconds=59), "x, READY for 59 s, holds port 1"),
        (Holder("", 7, "nc", (3, 1, 2), port=1), "process 7 (nc), holds GPU 1-3 and port 1"),
    ],
)
def test_a_holder_says_what_it_holds_and_for_how_long(holder: Holder, text: str) -> None:
    assert holder.describe() == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86400 * 3.5, "3 d")],
)
def test_a_span_is_told_in_its_largest_whole_unit(seconds: float, text: str) -> None:
    assert plans.span(seconds) == text


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_the_numbers(numbers: set[int]) -> None:
    text = plans.ranges(tuple(numbers))
    back = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == numbers


def test_a_plan_is_described_by_its_holders_and_refusals() -> None:
    held = Holder("x.service", gpus=(0,))
    plan = Plan(
        "h", "main", "u", stops=(held,), holders=(held,), warnings=("careful",),
        refusals=(plans.Refusal("gpus-held", "x holds them"),),
    )  # fmt: skip
    body: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    assert body["schema"] == "fleetctl.plan/1"
    assert body["stops"][0]["text"] == "x, holds GPU 0"
    assert body["refusals"][0]["reference"] == "gpus-held"
    assert plan.describe() == [
        "h/main: 0 atoms: same configuration as the last launch",
        "  stops x, holds GPU 0",
        "  warning: careful",
        "  nothing to do: unchanged and active",
        "  refused[gpus-held]: x holds them",
    ]


def test_facts_travel_as_json() -> None:
    facts = HostFacts("h", "main", UnitFacts("u"), Interpreter("/p"), free={"/etc": 1})
    assert HostFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    assert facts.file("/nowhere").exists is False


def test_a_request_travels_as_json() -> None:
    assert FactsRequest("main", "u", "/p", ports=(1,)).to_json()["ports"] == (1,)


@pytest.mark.parametrize(
    ("state", "active", "alive"),
    [("active", True, True), ("activating", False, True), ("deactivating", False, True),
     ("failed", False, False), ("inactive", False, False)],
)  # fmt: skip
def test_a_unit_is_active_or_at_least_alive(state: str, active: bool, alive: bool) -> None:
    unit = UnitFacts("u", active_state=state)
    assert (unit.active, unit.alive) == (active, alive)
