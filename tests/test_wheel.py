"""What the wheel carries beside the code: templates, inventories, flag schemas, patches."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_program_renders_its_example_out_of_the_wheel(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEETCTL")}
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", "render", "--all", "-p", "tp8-ddtree"],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "--speculative-ddtree-budget 64" in done.stdout
    assert (tmp_path / "site" / "fleetctl" / "_data" / "patches").is_dir()
