"""Keeps the next process id of a PID namespace and of the machine around it the same.

A process started inside has one number on both sides then: the kernel log (NVRM's "Xid … pid=", the
OOM killer) counts outside, systemctl and the journal inside. Best effort: a process started outside
between two looks leaves a gap until the next look.

usage: host-pidsync.py INIT_PID [INTERVAL_S]; ends with the namespace.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

LAST_PID = "/proc/sys/kernel/ns_last_pid"
CLONE_NEWPID = 0x20000000


def get(file: int) -> int:
    return int(os.pread(file, 32, 0))


def put(file: int, value: int) -> None:
    os.pwrite(file, b"%d" % value, 0)


def inside(questions: int, answers: int) -> None:
    """In the namespace: set what is told (0: nothing), answer with the last pid."""
    file = os.open(LAST_PID, os.O_RDWR)
    while text := os.read(questions, 16):
        if value := int(text):
            put(file, value)
        os.write(answers, b"%016d" % get(file))
    os._exit(0)


def main(init: int, interval: float) -> None:
    questions, answers = os.pipe(), os.pipe()
    namespace = os.open(f"/proc/{init}/ns/pid", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, CLONE_NEWPID):
        sys.exit("setns failed")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a zombie would hold up the namespace's shutdown
    if os.fork() == 0:
        os.close(questions[1])
        os.close(answers[0])
        inside(questions[0], answers[1])
    os.close(questions[0])
    os.close(answers[1])
    file = os.open(LAST_PID, os.O_RDWR)

    def ask(value: int) -> int:
        os.write(questions[1], b"%016d" % value)
        answer = os.read(answers[0], 16)
        if not answer:
            sys.exit(0)
        return int(answer)

    with contextlib.suppress(BrokenPipeError, OSError):
        while True:
            there, here = ask(0), get(file)
            if there > here:
                put(file, there)
            elif here > there:
                ask(here)
            time.sleep(interval)


main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.005)
