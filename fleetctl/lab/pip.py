"""Filling a layer with packages for the hosts' Python, which need not be the one that runs here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from fleetctl.lab import shell

PYTHON = "3.11"  # of Debian 12, which the hosts run
# Where PyPI's torch is the CUDA build, as it is for Linux; PyTorch's own index has the CPU one.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
HINT = "is the package index reachable? Run the same command again: what is there already is kept"


def install(
    target: Path,
    requirements: str,
    *,
    without: Collection[str] = (),
    options: Collection[str] = (),
) -> None:
    """Install pinned requirements into a folder, wheels only, without resolving anything."""
    lines = [x for x in requirements.splitlines() if x and not x.startswith("#")]
    wanted = [x for x in lines if x.partition("==")[0] not in without]
    _pip(["install", "--target", str(target), "--no-compile", *options, *wanted])


def install_torch(target: Path, requirements: str, say: Callable[[str], None]) -> None:
    """Install torch's CPU build: from the configured indexes where they have it, else from PyTorch's."""
    pin = next(x for x in requirements.splitlines() if x.startswith("torch=="))
    report = _pip(["install", "--dry-run", "--ignore-installed", "--report", "-", "--quiet", pin])
    chosen = json.loads(report)["install"][0]["metadata"]
    needs_cuda = any(x.startswith(("nvidia", "cuda")) for x in chosen.get("requires_dist", []))
    index = os.environ.get("FLEETCTL_TORCH_INDEX", TORCH_CPU_INDEX if needs_cuda else "")
    if index:
        say(f"taking the CPU build of torch from {index}")
    install(target, pin, options=["--index-url", index] if index else [])


def _pip(arguments: list[str]) -> str:
    constraints = {"--only-binary": ":all:", "--python-version": PYTHON, "--implementation": "cp"}
    options = [word for pair in constraints.items() for word in pair]
    verb, *rest = arguments
    target = [] if "--target" in rest else ["--target", "/nonexistent"]
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", verb, "--no-deps"]
    argv += [*options, *target, "--no-warn-conflicts", "--root-user-action=ignore", *rest]
    return shell.run(argv, timeout=1800, doing="pip (packages of the lab hosts)", hint=HINT).stdout
