"""Run the tests that need hosts beside those that need none, and say the sum in one plain line.

Tests on hosts share a computer with all others, and what they wait for may come late. A few that fail are
run once more, alone; one that passes then is named as flaky, with what it said before.
"""

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
MANY = 12  # failed tests of one part: no accident


def start(name: str, report: Path, extra: list[str]) -> subprocess.Popen[str]:
    """Start pytest for one part, without standard input."""
    argv = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={report}"]
    argv += ["-o", f"cache_dir={report.parent / name}.cache", *PARTS[name], *extra]
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
    told: set[str] = set()  # a fixture that broke breaks with the same words for each of its tests
    for case, fault in ((c, f) for c in cases for f in c if f.tag in ("failure", "error")):
        text = fault.text or ""
        if len(told) < TOLD_FAILURES and text not in told:
            told.add(text)
            yield f"{case.get('classname')}::{case.get('name')}"
            yield from text.splitlines()[-TOLD_LINES:]


def failed_tests(report: ET.Element | None) -> list[str]:
    """Return the names of those that failed, or broke before or after."""
    cases = report.iter("testcase") if report is not None else ()
    bad = (c for c in cases if any(f.tag in ("failure", "error") for f in c))
    return sorted({f"{c.get('classname')}::{c.get('name')}" for c in bad})


def side_by_side(folder: Path, extra: list[str]) -> dict[str, int]:
    """Run all parts; return what each pytest ended with. KeyboardInterrupt when told to end."""
    running = {name: start(name, folder / f"{name}.xml", extra) for name in PARTS}
    readers = [
        threading.Thread(target=relay, args=(name, part.stdout)) for name, part in running.items()
    ]
    for reader in readers:
        reader.start()
    try:
        codes = {name: part.wait() for name, part in running.items()}
    except KeyboardInterrupt:
        for part in running.values():
            part.terminate()
            part.wait()
        raise
    for reader in readers:
        reader.join()
    return codes


def once_more(name: str, folder: Path, failed: list[str], extra: list[str]) -> tuple[int, int]:
    """Run tests that failed again, with the computer to themselves; return how many passed and failed."""
    print(f"{name:>4} | once more, alone:")
    report = folder / f"{name}-again.xml"
    part = start(name, report, ["--last-failed", "--last-failed-no-failures=none", *extra])
    assert part.stdout is not None
    relay(name, part.stdout)
    part.wait()
    again = read(report)
    for one in sorted(set(failed) - set(failed_tests(again))):
        print(f"{name:>4} | flaky: {one}")
    passed, bad, _ = counts(again)
    return passed, max(bad, len(failed) - passed)


def main(extra: list[str]) -> int:
    """Run all parts and return 0 only when none failed and some test ran."""
    began = time.monotonic()
    # A shell starts what runs in its background deaf to these; the tests press Ctrl-C and hang up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory(prefix="fleetctl-tests-") as temporary:
        folder = Path(temporary)
        try:
            codes = side_by_side(folder, extra)
        except KeyboardInterrupt:
            return 130
        for name, code in codes.items():
            report = read(folder / f"{name}.xml")
            good, bad, left_out = counts(report)
            for line in first_failures(report):
                print(f"{name:>4} | {line[:300]}")
            names = failed_tests(report)
            if name != "unit" and code == 1 and 0 < len(names) <= MANY:
                more, bad = once_more(name, folder, names, extra)
                good += more
            passed, failed, skipped = passed + good, failed + bad, skipped + left_out
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
