"""The YAML of the documentation is what the program reads."""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl.config.overrides import apply
from fleetctl.config.profiles import Merge, chain
from fleetctl.config.schema import HostDefaults, HostEntry, ProfileFile, ServiceEntry, UnitEntry
from fleetctl.config.site import load_site
from fleetctl.model.fleet import SecretRef
from fleetctl.render.diag import DIAGNOSTICS
from tests.config.conftest import MakeSite

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str) -> str:
    found = re.search(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_inventory_of_the_reference_is_read(make_site: MakeSite) -> None:
    site = load_site(make_site({"hosts.yaml": block("reference/inventory.md")}))
    assert site.hosts["b300-04"].address == "10.0.0.4"
    assert [s.gpus for s in site.hosts["rtx-01"].services] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert site.hosts["here"].transport == "local"


def test_the_profile_of_the_howto_is_read(make_site: MakeSite) -> None:
    make_site({"profiles/ep8-nvls.yaml": block("howto/profiles.md"), "profiles/ep8.yaml": ""})
    merge = Merge()
    folder = Path("profiles")
    for layer in chain("ep8-nvls", {n: folder / f"{n}.yaml" for n in ("ep8-nvls", "ep8")}):
        merge.add(layer)
    apply(merge, (), ())
    assert merge.flags["mem-fraction-static"] == "0.80"
    assert merge.flags["cuda-graph-bs"] == ("1", "2", "4")
    assert merge.flags["json-model-override-args"] == {"num_hidden_layers": 4}
    assert merge.secret_flags == {"api-key": SecretRef("env", "PROD_KEY")}


def test_every_key_has_a_row() -> None:
    inventory = (DOCS / "reference/inventory.md").read_text()
    howto = (DOCS / "howto/profiles.md").read_text()
    for key in {**HostDefaults.model_fields, **HostEntry.model_fields, **ServiceEntry.model_fields}:
        assert f"`{key}`" in inventory
    for key in UnitEntry.model_fields:
        assert f"`{key}`" in howto
    for name in DIAGNOSTICS:
        assert f"| `{name}` |" in howto
    for key in set(ProfileFile.known_keys()) - {"runtime", "nodes", "patches"}:
        assert f"\n{key}:" in howto
