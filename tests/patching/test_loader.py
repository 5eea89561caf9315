"""patch.toml and its snippets: every fault at once, each at file:line:col.

A case is a file ``cases/toml/<what>.toml`` whose first lines say what is expected.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetctl.config.check import gathered
from fleetctl.errors import Exit, FleetError
from fleetctl.patching import catalog, loader, snippets
from fleetctl.patching.model import Patch, Target

CASES = sorted((Path(__file__).parent / "cases/toml").glob("*.toml"))
GOOD = 'name = "case"\nsummary = "x"\nsglang = ">=0.5"\nexpire = "1h"\n'
TARGET = '[[target]]\nsymbol = "a.b:f"\nblock = "block.py.j2"\n'


def folder(tmp_path: Path, toml: str, block: str = "_fc_x = 1\n") -> Path:
    target = tmp_path / "case"
    target.mkdir()
    (target / "patch.toml").write_text(toml)
    (target / "block.py.j2").write_text(block)
    return target


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_faults_of_a_file(case: Path, tmp_path: Path) -> None:
    text = case.read_text()
    expected = [tuple(x.split()) for x in re.findall(r"^# expect: (.+)$", text, re.MULTILINE)]
    with pytest.raises(FleetError) as caught:
        loader.load(folder(tmp_path, text))
    found = [(e.reference, ":".join(e.where.split(":")[1:])) for e in gathered(caught.value)]
    assert sorted(found) == sorted(expected)
    assert {e.exit_code for e in gathered(caught.value)} == {Exit.CONFIG}


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("x = 1\n", "start it with _fc_"),
        ("import json\n", "start it with _fc_"),
        ("for i in ():\n    pass\n", "start it with _fc_"),
        ("with open('a') as f:\n    pass\n", "start it with _fc_"),
        ("def g():\n    pass\n", "start it with _fc_"),
        ("yield 1\n", "kind of function"),
        ("await f()\n", "kind of function"),
        ('_fc_x = """a\nb"""\n', "over several lines"),
        ("_fc_x = 'é'\n", "ASCII"),
        ("if (:\n", "line 1"),
        ("_fc_x = {{ nothing }}\n", "'nothing' is undefined"),
        ("_fc_x = {{ 1 / 0 }}\n", "division by zero"),
        ("{% if %}\n", "an expression"),
    ],
)
def test_a_snippet_may_not_change_the_function(tmp_path: Path, block: str, problem: str) -> None:
    with pytest.raises(FleetError) as caught:
        loader.load(folder(tmp_path, GOOD + TARGET, block))
    assert caught.value.reference == "bad-snippet"
    assert problem in caught.value.message


@pytest.mark.parametrize(
    "block",
    [
        "def _fc_f():\n    x = 1\n    import json\n    return x, json\n",
        "_fc_x = [i for i in range(3)]\n",
        "f = 1\n",
    ],
)
def test_a_snippet_may_use_its_own_names_and_those_it_declares(tmp_path: Path, block: str) -> None:
    loader.load(folder(tmp_path, GOOD + TARGET + 'rebinds = ["f"]\n', block))


def test_parameters_are_typed_and_bounded(tmp_path: Path) -> None:
    more = "[parameters.limit]\ndefault = 3\nminimum = 1\nmaximum = 9\n"
    more += "[parameters.loud]\ndefault = false\n[parameters.kind]\ndefault = 'a'\nchoices = ['a', 'b']\n"
    block = "_fc_x = ({{ limit }}, {{ loud }}, {{ kind | py }})\n"
    patch = loader.load(folder(tmp_path, GOOD + TARGET + more, block))

    def code(**given: str) -> str:
        return snippets.render(patch, "0.5.10", given).edits[0][2].strip()

    assert code() == "_fc_x = (3, False, 'a')"
    assert code(limit="9", loud="true", kind="b") == "_fc_x = (9, True, 'b')"
    for name, value in (
        ("limit", "10"),
        ("limit", "x"),
        ("loud", "yes"),
        ("kind", "c"),
        ("no", "1"),
    ):
        with pytest.raises(FleetError) as caught:
            code(**{name: value})
        assert caught.value.reference in ("wrong-parameter", "unknown-parameter")


def test_the_digest_follows_what_is_done_not_how_it_is_written(tmp_path: Path) -> None:
    block = "_fc_x = {{ limit }}\n"
    more = "[parameters.limit]\ndefault = 3\n"
    patch = loader.load(folder(tmp_path, GOOD + TARGET + more, block))
    one, same, other = (
        snippets.render(patch, "0.5.10", g) for g in ({}, {"limit": "3"}, {"limit": "4"})
    )
    assert one.digest() == same.digest() != other.digest()
    assert one.digest()[:12] in one.beacon


def test_a_target_of_other_versions_is_left_out(tmp_path: Path) -> None:
    patch = loader.load(folder(tmp_path, GOOD + TARGET + 'sglang = "<0.5.13"\n'))
    assert len(snippets.render(patch, "0.5.12.post1").edits) == 1
    assert snippets.render(patch, "0.5.13").edits == ()


def test_the_site_hides_a_shipped_patch(tmp_path: Path) -> None:
    own = tmp_path / "patches" / "rank-beacon"
    own.mkdir(parents=True)
    (own / "patch.toml").write_text(GOOD.replace("case", "rank-beacon") + TARGET)
    (own / "block.py.j2").write_text("_fc_x = 1\n")
    assert catalog.find("rank-beacon", tmp_path).summary == "x"
    assert catalog.find("capture-guard", tmp_path).summary != "x"


def test_an_unknown_patch_gets_a_suggestion() -> None:
    with pytest.raises(FleetError) as caught:
        catalog.find("rank-becon", None)
    assert (caught.value.reference, caught.value.exit_code) == ("unknown-patch", Exit.USAGE)
    assert "rank-beacon" in caught.value.hint


def test_the_scaffold_is_a_sound_patch(tmp_path: Path) -> None:
    from fleetctl.patching import scaffold

    scaffold.write(tmp_path, "mine", "sglang.srt.managers.scheduler:Scheduler.run_batch", ">=0.5")
    patch: Patch = loader.load(tmp_path / "mine")
    target: Target = patch.targets[0]
    assert str(target) == "sglang.srt.managers.scheduler:Scheduler.run_batch"
    with pytest.raises(FleetError) as caught:
        scaffold.write(tmp_path, "mine", "a:b", ">=0.5")
    assert caught.value.reference == "patch-exists"
    for name, symbol in (("../x", "a:b"), ("good", "a.b.c")):
        with pytest.raises(FleetError):
            scaffold.write(tmp_path, name, symbol, ">=0.5")
