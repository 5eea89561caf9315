"""Where a schema comes from: shipped, fetched once, a file, a host."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetctl.config import flagsets
from fleetctl.engines.sglang import schema
from fleetctl.errors import ConfigError

SOURCE = 'class ServerArgs:\n    model_path: A[str, "Where."]\n    new_one: A[int, "New."] = 1\n'


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fleetctl" / "flags"


def wheel(folder: Path, version: str) -> Path:
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/srt/server_args.py", SOURCE)
        archive.writestr(
            f"sglang-{version}.dist-info/METADATA", f"Name: sglang\nVersion: {version}\n"
        )
    return path


def test_a_release_that_is_shipped_is_not_fetched() -> None:
    def never(version: str) -> Path:
        raise AssertionError(version)

    assert flagsets.named("0.5.12.post1", never).origin == "shipped"
    assert flagsets.named("v0.5.12.post1", never).version == "0.5.12.post1"


def test_another_release_is_fetched_once_and_stays_a_release(tmp_path: Path) -> None:
    asked = []

    def fetch(version: str) -> Path:
        asked.append(version)
        return wheel(tmp_path, version)

    first, again = flagsets.named("0.6.1", fetch), flagsets.named("0.6.1", fetch)
    assert asked == ["0.6.1"]
    assert first == again
    assert (again.origin, again.version, list(again.flags)) == (
        "tree",
        "0.6.1",
        ["--model-path", "--new-one"],
    )


@pytest.mark.parametrize("text", ["newest", "1.x.y/", "./gone.json", "sglang"])
def test_what_is_neither_a_version_nor_a_file_is_a_fault(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flagsets.named(text)
    assert caught.value.reference == "no-schema"


class Host:
    """An agent whose host has one tree."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.sent = 0

    def call(self, verb: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
        assert verb == "flags.read"
        known = self.body["digest"] in (args or {})["known"]
        self.sent += not known
        head = {"path": "/x", "version": self.body["version"], "digest": self.body["digest"]}
        return head | {"body": None if known else self.body}


def fork() -> dict[str, Any]:
    body = schema.load("0.5.12.post1").to_json()
    body["flags"].append({"names": ["--ddtree-budget"], "dest": "ddtree_budget", "action": "store"})
    return body | {"digest": "0123456789abcdef"}


def test_a_fork_is_sent_once_and_kept_by_its_hash(cache: Path) -> None:
    host = Host(fork())
    first, again = flagsets.of_host(host, "/p"), flagsets.of_host(host, "/p")
    assert host.sent == 1
    assert first == again
    assert first.origin == "host"
    assert first.find("ddtree-budget") is not None
    assert [p.name for p in cache.iterdir()] == ["0123456789abcdef.json.gz"]


def test_a_tree_that_is_a_release_byte_for_byte_is_that_release() -> None:
    body = schema.load("0.5.23").to_json()
    assert flagsets.of_host(Host(body), "/p") is schema.load("0.5.23")


def test_a_hash_from_a_host_is_no_path(cache: Path) -> None:
    flagsets.of_host(Host(fork() | {"digest": "../../evil"}), "/p")
    assert [p.name for p in cache.iterdir()] == ["unknown.json.gz"]


def test_a_cache_that_cannot_be_written_is_no_fault(cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    assert flagsets.of_host(Host(fork()), "/p").origin == "host"


def test_a_schema_file_of_a_site(tmp_path: Path) -> None:
    path = tmp_path / "fork.json"
    path.write_text(json.dumps(fork()))
    assert flagsets.named(str(path)).origin == "file"
