"""paramiko without the part that only ``Match exec`` of ssh_config needs.

``paramiko.config`` imports invoke when it is installed, to run the commands of ``Match exec`` with;
that import is a third of paramiko's own (docs/adr/0003). It is held back for the time of the import
alone, so that fabric, which does need invoke, finds it afterwards. ``Match exec`` gets a shell that
leaves our standard input alone.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

_HELD = "invoke" not in sys.modules and "paramiko" not in sys.modules
if _HELD:
    sys.modules["invoke"] = None  # type: ignore[assignment]  # the documented way to make an import fail
try:
    import paramiko
    import paramiko.config
finally:
    if _HELD:
        del sys.modules["invoke"]


def _match_exec(command: str, **_: object) -> SimpleNamespace:
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    return SimpleNamespace(ok=done.returncode == 0)


paramiko.config.invoke = SimpleNamespace(run=_match_exec)  # type: ignore[attr-defined]

# It logs faults with tracebacks that come to us as exceptions, and are shown from there.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

__all__ = ["paramiko"]
