"""A site in a temporary folder, made of the files that a case lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

MakeSite = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSite:
    """Return what writes files below the folder that the test then works in."""

    def make(files: Mapping[str, str]) -> Path:
        for name, text in ({"hosts.yaml": "hosts: {}\n"} | dict(files)).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("FLEETCTL_SITE", raising=False)
        return tmp_path

    return make
