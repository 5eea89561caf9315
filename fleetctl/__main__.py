"""The console script: ``--version`` answers before anything heavy is imported."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    _have_streams()
    if sys.argv[1:] in (["--version"], ["-V"]):
        from fleetctl import __version__

        try:
            print(f"fleetctl {__version__}", flush=True)
        except OSError as error:
            from fleetctl.cli.app import of_os_error

            sys.exit(of_os_error(error, as_json=False))
        return
    # Imports allocate much and free nothing: looking for garbage among it is a seventh of the start.
    gc.set_threshold(100_000, 20, 20)
    from fleetctl.cli.interrupt import guard

    guard()
    codes: list[int] = []
    atexit.register(_leave, codes)
    from fleetctl.cli.app import run

    codes.append(run())
    sys.exit(codes[0])


def _have_streams() -> None:
    """Put /dev/null where a standard stream is closed: the next file or socket would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _leave(codes: list[int]) -> None:
    """End here, as the last one at the exit: taking all modules apart is a sixth of a short command."""
    if codes:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(codes[0])


if __name__ == "__main__":
    main()
