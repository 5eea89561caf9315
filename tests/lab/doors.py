"""Moments of a deploy that a test can hold: doors on the host's side, and a line that it can cut on ours.

A door is in the host's python3: a stand-in in front of the real one (``python:`` of the inventory) adds an
audit hook (PEP 578) and changes nothing else. So the agent stops in front of a rename, a mkdir, a
look into a folder or a program that it is about to run, for as long as the test wants, and knows nothing of it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetctl.lab.box import Box

PYTHON = "/usr/local/bin/python3-with-doors"
FOLDER = "/var/tmp/doors"
STAND_IN = """#!/usr/bin/python3
# The lab's stand-in for python3: the same interpreter, which waits at doors that a test has put up.
import os, re, sys, time

FOLDER = "/var/tmp/doors"
if "-c" not in sys.argv:  # a script of its own, such as a unit's collector
    os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv[1:]])
doors = []
for name in sorted(os.listdir(FOLDER)):
    if name.endswith(".door"):
        with open(FOLDER + "/" + name) as file:
            doors.append((name[:-5], file.read().splitlines()))


def hook(event, args):
    if event == "os.rename":
        what = "rename %s" % (args[1],)
    elif event == "os.mkdir":
        what = "mkdir %s" % (args[0],)
    elif event == "os.listdir":
        what = "list %s" % (args[0],)
    elif event == "subprocess.Popen":
        what = "run " + " ".join(map(str, args[1]))
    else:
        return
    for name, left in doors:
        if left and re.search(left[0], what):
            del left[0]
            if not left:
                wait(FOLDER + "/" + name)


def wait(door):
    with open(door + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(door + ".part", door + ".reached")
    end = time.monotonic() + 300
    while not os.path.exists(door + ".open") and time.monotonic() < end:
        time.sleep(0.02)


sys.addaudithook(hook)
code = sys.argv[sys.argv.index("-c") + 1]
sys.argv = ["-c"]
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
"""


class Door:
    """A door at the first thing that matches the last of these expressions, after the others did in order."""

    def __init__(self, box: Box, name: str, *expressions: str) -> None:
        self._stem = box.lab.folder(box.host) / "root" / FOLDER[1:] / name
        text = "\n".join(expressions)
        self._stem.with_suffix(".door").write_text(text)

    def wait(self, seconds: float = 240.0) -> int:
        """Return once an agent stands there: its process id on the host."""
        reached = self._stem.with_suffix(".reached")
        until(reached.exists, f"{self._stem.name} is reached", seconds)
        return int(reached.read_text())

    def open(self) -> None:
        """Let the agent go on."""
        self._stem.with_suffix(".open").touch()


def build(box: Box) -> None:
    """Put the stand-in on the host, and take every door down."""
    box.console(
        f'rm -rf {FOLDER}; mkdir -p {FOLDER}; printf %s "$1" > {PYTHON}; chmod 755 {PYTHON}',
        STAND_IN,
    )


def until(said: Callable[[], object], what: str, seconds: float = 240.0) -> None:
    """Return once it is so."""
    end = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class Line:
    """A port of this computer that leads to a host's sshd, until the line is cut."""

    def __init__(self, box: Box) -> None:
        self._goal = (box.address, 22)
        self._through = threading.Event()
        self._through.set()
        self._down = False
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def known_hosts(self, box: Box) -> str:
        """Return the line that makes the host's key known at this port."""
        lines = box.lab.known_hosts.read_text().splitlines()
        (key,) = [line.split(None, 1)[1] for line in lines if line.startswith(f"{box.address},")]
        return f"[127.0.0.1]:{self.port} {key}\n"

    def cable_out(self) -> None:
        """Carry nothing any more, and tell nobody."""
        self._through.clear()

    def cut(self) -> None:
        """Reset what stands, as a router that has forgotten it does; new connections are reset too."""
        self._down = True
        self._reset()

    def mend(self) -> None:
        """Carry again, also what has waited."""
        self._down = False
        self._through.set()

    def close(self) -> None:
        """Take the line down."""
        self._listener.close()
        self.cut()
        self._through.set()

    def _reset(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._through.wait()
        if self._down:
            self._reset()
            return
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._goal)
            self._ends.append(far)
            threading.Thread(target=self._pump, args=(far, near), daemon=True).start()
            self._pump(near, far)

    def _pump(self, source: socket.socket, goal: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._through.wait()
                goal.sendall(data)
        with contextlib.suppress(OSError):
            self._through.wait()
            goal.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def line(box: Box, folder: Path) -> Iterator[tuple[Line, dict[str, object]]]:
    """Yield a line to a host, and the settings with which an inventory reaches the host by it."""
    made = Line(box)
    known = folder / f"known-{made.port}"
    known.write_text(made.known_hosts(box))
    settings: dict[str, object] = {
        "address": "127.0.0.1", "port": made.port, "known_hosts": str(known), "python": PYTHON,
    }  # fmt: skip
    try:
        yield made, settings
    finally:
        made.close()
