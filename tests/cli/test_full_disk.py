"""This machine's own disk is full: said as that, and not as a bug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["hosts", "list"], ["profiles", "list", "--json"]])
def test_output_that_does_not_fit(words: list[str], tmp_path: Path) -> None:
    env = {**os.environ, "FLEETCTL_HOME": str(tmp_path)}
    env.pop("FLEETCTL_SITE", None)
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", *words], stdout=full, stderr=subprocess.PIPE,
            text=True, env=env, timeout=60, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    assert done.returncode == 1
    assert "no-space-here" in done.stderr
    assert "No space left on device" in done.stderr
    assert "internal-fault" not in done.stderr
    assert "Traceback" not in done.stderr
