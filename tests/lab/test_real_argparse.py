"""The shipped schemas and the checker against the argparse of the real SGLang, release by release."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.config import lintable
from fleetctl.engines.sglang import schema
from fleetctl.engines.sglang.schema import Flag, Schema
from fleetctl.lab.box import Box
from fleetctl.lint import conflicts, flags
from fleetctl.lint.words import words_of
from fleetctl.transport import connect
from fleetctl.transport.agent import Agent
from tests.engines.real_argparse import command_lines

pytestmark = pytest.mark.sglang

VERSIONS = ["0.5.10", "0.5.12.post1", "0.5.15", "0.5.23"]
PYTHON = "/opt/sglang/.venv/bin/python"
MODEL = "/models/tiny-llama"
LINES = 500
CPU = {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}

# Runs in the host, with SGLang's own interpreter: tells its parser and what that says of each line.
PROGRAM = """
import argparse, json, os, sys
lines = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from sglang.srt.server_args import ServerArgs

class Refused(Exception):
    pass

class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)
    def exit(self, status=0, message=None):
        raise Refused("help")
    def print_help(self, file=None):
        pass

def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(v) for v in value)
    return value.value if hasattr(value, "value") and hasattr(value, "name") else value

parser = Parser(prog="sglang serve")
ServerArgs.add_cli_args(parser)
rows = [{"names": a.option_strings, "dest": a.dest, "nargs": a.nargs, "required": a.required,
         "type": getattr(a.type, "__name__", None) if a.type else None,
         "choices": None if a.choices is None else plain(list(a.choices)), "default": plain(a.default)}
        for a in parser._actions if "-h" not in a.option_strings]

def verdict(argv):
    try:
        parser.parse_args(argv)
    except Refused as refused:
        return str(refused)
    except Exception as error:
        return "traceback"
    return None

json.dump({"rows": rows, "verdicts": [verdict(a) for a in lines]}, out, default=str)
out.flush()
"""


def ask(box: Box, lines: list[list[str]]) -> dict[str, Any]:
    connection = connect(box.target(user="root", become=None))
    try:
        settings = " ".join(f"{k}={v}" for k, v in CPU.items())
        connection.exec("cat > /root/probe.py", PROGRAM.encode())
        done = connection.exec(
            f"env {settings} {PYTHON} /root/probe.py", json.dumps(lines).encode(), timeout=240.0
        )
    finally:
        connection.close()
    assert done.rc == 0, done.stderr.decode()[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def answer(lab_name: str) -> Callable[[str], tuple[Schema, list[list[str]], dict[str, Any], Box]]:
    """What the real argparse of a release says; its host is made once."""
    from tests.lab.conftest import start

    @functools.cache
    def of(version: str) -> tuple[Schema, list[list[str]], dict[str, Any], Box]:
        box = start(f"argparse-{version.replace('.', '-')}=sglang:{version}")
        shipped = schema.load(version)
        lines = command_lines(shipped, LINES, seed=11, tracebacks=True)
        return shipped, lines, ask(box, lines), box

    return of


@pytest.mark.parametrize("version", VERSIONS)
def test_spellings_types_choices_defaults_are_argparse_s(version: str, answer: Any) -> None:
    shipped, _, real, _ = answer(version)
    rows = {tuple(r["names"]): r for r in real["rows"]}
    assert {f.names for f in shipped.all} == set(rows)
    wrong = [d for f in shipped.all for d in _differences(f, rows[f.names])]
    unresolved = [f"{f.name}: {k}" for f in shipped.all for k in f.unresolved]
    spellings = sum(len(f.names) for f in shipped.all)
    choices = sum(f.choices is not None for f in shipped.all)
    print(
        f"| {version} | {len(shipped.all)} | {spellings} | {choices} | {len(wrong)} | {len(unresolved)} |"
    )
    assert wrong == []
    assert unresolved == []


def _differences(flag: Flag, real: dict[str, Any]) -> list[str]:
    kind = flag.type.rpartition(".")[2] if flag.type else None
    if real["type"] is None and real["nargs"] != 0:
        real = real | {"type": "str"}
    mine = {"dest": flag.dest, "nargs": flag.nargs, "required": flag.required, "type": kind,
            "choices": _set(flag.choices), "default": _order(flag.default)}  # fmt: skip
    theirs = real | {"choices": _set(real["choices"]), "default": _order(real["default"])}
    return [
        f"{flag.name}: {k}: {v!r}, really {theirs[k]!r}" for k, v in mine.items() if v != theirs[k]
    ]


def _set(choices: Any) -> set[str] | None:
    return None if choices is None else {str(c) for c in choices}


def _order(value: Any) -> Any:
    """A default that is a set has no order."""
    return sorted(value, key=str) if isinstance(value, list) else value


@pytest.mark.parametrize("version", VERSIONS)
def test_of_500_command_lines_every_refusal_is_predicted_and_none_invented(version: str, answer: Any) -> None:  # fmt: skip
    shipped, lines, real, _ = answer(version)
    counts = {"accepted": 0, "unrecognized": 0, "other refusals": 0}
    wrong = []
    for argv, said in zip(lines, real["verdicts"], strict=True):
        parsed = shipped.parse(argv)
        mine = (
            "help"
            if parsed.help and not parsed.problems
            else next((p.message for p in parsed.problems), None)
        )
        if said == "traceback":  # --lora-paths with broken JSON
            if not parsed.problems:
                wrong.append((argv, said, mine))
            continue
        if _plain(said) != _plain(mine):
            wrong.append((argv, said, mine))
        kind = "accepted" if said in (None, "help") else "other refusals"
        counts["unrecognized" if said and said.startswith("unrecognized") else kind] += 1
    print(f"| {version} | {' | '.join(str(n) for n in counts.values())} | {len(wrong)} |")
    assert wrong == []
    assert counts["unrecognized"] > 50


def _plain(message: str | None) -> str | None:
    """Choices that are a set come in any order."""
    return None if message is None else message.partition(" (choose from")[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_host_s_own_sources_are_the_release(version: str, answer: Any) -> None:
    shipped, _, _, box = answer(version)
    connection = connect(box.target())
    try:
        with Agent(connection, ("flags",)) as agent:
            found = agent.call("flags.read", {"python": PYTHON})
            again = agent.call("flags.read", {"python": PYTHON, "known": [found["digest"]]})
    finally:
        connection.close()
    assert found["version"] == version
    assert found["digest"] == shipped.digest
    assert Schema.from_json(found["body"]).all == shipped.all
    assert found["body"]["env"] == shipped.env
    assert again["body"] is None


# The checks of these rules run on the CPU too; ep-divide is arithmetic that SGLang itself does not look at,
# and a share of the memory is for the GPU to refuse.
CASES = Path(__file__).parents[1] / "lint" / "cases"
NOT_SGLANG_S = {"ep-divide"}
GPU_S = {"--mem-fraction-static"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rules_about_combinations_are_sglang_s_own(version: str, answer: Any) -> None:
    shipped, _, _, box = answer(version)
    rows = []
    for path in sorted(CASES.glob("*.yaml")):
        profile = lintable.profile(str(path))
        words = words_of(profile, shipped)
        if not profile.model or words.parsed.problems or path.name.startswith("model-"):
            continue
        findings = [*flags.check(words), *conflicts.check(words)]
        errors = {f.id for f in findings if f.severity == "error"}
        argv = [MODEL if w == "/m" else w for w in words.argv] + ["--device", "cpu"]
        if "--attention-backend" not in argv:
            argv += ["--attention-backend", "torch_native"]
        if not errors & NOT_SGLANG_S and not GPU_S & {f.flag for f in findings}:
            rows.append((path.stem, errors, argv))
    connection = connect(box.target())
    try:
        with Agent(connection, ("resolver",)) as agent:
            order = {
                "python": PYTHON,
                "env": CPU,
                "cases": [argv for *_, argv in rows],
                "timeout": 240,
            }
            results = agent.call("resolver.resolve_many", order, timeout=260)["results"]
    finally:
        connection.close()
    wrong = [
        f"{name}: lint says {sorted(errors)}, SGLang {result['error']}"
        for (name, errors, _), result in zip(rows, results, strict=True)
        if bool(errors) == result["ok"]
    ]
    assert wrong == []
    assert sum(bool(e) for _, e, _ in rows) >= 12
