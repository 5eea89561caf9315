"""Ctrl-C at the worst of moments."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from fleetctl.cli.app import run
from fleetctl.config import site

# A function that Python takes for its own import machinery, and that is interrupted in its midst.
AMID_IMPORT = """
import signal
from fleetctl.cli.interrupt import guard
guard()
space = {"signal": signal, "seen": []}
exec(compile('''
def work():
    seen.append("taken")
    signal.raise_signal(signal.SIGINT)
    seen.append("given back")
''', "<frozen importlib._bootstrap>", "exec"), space)
try:
    space["work"]()
    while True:
        signal.pause()
except KeyboardInterrupt:
    print(space["seen"])
"""


def python(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    return run.stdout.strip()


def test_a_ctrl_c_amid_an_import_comes_after_the_lock_is_given_back() -> None:
    assert python(AMID_IMPORT) == "['taken', 'given back']"


def test_elsewhere_it_comes_at_once() -> None:
    code = AMID_IMPORT.replace("<frozen importlib._bootstrap>", "mine.py")
    assert python(code) == "['taken']"


@pytest.mark.parametrize("kind", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_is_ignored_stays_ignored(kind: str) -> None:
    code = """
import signal
signal.signal(signal.KIND, signal.SIG_IGN)
from fleetctl.cli.interrupt import guard
guard()
signal.raise_signal(signal.KIND)
print("on")
"""
    assert python(code.replace("KIND", kind)) == "on"


@pytest.mark.parametrize("kind", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("ignored", ["", "signal.signal(signal.SIGINT, signal.SIG_IGN)"])
def test_a_kill_and_a_closed_terminal_are_a_ctrl_c_also_of_a_job_in_the_background(
    kind: str, ignored: str
) -> None:
    code = f"""
import signal
{ignored}
from fleetctl.cli.interrupt import guard
guard()
try:
    signal.raise_signal(signal.{kind})
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python(code) == "interrupted"


HUNG_UP = """
import os, signal, sys
from fleetctl.cli.interrupt import guard
guard()
try:
    signal.pause()
except KeyboardInterrupt:
    print("last word", flush=True)  # a fault, where the terminal is gone
    open(sys.argv[1], "w").write("all that was to be done")
"""


def test_what_is_said_to_a_terminal_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    mine, theirs = pty.openpty()
    started = [sys.executable, "-c", HUNG_UP, str(tmp_path / "done")]
    process = subprocess.Popen(started, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    ready_to_wait(process.pid)
    os.close(mine)
    process.send_signal(signal.SIGHUP)  # as its shell does
    assert process.wait(30) == 0
    assert (tmp_path / "done").exists()


def ready_to_wait(pid: int) -> None:
    """Wait until a process catches SIGHUP."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        caught = re.search(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
        if caught and int(caught[1], 16) & 1 << signal.SIGHUP - 1:
            return
        time.sleep(0.02)
    raise AssertionError("it does not catch SIGHUP")


def test_one_that_python_drops_comes_again() -> None:
    code = """
import signal
from fleetctl.cli.interrupt import guard
guard()
class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
try:
    Dying()
    while True:
        signal.pause()
except KeyboardInterrupt:
    print("came")
"""
    assert python(code) == "came"


@pytest.fixture
def pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "load_site", press)


@pytest.mark.usefixtures("pressed")
def test_a_command_that_is_interrupted_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.usefixtures("pressed")
def test_with_json_it_says_so_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profiles", "list", "--json"]) == 130
    assert json.loads(capsys.readouterr().err)["error"] == "interrupted"
