"""Run the tests that need hosts beside those that need none, and say the sum in one plain line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# The lab's tests mostly wait for hosts, the others compute: side by side they share two cores well.
LAB = sorted(str(path) for path in Path("tests/lab").glob("test_*.py"))
DEPLOYS = [path for path in LAB if Path(path).name.startswith("test_d")]
FLEETS = [path for path in LAB if Path(path).name.startswith(("test_c", "test_f", "test_lab_b"))]
PARTS = {  # the lab's are about a third of its time each
    "unit": ["--ignore=tests/lab"],
    "lab1": DEPLOYS,
    "lab2": FLEETS,
    "lab3": [path for path in LAB if path not in DEPLOYS + FLEETS],
}
NO_TESTS = 5
TOLD_FAILURES, TOLD_LINES = 2, 12  # of a part, once more at the very end


def start(name: str, folder: Path, extra: list[str]) -> subprocess.Popen[str]:
    """Start pytest for one part, without standard input."""
    argv = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    argv += [f"--junitxml={folder / name}.xml", *PARTS[name], *extra]
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "110"},
    )


def relay(name: str, stream: IO[str]) -> None:
    """Print what one part says, with its name before each line."""
    for line in stream:
        sys.stdout.write(f"{name:>4} | {line}")
        sys.stdout.flush()


def read(file: Path) -> ET.Element | None:
    """Return pytest's report of one part, or None where it left none."""
    try:
        return ET.parse(file).getroot()  # our own report
    except (OSError, ET.ParseError):
        return None


def counts(report: ET.Element | None) -> tuple[int, int, int]:
    """Return how many passed, failed (errors too) and were skipped."""
    if report is None:
        return 0, 1, 0
    total = failed = skipped = 0
    for suite in report.iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return total - failed - skipped, failed, skipped


def first_failures(report: ET.Element | None) -> Iterator[str]:
    """Yield what was said of the first few that failed: the others may follow from them."""
    cases = report.iter("testcase") if report is not None else ()
    faults = [(c, f) for c in cases for f in c if f.tag in ("failure", "error")]
    for case, fault in faults[:TOLD_FAILURES]:
        yield f"{case.get('classname')}::{case.get('name')}"
        yield from (fault.text or "").splitlines()[-TOLD_LINES:]


def main(extra: list[str]) -> int:
    """Run all parts and return 0 only when none failed and some test ran."""
    began = time.monotonic()
    # A shell starts what runs in its background deaf to these; the tests press Ctrl-C and hang up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with tempfile.TemporaryDirectory(prefix="fleetctl-tests-") as temporary:
        folder = Path(temporary)
        running = {name: start(name, folder, extra) for name in PARTS}
        readers = [
            threading.Thread(target=relay, args=(name, part.stdout))
            for name, part in running.items()
        ]
        for reader in readers:
            reader.start()
        try:
            codes = {name: part.wait() for name, part in running.items()}
        except KeyboardInterrupt:
            for part in running.values():
                part.terminate()
                part.wait()
            return 130
        for reader in readers:
            reader.join()
        reports = {name: read(folder / f"{name}.xml") for name in PARTS}
    for name, report in reports.items():
        for line in first_failures(report):
            print(f"{name:>4} | {line[:300]}")
    found = [counts(report) for report in reports.values()]
    passed, failed, skipped = (sum(column) for column in zip(*found, strict=True))
    broken = [name for name, code in codes.items() if code not in (0, 1, NO_TESTS)]
    for name in broken:
        print(f"{name}: pytest ended with {codes[name]}")
    print(f"in {time.monotonic() - began:.0f} s")
    print(
        f"{passed} passed, {failed or len(broken)} failed"
        + (f", {skipped} skipped" if skipped else "")
    )
    return 1 if failed or broken or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
