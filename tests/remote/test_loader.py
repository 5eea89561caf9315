"""What an agent keeps for the next one: its modules, compiled, believed only when they are whole and root's."""

from __future__ import annotations

import json
import marshal
import os
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from fleetctl.remote import loader

NAME = "fleetctl.remote.sample"


def shipped(text: str, key: str = "k1") -> loader.Shipped:
    return loader.Shipped(zlib.compress(json.dumps({NAME: text}).encode()), key)


def value(found: loader.Shipped) -> int:
    spec = found.find_spec(NAME)
    module = ModuleType(NAME)
    module.__spec__ = spec
    found.exec_module(module)
    return int(module.VALUE)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(loader, "FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def kept(folder: Path) -> Path:
    """A kept file whose code differs from the text, so that a test sees which of them ran."""
    shipped("VALUE = 1").keep()
    (path,) = folder.iterdir()
    body = marshal.dumps({NAME: marshal.dumps(compile("VALUE = 2", NAME, "exec"))})
    path.write_bytes(b"%08x" % zlib.crc32(body) + body)
    return path


def test_without_a_kept_file_the_text_runs() -> None:
    found = shipped("VALUE = 1")
    assert found.fresh
    assert value(found) == 1


def test_nothing_is_kept_unasked(folder: Path) -> None:
    value(shipped("VALUE = 1"))
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("kept")
def test_the_kept_code_runs_instead_of_the_text() -> None:
    found = shipped("VALUE = 1")
    assert not found.fresh
    assert value(found) == 2
    assert found.get_source(NAME) == "VALUE = 1"


@pytest.mark.usefixtures("kept")
def test_another_payload_does_not_see_it() -> None:
    assert value(shipped("VALUE = 1", key="k2")) == 1


def test_a_torn_file_is_passed_over(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-7])
    assert value(shipped("VALUE = 1")) == 1


def test_an_empty_file_is_passed_over(kept: Path) -> None:
    kept.write_bytes(b"")
    assert value(shipped("VALUE = 1")) == 1


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_may_write_is_passed_over(kept: Path, mode: int) -> None:
    kept.chmod(mode)
    assert value(shipped("VALUE = 1")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_passed_over(kept: Path) -> None:
    os.chown(kept, 65534, 65534)
    assert value(shipped("VALUE = 1")) == 1


def test_only_the_newest_files_stay(folder: Path) -> None:
    for number in range(loader.KEPT_VERSIONS + 2):
        found = shipped("VALUE = 1", key=f"k{number}")
        found.keep()
        os.utime(folder / found.name, (number, number))
    assert len(list(folder.iterdir())) == loader.KEPT_VERSIONS
    assert (folder / shipped("", key=f"k{loader.KEPT_VERSIONS + 1}").name).exists()
    assert not (folder / shipped("", key="k0").name).exists()


def test_a_folder_that_cannot_be_written_is_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setattr(loader, "FOLDER", str(folder / "file" / "lib"))
    monkeypatch.setattr(loader, "SHIPPED", shipped("VALUE = 1"))
    loader.keep()
