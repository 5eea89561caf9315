"""Files on a host are old or new, never half."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fleetctl.remote import files
from fleetctl.remote.agent import AgentError


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*"))


def test_nothing_shows_before_the_commit(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    change = files.Change()
    change.write(str(tmp_path / "a"), "new", 0o644, "root:root")
    assert (tmp_path / "a").read_text() == "old"
    change.commit()
    assert (tmp_path / "a").read_text() == "new"
    change.finish()
    assert names(tmp_path) == ["a"]


def test_a_fault_in_the_middle_brings_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old a")
    (tmp_path / "c").write_text("old c")
    change = files.Change()
    change.write(str(tmp_path / "a"), "new a", 0o644, "root:root")
    change.write(str(tmp_path / "b"), "new b", 0o644, "root:root")
    change.remove(str(tmp_path / "c"))
    real, count = os.replace, iter(range(10))

    def replace(source: str, target: str) -> None:
        if next(count) == 1:
            raise OSError(28, "No space left on device", target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        change.commit()
    monkeypatch.undo()
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"a": "old a", "c": "old c"}


def test_a_commit_can_be_taken_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    change = files.Change()
    change.write(str(tmp_path / "a"), "new", 0o600, "root:root")
    change.write(str(tmp_path / "x" / "y" / "b"), "new", 0o644, "root:root")
    change.commit()
    assert (tmp_path / "x" / "y" / "b").read_text() == "new"
    change.rollback()
    assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"], "the folders made for it are gone too"


def test_a_full_disk_leaves_no_temporary_file_and_names_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        files.Change().write(str(tmp_path / "a"), "new", 0o644, "root:root")
    assert caught.value.filename == str(tmp_path / "a")
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_the_mode_is_exact_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.write_atomic(str(tmp_path / "a"), "x", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("real")
    (tmp_path / "a").symlink_to("real")
    change = files.Change()
    change.write(str(tmp_path / "a"), "new", 0o644, "root:root")
    change.commit()
    change.rollback()
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "real").read_text() == "real"


def test_an_unknown_owner_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(AgentError) as caught:
        files.write_atomic(str(tmp_path / "a"), "x", owner="nobody-here:root")
    assert caught.value.fields["reference"] == "unknown-owner"
    assert names(tmp_path) == []


def test_a_large_file_is_known_by_its_hash_only(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    assert files.facts(str(tmp_path / "a"), content=True)["content"] == "x" * 100
    assert "content" not in files.facts(str(tmp_path / "a"), content=True, limit=50)
    assert files.facts(str(tmp_path / "gone"), content=True)["exists"] is False
