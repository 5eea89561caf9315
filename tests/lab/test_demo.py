"""The story of ``make demo`` goes as the README tells it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.demo.stage import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.sglang]


def test_the_founding_story_is_told_to_its_end() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-2000:]
    assert "three incidents, three fingerprints" in told.stdout
