"""Pages that begin with ``<!-- run: lab -->`` are typed line by line on real hosts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages, typed

pytestmark = pytest.mark.lab

RUNNABLE = [p for p in pages() if p.read_text(encoding="utf-8").startswith("<!-- run: lab -->")]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.name)
def test_every_line_of_the_page_does_what_a_reader_expects(page: Path, tmp_path: Path) -> None:
    """Exit codes are 0 or the negative answer 1; no line ends in a fault of ours."""
    environment = os.environ | {
        "FLEETCTL_HOME": str(tmp_path),
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
    }
    try:
        for line in typed(page):
            if line.text.startswith("export "):
                name, _, value = line.text.removeprefix("export ").partition("=")
                environment[name] = value
                continue
            done = subprocess.run(
                ["bash", "-c", line.text], cwd=tmp_path, env=environment, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=300, check=False,
            )  # fmt: skip
            said = done.stdout[-1500:] + done.stderr[-1500:]
            assert done.returncode in (0, 1), f"{line}: exit {done.returncode}\n{said}"
            assert "internal-fault" not in said, f"{line}\n{said}"
            assert "Traceback" not in done.stderr, f"{line}\n{said}"
    finally:
        subprocess.run(
            [str(ROOT / ".venv/bin/fleetctl"), "lab", "down", "--name", "night"],
            env=environment,
            capture_output=True,
            check=False,
        )
