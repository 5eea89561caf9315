"""The kept inventory is the read one, and is not used for another file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fleetctl
from fleetctl.config import site, snapshot
from fleetctl.errors import FleetError

TEXT = """
defaults: {user: ops, become: sudo, gpus: 8, env: {A: "1"}}
hosts:
  bastion: {address: 10.0.0.9}
  b300-[01-02]: {address: "10.0.0.{n}", groups: [b300], jump: bastion, flags: {cuda-graph-bs: [1, 2]}}
  rtx-01: {services: {main: {gpus: [0, 1], port: 30000}, draft: {gpus: [2, 3], port: 30010}}}
"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    path = tmp_path / "hosts.yaml"
    path.write_text(TEXT)
    return path


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: object) -> site.Site:
        raise AssertionError("read again")

    monkeypatch.setattr(site, "load_site", read)


def test_what_is_kept_equals_what_was_read(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = snapshot.hosts()
    forbid_reading(monkeypatch)
    kept = snapshot.hosts()
    assert kept == read
    assert list(kept) == ["bastion", "b300-01", "b300-02", "rtx-01"]
    assert kept["b300-01"].via == kept["bastion"]
    assert kept["b300-01"].flags == read["b300-01"].flags


@pytest.mark.parametrize("change", ["text", "time"])
def test_a_file_that_changed_is_read_again(inventory: Path, change: str) -> None:
    snapshot.hosts()
    if change == "text":
        at = inventory.stat()
        inventory.write_text(TEXT.replace("rtx-01", "rtx-02"))
        os.utime(inventory, ns=(at.st_atime_ns, at.st_mtime_ns + 1))
        assert "rtx-02" in snapshot.hosts()
    else:
        os.utime(inventory, ns=(1, 1))
        assert "rtx-01" in snapshot.hosts()


def test_another_version_reads_again(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.hosts()
    monkeypatch.setattr(fleetctl, "__version__", "9")
    forbid_reading(monkeypatch)
    with pytest.raises(AssertionError, match="read again"):
        snapshot.hosts()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"of": 1}', "{}"])
def test_a_damaged_cache_is_no_fault(inventory: Path, tmp_path: Path, damage: str) -> None:
    read = snapshot.hosts()
    kept = next((tmp_path / "cache").rglob("*.json"))
    kept.write_text(damage)
    assert snapshot.hosts() == read


def test_a_cache_that_cannot_be_written_is_no_fault(inventory: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert "rtx-01" in snapshot.hosts()


def test_a_faulty_inventory_is_told_each_time(inventory: Path) -> None:
    inventory.write_text("hosts: {a: {adress: b}}\n")
    for _ in range(2):
        with pytest.raises(FleetError):
            snapshot.hosts()
