"""docs/json.md names every field of the objects about sites and launches."""

from __future__ import annotations

import json

import pytest

from fleetctl.cli.app import run
from fleetctl.config import places
from fleetctl.model.facts import HostFacts, Interpreter, UnitFacts
from fleetctl.model.plan import KINDS, Plan
from tests.docs.blocks import ROOT

TEXT = (ROOT / "docs/json.md").read_text()


@pytest.mark.parametrize(
    "args",
    [
        ["hosts", "list"],
        ["profiles", "list"],
        ["profiles", "show", "tp8"],
        ["profiles", "diff", "tp8", "ep8"],
        ["render", "b300-01", "-p", "tp8"],
    ],
)
def test_every_field_that_is_printed_is_described(
    args: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_SITE", str(places.packaged("inventories") / "example"))
    assert run([*args, "--json"]) == 0
    body = json.loads(capsys.readouterr().out.splitlines()[0])
    row = next(line for line in TEXT.splitlines() if f"`{body['schema']}`" in line)
    assert [k for k in body if k != "schema" and f"`{k}" not in row] == []


def test_plans_facts_and_steps_are_described() -> None:
    plan = Plan("h", "main", "u").to_json()
    facts = HostFacts("h", "main", UnitFacts("u"), Interpreter("/p")).to_json()
    for part, keys in (("plan", plan), ("facts", facts)):
        section = TEXT.split(f"## `fleetctl.{part}/1`")[1].split("\n## ")[0]
        assert [k for k in keys if k != "schema" and f"`{k}" not in section] == []
    assert [k for k in KINDS if f"`{k}`" not in TEXT] == []
