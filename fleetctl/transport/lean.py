"""paramiko without the parts that a login does not need.

``paramiko.config`` imports invoke when it is installed, to run the commands of ``Match exec`` with;
that import is a third of paramiko's own (docs/adr/0003). It is held back for the time of the import
alone, so that fabric, which does need invoke, finds it afterwards. ``Match exec`` gets a shell that
leaves our standard input alone. And paramiko asks for its own version through a package that loads a
parser of mail; the name of its folder says the same. That is done where no other thread could import
that package meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def _versions() -> Any:
    """Return what stands in for importlib.metadata, or None where it must not or cannot."""
    spec = importlib.util.find_spec("paramiko")
    if spec is None or spec.origin is None or threading.active_count() > 1:
        return None
    for folder in Path(spec.origin).parents[1].glob("paramiko-*.dist-info"):
        return SimpleNamespace(version={"paramiko": folder.stem.partition("-")[2]}.__getitem__)
    return None


@contextlib.contextmanager
def _instead(name: str, module: Any) -> Iterator[None]:
    """Let a module be another one, or missing (None), for the block; one that was imported stays."""
    held = name not in sys.modules and "paramiko" not in sys.modules
    if held:
        sys.modules[name] = module
    try:
        yield
    finally:
        if held:
            del sys.modules[name]


with contextlib.ExitStack() as _stack:
    _stack.enter_context(_instead("invoke", None))
    if _known := _versions():
        _stack.enter_context(_instead("importlib.metadata", _known))
    import paramiko
    import paramiko.config


def _match_exec(command: str, **_: object) -> SimpleNamespace:
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    return SimpleNamespace(ok=done.returncode == 0)


paramiko.config.invoke = SimpleNamespace(run=_match_exec)  # type: ignore[attr-defined]

# It logs faults with tracebacks that come to us as exceptions, and are shown from there.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

__all__ = ["paramiko"]
