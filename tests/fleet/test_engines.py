"""What ``engine install`` takes, and what a bundle is."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fleetctl.errors import FleetError, UsageError
from fleetctl.fleet import engines


@pytest.mark.parametrize(
    ("text", "requirement", "name"),
    [
        ("0.5.12.post1", "sglang[all]==0.5.12.post1", "0.5.12.post1"),
        ("0.5.10rc0", "sglang[all]==0.5.10rc0", "0.5.10rc0"),
        (
            "git+https://github.com/sgl-project/sglang@0123abcd4567ef",
            "sglang[all] @ git+https://github.com/sgl-project/sglang@0123abcd4567ef#subdirectory=python",
            "git-0123abcd4567",
        ),
        (
            "git+https://x/fork@0123abcd#subdirectory=py",
            "sglang[all] @ git+https://x/fork@0123abcd#subdirectory=py",
            "git-0123abcd",
        ),
    ],
)
def test_a_release_or_a_commit_becomes_a_requirement_and_a_name(
    text: str, requirement: str, name: str
) -> None:
    found = engines.source(text)
    assert (found.requirement, found.name) == (requirement, name)


@pytest.mark.parametrize(
    "text", ["latest", "git+https://x/y@main", "git+https://x/y", "no.tar", ""]
)
def test_what_is_not_pinned_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        engines.source(text)
    assert caught.value.reference == "bad-engine"


def test_a_file_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w:") as tar:
        tar.add(__file__, arcname="something")
    with pytest.raises(UsageError) as caught:
        engines.source(str(path))
    assert caught.value.where == str(path)


def test_what_pip_cannot_fetch_is_told_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    options = ["--no-index", "--find-links", str(tmp_path)]
    with pytest.raises(FleetError) as caught:
        engines.bundle("0.5.12.post1", out, options)
    assert caught.value.reference == "bundle-failed"
    assert caught.value.context
    assert not list(tmp_path.glob("*.tar*"))
