"""Files come whole or not at all, packed by what the host has."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import FleetError
from fleetctl.model.fleet import Host
from fleetctl.transport import connect
from fleetctl.transport.base import Connection
from fleetctl.transport.fetch import fetch, fetch_file

LOG = b"".join(b"line %d of a log that repeats itself\n" % n for n in range(60_000))


@pytest.fixture(params=["local", "ssh"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    host = Host(name="gpu-01", address="localhost", transport="local")
    if request.param == "ssh":
        host = request.getfixturevalue("sshd")().host()
    made = connect(host)
    yield made
    made.close()


def test_a_log_comes_whole_with_a_tenth_of_its_bytes(
    connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(LOG)
    there = tmp_path / "here/log"
    got = fetch_file(connection, str(tmp_path / "log"), there)
    assert there.read_bytes() == LOG
    assert got.size == len(LOG)
    assert got.wire < len(LOG) / 10
    assert not got.truncated


@pytest.mark.parametrize("have", ["zstd", "gzip", "cat"])
def test_without_zstd_gzip_does_and_without_that_cat(
    connection: Connection, tmp_path: Path, have: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in (
        "sh",
        "cat",
        *(["gzip"] if have != "cat" else []),
        *(["zstd"] if have == "zstd" else []),
    ):
        (tools / tool).symlink_to(shutil.which(tool) or "/nowhere")
    (tmp_path / "log").write_bytes(LOG)

    class Poor:
        """The connection, as to a host that has no more than those tools."""

        host = connection.host

        def open(self, command: str) -> Any:
            return connection.open(f"PATH={tools}; {command}")

    got = fetch_file(Poor(), str(tmp_path / "log"), tmp_path / "got")  # type: ignore[arg-type]
    assert got.packer == have
    assert (tmp_path / "got").read_bytes() == LOG


def test_a_missing_file_is_told_by_its_own_words_and_leaves_nothing(
    connection: Connection, tmp_path: Path
) -> None:
    with pytest.raises(FleetError) as caught:
        fetch_file(connection, "/nowhere/log", tmp_path / "log")
    assert caught.value.reference == "fetch-failed"
    assert "No such file" in caught.value.message
    assert not [p for p in tmp_path.iterdir() if p.name.endswith("log") or "partial" in p.name]


def test_a_command_that_fails_at_its_end_leaves_nothing(
    connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("old")
    with pytest.raises(FleetError) as caught:
        fetch(connection, "echo some; echo 'ran out' >&2; exit 3", tmp_path / "log")
    assert caught.value.message == "ran out"
    assert (tmp_path / "log").read_text() == "old"


def test_what_is_too_large_is_cut_and_says_so(connection: Connection, tmp_path: Path) -> None:
    got = fetch(connection, "yes", tmp_path / "log", limit=1_000_000)
    assert (got.size, got.truncated) == (1_000_000, True)
    assert (tmp_path / "log").stat().st_size == 1_000_000


def test_an_empty_file_comes_too(connection: Connection, tmp_path: Path) -> None:
    assert fetch(connection, ":", tmp_path / "log").size == 0
    assert (tmp_path / "log").read_bytes() == b""


def test_progress_is_told(connection: Connection, tmp_path: Path) -> None:
    seen: list[int] = []
    progress: Callable[[int], None] = seen.append
    fetch(connection, "head -c 300000 /dev/zero", tmp_path / "log", on_progress=progress)
    assert seen == sorted(seen)
    assert seen[-1] == 300_000


def test_a_place_that_cannot_be_written_is_a_fault_here(
    connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FleetError) as caught:
        fetch(connection, "echo a", tmp_path / "file/log")
    assert caught.value.reference == "cannot-write"
