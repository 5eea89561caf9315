"""The same selectors everywhere: what one command understands, every other one does."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperArgument, TyperGroup

from fleetctl.cli.app import COMMANDS, run

NO_ALL = {"hosts list", "bisect-flags", "init"}  # all is the default; hosts one by one; new names


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


def taking_selectors() -> dict[str, Any]:
    """Return the commands that take several selectors, by their names."""
    return {
        path: command
        for name, entry in COMMANDS.items()
        for path, command in commands(
            typer.main.get_command(importlib.import_module(f"fleetctl.cli.{entry.module}").app),
            name,
        )
        if any(_selectors(p) for p in command.params)
    }


def _selectors(param: Any) -> bool:
    return (
        isinstance(param, TyperArgument)
        and param.nargs == -1
        and param.name in ("hosts", "selectors")
    )


def test_every_command_that_takes_selectors_takes_all_as_well() -> None:
    found = taking_selectors()
    assert {"deploy", "status", "stop", "lock break", "engine list", "hosts trust", "fetch"} < set(
        found
    )
    without = {
        path
        for path, c in found.items()
        if not any("--all" in getattr(p, "opts", ()) for p in c.params)
    }
    assert without == NO_ALL
    wanted = {
        path for path, c in found.items() if any(_selectors(p) and p.required for p in c.params)
    }
    assert wanted <= NO_ALL, "with --all no selector is missing"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two machines that serve, each this one, and one that serves nothing."""
    text = "defaults: {transport: local}\nhosts:\n  a-[1-2]: {}\n  bastion: {services: {}}\n"
    (tmp_path / "hosts.yaml").write_text(text)
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("picked", [["--all"], ["a-1,a-2"], ["a-*,"], ["a-1", "a-[2-2]"]])
def test_services_are_picked_in_each_way(
    picked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(["lock", "status", *picked, "--json"])
    said = capsys.readouterr()
    assert {json.loads(x)["host"] for x in said.out.splitlines()} == {"a-1", "a-2"}, said.err


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("words", "hosts"),
    [
        (["run", "a-1", "a-2", "--", "echo hi"], {"a-1", "a-2"}),
        (["run", "a-1,", "a-2", "--", "echo hi"], {"a-1", "a-2"}),
        (["run", "a-1", "echo hi"], {"a-1"}),
        (["run", "bastion", "--", "echo hi"], {"bastion"}),
        (["run", "--all", "--", "echo hi"], {"a-1", "a-2", "bastion"}),
        (["run", "--all", "echo hi"], {"a-1", "a-2", "bastion"}),
    ],
)
def test_what_stands_before_the_dashes_is_hosts(
    words: list[str], hosts: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([words[0], "--json", *words[1:]]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {x["host"] for x in found} == hosts
    assert {x["stdout"] for x in found} == {"hi\n"}


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("words", "reference"),
    [
        (["run", "a-1", "--all", "--", "echo hi"], "all-and-names"),
        (["run", "a-1", "uptime", "--", "echo hi"], "unknown-host"),
        (["run", "--", "echo hi"], "no-host"),
        (["run", "", "--", "echo hi"], "no-host"),
        (["run", "a-1", "--", ""], "no-command"),
        (["run", "a-1", "--", " ", ""], "no-command"),
        (["run"], "no-command"),
        (["status"], "no-host"),
        (["status", ""], "no-host"),
        (["deploy", "-p", "tp8"], "no-host"),
        (["stop", "a-1", "--all"], "all-and-names"),
        (["fetch", "/etc/hostname"], "no-host"),
        (["fetch", "a-1", ""], "no-path"),
    ],
)
def test_what_picks_nothing_does_nothing(
    words: list[str], reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([words[0], "--json", *words[1:]]) == 2
    assert json.loads(capsys.readouterr().err)["error"] == reference


@pytest.mark.usefixtures("site")
def test_a_machine_that_serves_nothing_is_listed_and_fetched_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hosts", "list", "bastion", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "bastion"
    (tmp_path / "file").write_text("x")
    assert run(["fetch", "--all", str(tmp_path / "file"), "--to", str(tmp_path / "got")]) == 0
    assert sorted(p.parent.name for p in tmp_path.glob("got/*/file")) == ["a-1", "a-2", "bastion"]
