"""The child processes: one scheduler for each rank and a detokenizer, alive and killable like SGLang's."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import threading
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def title(text: str) -> None:
    """Show ``text`` as this process's name and command line, as setproctitle does."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, text.encode(), 0, 0, 0)
    with open("/proc/self/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(text.encode()[: end - start - 1].ljust(end - start, b"\0"))


class Child:
    """One child process. It prints and answers what it is told, and does nothing by itself."""

    def __init__(self, name: str, prefix: str) -> None:
        self.name = name
        self.prefix = prefix
        self.exit_code: int | None = None
        self._lock = threading.Lock()
        self._number = 0
        self._unread = b""
        ours, theirs = socket.socketpair()
        self._link = ours
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _serve(theirs, name)
        theirs.close()

    def tell(self, timeout: float | None = None, **message: Any) -> bool:
        """Send a message and return whether the child acted on it within ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            return False  # another question waits for a child that does not answer
        try:
            self._number += 1
            body = json.dumps(message | {"number": self._number}).encode() + b"\n"
            self._link.sendall(body)
            return self._wait(end)
        except OSError:
            return False
        finally:
            self._lock.release()

    def _wait(self, end: float | None) -> bool:
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            if not select.select([self._link], [], [], left)[0]:
                return False
            got = self._link.recv(65536)
            if not got:
                return False
            *answers, self._unread = (self._unread + got).split(b"\n")
            if any(int(answer) == self._number for answer in answers):
                return True

    def say(self, text: str, timeout: float | None = None) -> bool:
        """Let the child print a text to the log that it shares with the server."""
        return self.tell(timeout, say=text)

    def poll(self) -> int | None:
        """Return the exit code once the child has ended (negative: the signal), else None."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return self.exit_code
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the child."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return


def _serve(link: socket.socket, name: str) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    title(name)
    for line in link.makefile("rb"):
        message = json.loads(line)
        if "say" in message:
            write(message["say"])
        if message.get("fail"):
            os.kill(os.getppid(), signal.SIGQUIT)
        link.sendall(b"%d\n" % message["number"])
    os._exit(0)


def write(text: str) -> None:
    """Write a text to standard output at once and whole."""
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]
