from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.config.json_schema import FILES, json_schema
from fleetctl.config.site import load_site
from fleetctl.errors import FleetError
from tests.config.conftest import MakeSite

DOCS = Path(__file__).parents[2] / "docs" / "schemas"


def test_groups_hold_their_hosts_in_inventory_order(make_site: MakeSite) -> None:
    root = make_site({"hosts.yaml": "hosts: {b: {groups: [x, y]}, a: {groups: x}, c: {}}\n"})
    assert load_site(root).groups() == {"x": ["b", "a"], "y": ["b"]}


def test_a_site_selects_from_its_own_hosts(make_site: MakeSite) -> None:
    site = load_site(make_site({"hosts.yaml": "hosts: {a: {}, b: {}}\n"}))
    assert [str(t) for t in site.select(["b", "a"])] == ["a/main", "b/main"]


def test_templates_of_a_site_are_named_by_their_path(make_site: MakeSite) -> None:
    site = load_site(make_site({"templates/sglang.service.j2": "x", "templates/notes.txt": "y"}))
    assert site.templates() == {"sglang.service.j2": "x"}


def test_yaml_wins_over_yml(make_site: MakeSite) -> None:
    files = {"profiles/p.yml": "model: /old\n", "profiles/p.yaml": "model: /new\n"}
    assert load_site(make_site(files)).profile("p").model == "/new"


def test_a_broken_profile_harms_no_other(make_site: MakeSite) -> None:
    site = load_site(make_site({"profiles/p.yaml": "model: /m\n", "profiles/q.yaml": "bogus: 1\n"}))
    assert site.profile("p").model == "/m"
    with pytest.raises(FleetError, match="bogus"):
        site.profile("q")


@pytest.mark.parametrize("name", FILES)
def test_the_json_schemas_of_the_documentation_are_current(name: str) -> None:
    """`fleetctl schemas --out docs/schemas` writes them anew."""
    assert json.loads((DOCS / f"{name}.schema.json").read_text()) == json_schema(name)


@pytest.mark.parametrize("address", ["::1", "fe80::1%eth0", "[::1]", "2001:db8::7", "h_1.example", "b\u00fccher.de", "10.0.0.1"])  # fmt: skip
def test_an_address_of_any_kind_is_taken(address: str, make_site: MakeSite) -> None:
    root = make_site({"hosts.yaml": f"hosts: {{a: {{address: {json.dumps(address)}}}}}\n"})
    assert load_site(root).hosts["a"].address == address
