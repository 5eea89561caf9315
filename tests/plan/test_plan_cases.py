"""Plans: a case is a file with what is wanted, what was found, and the plan as a person reads it.

``pytest tests/plan --bless`` is not offered: a case is written by hand, as the specification.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.model.facts import FileFacts, HostFacts, Interpreter, PortUse, UnitFacts
from fleetctl.model.plan import MASK, Plan, WriteFile, step_from_json, step_to_json
from fleetctl.plan import plan_deploy, plan_stop
from tests.plan import given as state

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


def planned(case: dict[str, Any]) -> Plan:
    wanted = state.rendered(case)
    found = state.facts(case, wanted)
    assert state.impossible(found) == []
    allow = frozenset(case.get("allow", ()))
    if case.get("do") == "stop":
        return plan_stop(wanted.target, found, allow=allow, reason=case.get("reason", ""))
    support = [WriteFile(**f) for f in case.get("support", ())]
    return plan_deploy(
        wanted, found, allow=allow, support=support, restart=case.get("restart", False)
    )


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in CASES])
def test_the_plan_of_a_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    plan = planned(case)
    assert "\n".join(plan.describe()) == case["plan"].rstrip()
    for key, value in case.get("also", {}).items():
        assert getattr(plan, key) == value
    if "hints" in case:
        assert [r.hint for r in plan.refusals] == case["hints"]
    if "diff" in case:
        shown = "\n".join(d.text for d in plan.diffs)
        assert shown == case["diff"].rstrip()
    assert "hush" not in str(plan.to_json()) + "".join(d.text for d in plan.diffs)
    for step in plan.steps:
        assert step_from_json(step_to_json(step)) == step


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in CASES])
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(path: Path) -> None:
    """After the steps of a case without refusals the same wish is unchanged."""
    case = yaml.safe_load(path.read_text())
    if case.get("do") == "stop" or planned(case).refusals:
        return
    found = {k: v for k, v in case.get("facts", {}).items() if k not in ("ports", "lock")}
    case["facts"] = found | {
        "files": "as wanted", "last_launch": "as wanted", "unit": {"active_state": "active"},
        "services": [], "gpu_processes": [],
    }  # fmt: skip
    case["restart"], case["support"] = False, []
    after = planned(case)
    assert (after.empty, after.unchanged, after.refusals) == (True, True, ())


@pytest.mark.parametrize(("restart", "kinds"), [(False, []), (True, ["enable-unit"])])
def test_what_shall_start_at_boot_and_does_not_is_told_and_mended_by_the_next_restart(
    restart: bool, kinds: list[str]
) -> None:
    unit = {"active_state": "active", "file_state": "disabled"}
    facts = {"files": "as wanted", "last_launch": "as wanted", "unit": unit}
    plan = planned({"profile": {"unit": {"enable": True}}, "facts": facts, "restart": restart})
    assert [s.kind for s in plan.steps if s.kind == "enable-unit"] == kinds
    assert ("systemctl enable" in str(plan.warnings)) == (not restart)


def test_no_secret_is_in_what_a_dry_run_prints() -> None:
    case = {
        "profile": {"secret_flags": {"api-key": {"kind": "env", "value": "K"}}},
        "secrets": {"flags": {"api-key": "hush"}},
    }
    plan = planned(case)
    contents = [s["content"] for s in plan.to_json()["steps"] if s.get("secret")]
    assert contents == [MASK]
    assert "hush" in str(plan.to_json(masked=False))


def test_two_plans_are_equal_exactly_when_their_steps_are() -> None:
    one, two = planned({}), planned({"profile": {"flags": {"x": "1"}}})
    assert one.digest() == planned({}).digest() != two.digest()


@given(st.lists(st.sampled_from(["--stop-others", "--take-over", "--keep-patches"]), unique=True))
def test_options_only_ever_take_refusals_away(options: list[str]) -> None:
    case = {
        "facts": {
            "gpus": 2,
            "patches": {"x": "1"},
            "files": {"/etc/systemd/system/sglang-main.service": "[Service]\n"},
            "gpu_processes": [{"gpu": 0, "pid": 7, "unit": "old.service"}],
        }
    }
    before = {r.reference for r in planned(case).refusals}
    after = {r.reference for r in planned(case | {"allow": options}).refusals}
    assert after <= before
    assert len(before) - len(after) == len(options)


IMPOSSIBLE = [
    (UnitFacts("u", "loaded", "active", invocation_id="i"), "active without a main process"),
    (UnitFacts("u", active_state="active", main_pid=1, invocation_id="i"), "active without a loaded unit"),
    (UnitFacts("u", "loaded", "activating"), "alive without an invocation"),
    (UnitFacts("u", "loaded", "failed"), "failed with the result success"),
]  # fmt: skip


@pytest.mark.parametrize(("unit", "why"), IMPOSSIBLE)
def test_an_impossible_unit_is_found(unit: UnitFacts, why: str) -> None:
    assert state.impossible(HostFacts("h", "main", unit, Interpreter("/p"))) == [why]


def test_other_impossible_facts_are_found() -> None:
    body: dict[str, Any] = {
        "host": "h", "service": "main", "unit": {"name": "u"},
        "interpreter": {"path": "/p", "exists": False, "sglang": "1"},
        "gpus": [{"index": 0}], "gpu_processes": [{"gpu": 4, "pid": 1}],
        "ports": [{"port": 1, "unit": "x.service"}],
        "files": [{"path": "/a", "exists": True, "sha256": "no", "content": "x"}],
    }  # fmt: skip
    found = HostFacts.from_json(body)
    assert found.ports == (PortUse(1, unit="x.service"),)
    assert found.files == (FileFacts("/a", True, "no", content="x"),)
    assert len(state.impossible(found)) == 4


def test_the_diff_shows_the_launch_and_not_what_any_launch_needs() -> None:
    support = {"path": "/var/lib/fleetctl/lib/collect.py", "content": "x\n"}
    plan = planned({"support": [support]})
    assert support["path"] in {s.path for s in plan.steps if isinstance(s, WriteFile)}
    assert [d.path for d in plan.diffs] == [
        "/etc/fleetctl/main/environment", "/etc/systemd/system/sglang-main.service",
    ]  # fmt: skip


def test_the_refusal_for_a_patch_names_the_service_that_has_it() -> None:
    plan = planned({"facts": {"patches": {"x": "1"}}})
    [refusal] = [r for r in plan.refusals if r.reference == "patch-active"]
    facts = plan.host, plan.service
    assert refusal.hint == f"`fleetctl patch revert {'/'.join(facts)}`, or --keep-patches"
