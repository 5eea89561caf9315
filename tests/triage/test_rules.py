"""Rules are data: each stands beside logs that it must and must not match; the compiled form is current."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from fleetctl.cli.app import COMMANDS
from fleetctl.config.places import packaged
from fleetctl.errors import ConfigError
from fleetctl.triage import compiled, drafts, explain_path, packs, rulecases
from fleetctl.triage.literals import complaints, required
from fleetctl.triage.rule import builtin, unpack
from fleetctl.triage.triggers import TRIGGERS
from tests.triage.score import LABELS, SETS

FOLDER = Path(packs.__file__).parent / "rules"
RULES, PLACES = packs.load(FOLDER)


def test_the_compiled_rules_are_those_of_the_folder() -> None:
    """When this fails: python -m fleetctl.triage."""
    assert RULES.digest == compiled.DIGEST
    assert tuple(unpack(row) for row in compiled.RULES) == RULES.rules


def test_no_rule_is_slow_dead_or_circular() -> None:
    assert packs.lint(RULES) == []


def test_every_rule_lives_up_to_the_logs_beside_it() -> None:
    assert [(f.rule, f.path.name, f.why) for f in rulecases.check(RULES, PLACES)] == []


def test_every_label_has_a_rule_or_follows_from_the_course_of_events() -> None:
    told = {"root-not-in-log", "hang-healthcheck", "healthy-startup", "graceful-shutdown"}
    of_rules = {r.label for r in RULES.rules} | {
        label for r in RULES.rules for _, label in r.labels
    }
    assert set(LABELS) - of_rules - told == set()
    assert {label for label in of_rules if label} - set(LABELS) == set()


def test_no_expression_takes_more_than_linear_time() -> None:
    assert complaints(r"(a+)+b") == complaints(r"(?:x{0,40}|y)*z") == ["a repeat inside a repeat"]
    assert complaints(r"(?:ab){0,8}c+") == []


@pytest.mark.parametrize(
    ("regex", "literals"),
    [
        ("CUDA error: out of memory", ("cuda error: out of memory",)),
        (r"[Oo]ut of memory", ("ut of memory",)),
        (r"(?:GLIBC|CXXABI)_[0-9.]+", ("glibc", "cxxabi")),
        (r"ab|\d+", ()),
        (r"(?:longer)?short", ("short",)),
        (r"x{0,9}", ()),
    ],
)
def test_the_text_that_a_match_must_hold_is_found(regex: str, literals: tuple[str, ...]) -> None:
    assert required(regex) == literals


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("title = ", "Invalid value"),
        ('role = "root"', "title is missing"),
        ('title = "t"\nrole = "root"\nany = ["abcd"]', "a root rule needs a label"),
        ('title = "t"\nrole = "boss"\nany = ["abcd"]', "role is one of root, cascade"),
        ('title = "t"\nrole = "root"\nlabel = "x"\nany = "abcd"', "any must be a list of strings"),
        ('title = "t"\nrole = "root"\ncolour = "red"', "no such field: colour"),
        (
            'title = "t"\nrole = "benign"\nany = ["abcd"]\n[[advice]]\nwhat = "x"',
            "advice has action",
        ),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        packs.load(tmp_path)
    assert why in error.value.message
    assert error.value.where.endswith("bad.toml")


def test_a_later_pack_adds_rules_and_replaces_those_of_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/kv-leak.toml").write_text(
        'title = "ours"\nrole = "root"\nlabel = "code-bug"\nany = ["leak detected"]'
    )
    more, _ = packs.load(tmp_path)
    both = builtin().with_more(more.rules, more.digest)
    rule = both.get("kv-leak")
    assert rule is not None
    assert (rule.title, len(both.rules)) == ("ours", len(builtin().rules))
    assert both.digest != builtin().digest


def test_a_rule_drafted_from_a_log_matches_that_log(tmp_path: Path) -> None:
    log = SETS["open"] / "logs/130.log"
    for path, text in (
        drafts.draft("ours", explain_path(log), "code-bug").files(tmp_path / "site").items()
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    more, places = packs.load(tmp_path)
    rules = builtin().with_more(more.rules, more.digest)
    faults = [f.why for f in rulecases.check(rules, places)]
    assert faults == ["no log that must not match lies beside it"]


def test_triggers_are_plain_texts_that_every_scanner_can_run() -> None:
    assert len(TRIGGERS) < 130
    assert all(required(trigger) for trigger in TRIGGERS)


ADVISED = sorted({a.command for r in RULES.rules for a in r.advice if a.command})
OWN = [c for c in ADVISED if c.startswith("fleetctl ")]


@pytest.mark.parametrize("command", ADVISED)
def test_what_advice_says_to_type_is_a_command_of_a_shell(command: str) -> None:
    program = shlex.split(command)[0]
    assert re.fullmatch(r"[a-z][a-z0-9-]*;?", program), "a flag or a variable alone is no command"
    assert "…" not in command


@pytest.mark.parametrize("command", OWN)
def test_this_program_takes_what_advice_says_to_type(command: str) -> None:
    words = shlex.split(command)[1:]
    module = importlib.import_module(f"fleetctl.cli.{COMMANDS[words[0]].module}")
    found, rest = typer.main.get_command(module.app), words[1:]
    verbs = getattr(found, "commands", {})
    if verbs:
        found, rest = verbs[rest[0]], rest[1:]
    found.make_context(words[0], rest)
    if words[:2] == ["patch", "push"]:
        assert (packaged("patches") / words[2] / "patch.toml").is_file()
