"""Ctrl-C at the worst of moments."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_a_ctrl_c_that_is_ignored_stays_ignored() -> None:
    code = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from fleetctl.cli.interrupt import guard
guard()
signal.raise_signal(signal.SIGINT)
print("on")
"""
    assert python(code) == "on"


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
