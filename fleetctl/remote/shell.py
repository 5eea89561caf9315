"""Run a program of the host with a deadline and bounded output."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any, Callable, Sequence

from fleetctl.remote.agent import AgentError

ENV = dict(
    os.environ,
    LC_ALL="C.UTF-8",
    SYSTEMD_COLORS="0",
    SYSTEMD_PAGER="",
    PATH=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin",
)


class Done:
    """What a program left: exit status (124: ran out of time, 127: not there) and its texts."""

    def __init__(self, rc: int, out: str, err: str) -> None:
        self.rc = rc
        self.out = out
        self.err = err


def run(argv: Sequence[str], timeout: float = 20.0, **options: Any) -> Done:
    """Run a program to its end; it never raises for what the program does."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            env=ENV,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired as late:
        return Done(124, _text(late.stdout), "%s: no end after %g s" % (argv[0], timeout))
    except OSError as error:
        return Done(127, "", "%s: %s" % (argv[0], error.strerror))
    return Done(done.returncode, _text(done.stdout), _text(done.stderr))


def insist(
    argv: Sequence[str], alive: Callable[[], bool], every: float, timeout: float
) -> Done | None:
    """Run a program for as long as what it waits for lives; None when ``alive`` said no twice in a row."""
    try:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=ENV,
        )  # fmt: skip
    except OSError as error:
        return Done(127, "", "%s: %s" % (argv[0], error.strerror))
    end, dead = time.monotonic() + timeout, 0
    while True:
        try:
            out, err = process.communicate(timeout=every)
            return Done(process.returncode, _text(out), _text(err))
        except subprocess.TimeoutExpired:
            dead = 0 if alive() else dead + 1
        if dead >= 2 or time.monotonic() >= end:
            process.kill()
            process.communicate()
            late = "%s: no end after %g s" % (argv[0], timeout)
            return None if dead >= 2 else Done(124, "", late)


def which(program: str, path: str = "") -> str:
    """Return where a program is, "" for one that the host lacks: to try would cost a process too.

    shutil's own comes with the compression libraries, 4 ms of an agent's start.
    """
    for folder in (path or ENV["PATH"]).split(os.pathsep):
        found = os.path.join(folder, program)
        if folder and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return ""


def must(argv: Sequence[str], reference: str, timeout: float = 20.0, hint: str = "") -> str:
    """Run a program and return its output; AgentError with that reference when it fails."""
    return checked(run(argv, timeout), argv, reference, hint)


def checked(done: Done, argv: Sequence[str], reference: str, hint: str = "") -> str:
    """Return the output of a program that ended with 0; AgentError with that reference for any other."""
    if done.rc != 0:
        said = (done.err or done.out).strip().splitlines()
        raise AgentError(
            reference,
            said[0] if said else "%s ended with status %d" % (argv[0], done.rc),
            where=" ".join(argv),
            hint=hint,
            context=said[1:10],
        )
    return done.out


def json_object(text: str) -> dict[str, Any]:
    """Return the object that a program printed; empty when it printed none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text(data: Any) -> str:
    if data is None:
        return ""
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
