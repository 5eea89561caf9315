"""A command line that is wrong: for a person in Typer's words, for a program as every other fault."""

from __future__ import annotations

import json

import pytest

from fleetctl.cli.app import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["deploy", "h", "--json"], "--profile"),
        (["status", "h", "--json", "--wach", "2"], "--wach"),
        (["wait", "h", "--json", "--timeout", "soon"], "no span of time"),
        (["nosuch", "--json"], "nosuch"),
        (["lock", "brake", "h", "--json"], "brake"),
    ],
)
def test_with_json_it_is_a_fault_like_any_other(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    fault = json.loads(line)
    assert (fault["error"], told.out) == ("usage", "")
    assert said in fault["message"]
    assert fault["hint"].startswith("fleetctl")


def test_a_person_gets_it_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["deploy", "h"]) == 2
    assert "--profile" in capsys.readouterr().err.splitlines()[-1]


def test_the_json_of_a_host_s_own_command_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "", "--", "nvidia-smi", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error[no-host]: ")
