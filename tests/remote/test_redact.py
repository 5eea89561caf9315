"""Secrets go, facts stay. Cases are lines of files beside this test."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from fleetctl.remote.redact import may_hold, redact

CASES = Path(__file__).parent / "cases"


def lines(name: str) -> list[str]:
    text = (CASES / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("case", lines("must-redact.txt"))
def test_a_secret_is_taken_out_and_the_rest_stays(case: str) -> None:
    secrets = re.findall("⟦(.*?)⟧", case)
    plain = case.replace("⟦", "").replace("⟧", "")
    result = redact(plain)
    assert [s for s in secrets if s in result] == []
    assert redact(result) == result
    for word in re.split("⟦.*?⟧", case):
        assert word.strip("'\" ") in result


@pytest.mark.parametrize("case", lines("must-redact.txt"))
def test_no_line_with_a_secret_is_passed_over(case: str) -> None:
    assert may_hold(case.replace("⟦", "").replace("⟧", ""))


@pytest.mark.parametrize("case", lines("must-keep.txt"))
def test_what_is_no_secret_stays(case: str) -> None:
    assert redact(case) == case


def test_a_private_key_goes_with_all_its_lines() -> None:
    text = "a\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\naC1rZXk=\n-----END OPENSSH PRIVATE KEY-----\nz"
    assert redact(text) == "a\n<redacted:private-key>\nz"


def test_a_key_makes_equal_values_recognisable() -> None:
    one, two = (redact(f"--api-key {v}", key=b"k") for v in ("alpha-1", "beta-2"))
    assert one == redact("--api-key alpha-1", key=b"k") != two
    assert re.fullmatch(r"--api-key <redacted:flag:[0-9a-f]{6}>", one)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "eyJ-",
            "A_KEY",
            "authorization: ",
            "--api-key ",
            "api_key='",
            "://a:",
            "sk-",
            "a_",
            "a-",
        ),
        *("Req(text='", "text='\\", "-----BEGIN PRIVATE KEY-----", " "),
    ],
)
def test_a_long_hostile_line_takes_linear_time(piece: str) -> None:
    start = time.perf_counter()
    redact(piece * (400_000 // len(piece)))
    assert time.perf_counter() - start < 5.0
