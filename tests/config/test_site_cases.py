"""Sites as people write them: a case is a file with the site's files and what they must give."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.config import places
from fleetctl.config.check import gathered
from fleetctl.config.site import load_site
from fleetctl.errors import FleetError
from fleetctl.render import compare
from tests.config.conftest import MakeSite

CASES = Path(__file__).parent / "cases"


def cases(folder: str) -> list[Any]:
    return [pytest.param(p, id=p.stem) for p in sorted((CASES / folder).glob("*.yaml"))]


def said(error: FleetError, root: Path) -> list[str]:
    lines: list[str] = []
    for one in gathered(error):
        where = f"{one.where} ".replace(str(root), "ROOT") if one.where else ""
        hint = f" | {one.hint}" if one.hint else ""
        lines.append(f"{one.reference} {where}{one.message}{hint}")
    return lines


def plain(value: Any, root: Path) -> Any:
    """Return JSON's view, with the site's folder as ROOT."""
    text = json.dumps(value, default=lambda v: dataclasses.asdict(v))
    return json.loads(text.replace(str(root), "ROOT"))


@pytest.mark.parametrize("path", cases("inventory"))
def test_an_inventory_gives_hosts_or_all_of_its_faults(path: Path, make_site: MakeSite) -> None:
    case = yaml.safe_load(path.read_text())
    root = make_site(case["files"])
    if "errors" in case:
        with pytest.raises(FleetError) as caught:
            load_site(root)
        assert said(caught.value, root) == case["errors"]
        assert caught.value.exit_code == 3
        return
    hosts = load_site(root).hosts
    assert list(hosts) == list(case["hosts"])
    for name, wanted in case["hosts"].items():
        there = plain(dataclasses.asdict(hosts[name]), root)
        assert {k: there[k] for k in wanted} == wanted


@pytest.mark.parametrize("path", cases("profiles"))
def test_a_profile_merges_or_says_all_of_its_faults(path: Path, make_site: MakeSite) -> None:
    case = yaml.safe_load(path.read_text())
    root = (
        places.packaged("inventories") / "example"
        if "example" in case
        else make_site(case["files"])
    )
    site = load_site(root)
    asked = (case["profile"], case.get("set", ()), case.get("unset", ()))
    if "errors" in case:
        with pytest.raises(FleetError) as caught:
            site.profile(*asked)
        assert said(caught.value, root) == case["errors"]
        return
    profile = site.profile(*asked)
    there = plain(dataclasses.asdict(profile), root)
    assert {k: there[k] for k in case.get("merged", {})} == case.get("merged", {})
    origins = {k: profile.origins[k].where for k in case.get("origins", {})}
    assert origins == case.get("origins", {})
    assert site.lineage(case["profile"])[-1] == case["profile"]
    if "lineage" in case:
        assert site.lineage(case["profile"]) == case["lineage"]
    if "against" in case:
        assert [str(a) for a in compare(site.profile(case["against"]), profile)] == case["atoms"]
