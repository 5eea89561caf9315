"""paramiko without the part that only ``Match exec`` of ssh_config needs.

``paramiko.config`` imports invoke when it is installed, and uses it for nothing else; that import is a
third of paramiko's own (docs/adr/0006). It is held back for the time of the import alone, so that
fabric, which does need invoke, still finds it afterwards. ``with_match_exec`` brings it in on demand.
"""

from __future__ import annotations

import sys

_HELD = "invoke" not in sys.modules and "paramiko" not in sys.modules
if _HELD:
    sys.modules["invoke"] = None  # type: ignore[assignment]  # the documented way to make an import fail
try:
    import paramiko
    import paramiko.config
finally:
    if _HELD:
        del sys.modules["invoke"]

__all__ = ["paramiko", "with_match_exec"]


def with_match_exec() -> None:
    """Give paramiko's ssh_config reader what ``Match exec`` runs commands with."""
    if paramiko.config.invoke is None:  # type: ignore[attr-defined]
        import invoke

        paramiko.config.invoke = invoke  # type: ignore[attr-defined]
