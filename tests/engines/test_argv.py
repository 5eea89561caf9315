"""The checker of command lines says what argparse says, and nothing else."""

from __future__ import annotations

import pytest

from fleetctl.engines.sglang import schema
from fleetctl.engines.sglang.argv import Kind
from tests.engines.real_argparse import command_lines, parser_of, verdict

VERSIONS = ["0.5.1", "0.5.10", "0.5.12.post1", "0.5.15", "0.5.18", "0.5.23"]


@pytest.mark.parametrize("version", VERSIONS)
def test_its_first_fault_is_the_one_argparse_prints(version: str) -> None:
    found = schema.load(version)
    parser = parser_of(found)
    for argv in command_lines(found, 500, seed=7):
        parsed = found.parse(argv)
        said = verdict(parser, argv)
        if said == "help":
            assert parsed.help, argv
        elif said is None:
            assert parsed.problems == [], argv
        else:
            assert parsed.problems, (argv, said)
            assert parsed.problems[0].message == said, argv


LINES = {
    "a unique prefix is that flag": ("--tp 8 --model m", []),
    "an ambiguous prefix is refused": ("--model m --mem 1 --enable-d 1 --tp 8", [Kind.AMBIGUOUS]),
    "a value may hang on an equals sign": ("--model=m --tp-size=8", []),
    "a switch takes no value": ("--model m --trust-remote-code=1", [Kind.COUNT]),
    "a negative number is a value": ("--model m --random-seed -1", []),
    "a word too many is unrecognized": ("--model m --tp 8 9", [Kind.UNRECOGNIZED]),
    "a missing model is told": ("--tp 8", [Kind.REQUIRED]),
    "all faults are told in argparse's order": (
        "--tp x --load-format nope --zzz",
        [Kind.VALUE, Kind.CHOICE, Kind.REQUIRED, Kind.UNRECOGNIZED],
    ),
    "a flag may take several values": ("--model m --cuda-graph-bs 1 2 4", []),
    "help ends it": ("-h --zzz", []),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(name: str) -> None:
    line, kinds = LINES[name]
    assert [p.kind for p in schema.load("0.5.12.post1").check(line.split())] == kinds
