"""Running the programs that the lab is made of, with their fault in one place."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from fleetctl.errors import FleetError


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    timeout: float = 120,
    check: bool = True,
    doing: str = "",
    hint: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program and return it with its output; raise FleetError ``lab-command-failed``."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout, check=False, input=stdin or ""
        )
    except subprocess.TimeoutExpired as error:
        raise failed(doing or words[0], f"no end after {timeout:.0f} s", hint) from error
    except OSError as error:
        raise failed(doing or words[0], str(error), hint) from error
    if check and done.returncode != 0:
        raise failed(
            doing or words[0],
            f"exit {done.returncode}",
            hint,
            tuple((done.stderr or done.stdout).strip().splitlines()[-12:]),
        )
    return done


def failed(doing: str, why: str, hint: str = "", context: tuple[str, ...] = ()) -> FleetError:
    """Return the fault of a step of the lab."""
    return FleetError("lab-command-failed", f"{doing}: {why}", hint=hint, context=context)
