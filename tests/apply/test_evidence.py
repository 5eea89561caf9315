"""A bundle from a host is taken only when it is what its manifest says, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply import evidence
from fleetctl.errors import RemoteError

GOOD = {"journal.jsonl": b'{"MESSAGE": "x"}\n', "unit.txt": b"Id=x\n"}


def manifest(files: dict[str, bytes]) -> bytes:
    said = {n: {"sha256": hashlib.sha256(d).hexdigest(), "bytes": len(d)} for n, d in files.items()}
    body = {"schema": "fleetctl.bundle/1", "service": "main", "invocation_id": "a", "files": said}
    return json.dumps(body).encode()


def packed(files: dict[str, bytes], **members: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in members.get(name, {}).items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def bad(folder: Path, data: bytes) -> str:
    with pytest.raises(RemoteError) as caught:
        evidence.unpack(data, folder / "b", "lab-01")
    assert caught.value.reference == "bad-bundle"
    assert list(folder.iterdir()) == [], "nothing is left behind"
    return caught.value.message


def test_a_whole_bundle_is_kept(tmp_path: Path) -> None:
    evidence.unpack(packed({"manifest.json": manifest(GOOD)} | GOOD), tmp_path / "b", "lab-01")
    assert {p.name for p in (tmp_path / "b").iterdir()} == {"manifest.json", *GOOD}
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_a_newer_one_takes_the_place_of_an_older(tmp_path: Path) -> None:
    evidence.unpack(packed({"manifest.json": manifest(GOOD)} | GOOD), tmp_path / "b", "lab-01")
    more = GOOD | {"launch.json": b"{}"}
    evidence.unpack(packed({"manifest.json": manifest(more)} | more), tmp_path / "b", "lab-01")
    assert (tmp_path / "b" / "launch.json").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ".hidden", "x" * 200, "a\nb"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    assert "it holds" in bad(tmp_path, packed({"manifest.json": manifest(GOOD), name: b"x"}))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    data = packed({"manifest.json": manifest({}), "x": b""}, x={"type": kind, "linkname": "/etc"})
    assert "it holds" in bad(tmp_path, data)


def test_bytes_that_are_not_what_the_manifest_says(tmp_path: Path) -> None:
    files = {"manifest.json": manifest(GOOD)} | GOOD | {"unit.txt": b"other"}
    assert "unit.txt" in bad(tmp_path, packed(files))


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    assert "missing" in bad(tmp_path, packed({"manifest.json": manifest(GOOD)}))


def test_no_manifest(tmp_path: Path) -> None:
    assert "manifest" in bad(tmp_path, packed(GOOD))


@pytest.mark.parametrize("data", [b"", b"no archive", gzip.compress(b"no tar"), packed(GOOD)[:60]])
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    assert bad(tmp_path, data)


def test_one_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "UNPACKED_LIMIT", 1000)
    assert "unpacks" in bad(tmp_path, packed({"manifest.json": manifest({}), "big": b"0" * 2000}))


def test_the_id_of_an_incident_is_that_of_its_invocation() -> None:
    said = {"boot_id": "b", "invocation_id": "i", "service": "main"}
    assert evidence.incident_id("h", said) == evidence.incident_id(
        "h", said | {"created_at": "later"}
    )
    assert evidence.incident_id("h", said) != evidence.incident_id("g", said)
