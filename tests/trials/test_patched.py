"""Patches of a bisect: which trials can have them, what is said beforehand, and what they said."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import RefusedError, UsageError
from fleetctl.model.facts import HostFacts, Interpreter, PatchNote, UnitFacts
from fleetctl.model.fleet import Profile
from fleetctl.patching.model import Rung
from fleetctl.trials import patched

VERSION = "0.5.12.post1"
EDIT = """\
name = "mine"
summary = "s"
sglang = ">=0.5"
rung = "edit"
expire = "1h"
[[target]]
symbol = "sglang.srt:f"
block = "b.py"
"""


def ends(good: tuple[str, ...] = (), bad: tuple[str, ...] = ()) -> tuple[Profile, Profile]:
    return Profile("good", "m", patches=good), Profile("bad", "m", patches=bad)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "patches" / "mine"
    folder.mkdir(parents=True)
    (folder / "patch.toml").write_text(EDIT)
    (folder / "b.py").write_text("pass\n")
    return tmp_path


def test_an_asked_patch_is_at_both_ends_and_always_an_overlay(site: Path) -> None:
    good, bad, found = patched.shared(*ends(bad=("rank-beacon",)), ("mine",), None, site)
    assert (good.patches, bad.patches) == (("mine",), ("rank-beacon", "mine"))
    assert {n: p.rung for n, p in found.items()} == {
        "mine": Rung.OVERLAY, "rank-beacon": Rung.OVERLAY,
    }  # fmt: skip


def test_an_unknown_patch_is_refused_unless_only_an_earlier_launch_had_it(site: Path) -> None:
    with pytest.raises(UsageError) as caught:
        patched.shared(*ends(good=("gone",)), (), None, site)
    assert caught.value.reference == "unknown-patch"
    with pytest.raises(UsageError):
        patched.shared(*ends(), ("gone",), {}, site)
    had = {"gone": "1" * 64}
    good, _, found = patched.shared(*ends(good=("gone",)), ("mine",), had, site)
    known = patched.digests(found, ("mine",), VERSION, "h")
    good, ran = patched.had_by_good(good, ("mine",), had, known)
    assert good.patches == ("mine",)
    assert ran == {"gone": "1" * 64, "mine": known["mine"]}


def test_a_patch_that_did_something_else_then_is_told_and_one_of_every_trial_is_not() -> None:
    had = {"rank-beacon": "old", "kernel-api-log": "old"}
    good, bad = ends(good=tuple(had), bad=("rank-beacon",))
    good, bad, found = patched.shared(good, bad, ("kernel-api-log",), had, None)
    known = patched.digests(found, (), VERSION, "h")
    good, ran = patched.had_by_good(good, ("kernel-api-log",), had, known)
    assert good.patches == ("kernel-api-log",)
    assert ran == {"rank-beacon": "old", "kernel-api-log": known["kernel-api-log"]}


def test_a_patch_of_another_version_is_refused_only_where_a_trial_needs_it() -> None:
    _, _, found = patched.shared(*ends(), ("none-in-foreach-copy",), None, None)
    assert patched.digests(found, (), "0.5.1", "h") == {}
    with pytest.raises(RefusedError) as caught:
        patched.digests(found, ("none-in-foreach-copy",), "0.5.1", "h")
    assert caught.value.reference == "version-not-meant"


def test_what_the_service_itself_has_is_said_beforehand() -> None:
    rows = [("a", Rung.OVERLAY), ("b", Rung.EDIT), ("c", Rung.OVERLAY)]
    facts = HostFacts(
        "h", "main", UnitFacts("sglang-main.service"), Interpreter("/p"),
        patch_notes=tuple(PatchNote(n, rung=r, by="ann", expires_at="x") for n, r in rows),
    )  # fmt: skip
    lines = patched.notes(facts, "h/main", ["c"])
    assert lines[:3] == [f"h/main: patch {n} of ann is applied until x" for n in "abc"]
    assert lines[3:] == [
        "trials run without a; --patch a gives it to each",
        "b is in the files themselves: the trials have it as well",
    ]


def test_a_bisect_goes_on_only_with_the_patches_that_its_launches_had() -> None:
    options = {"patches": {"a": "1"}}
    patched.check_resumed("b1", options, (), {"a": "1"})
    patched.check_resumed("b1", options, ("a",), {"a": "1"})
    with pytest.raises(UsageError) as other:
        patched.check_resumed("b1", options, ("a", "b"), {"a": "1", "b": "2"})
    assert other.value.reference == "other-patches"
    with pytest.raises(RefusedError) as changed:
        patched.check_resumed("b1", options, (), {"a": "2"})
    assert changed.value.reference == "patches-changed"


def test_what_a_patch_said_comes_from_the_evidence_and_from_the_host_where_there_is_none() -> None:
    row = {"name": "a", "state": "active", "markers": 2, "result": "pair 5 of 6"}
    captured = {"patches": [row], "patch_markers": [{"patch": "a", "index": 5}]}
    told = {**row, "capture": {"index": 5}}
    assert patched.said({"triage": {"captured": captured}}, []) == (told,)
    live = {**row, "last_markers": [{"index": 4}, {"index": 5}], "files": []}
    assert patched.said({"state": "ready"}, [live]) == (told,)
    silent = {"name": "a", "state": "active", "markers": 0, "result": None, "last_markers": []}
    assert patched.said({}, [silent])[0]["capture"] is None
