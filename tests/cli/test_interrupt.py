"""Ctrl-C at the worst of moments."""

from __future__ import annotations

import subprocess
import sys

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
