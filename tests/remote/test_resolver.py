"""The resolver's verb, against a small package that stands in for SGLang's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.remote import resolver
from fleetctl.remote.agent import AgentError

SERVER_ARGS = """
import argparse, dataclasses, os, random

@dataclasses.dataclass
class ServerArgs:
    tp_size: int = 1
    ep_size: int = 1
    api_key: str = None
    seed: int = None

    def resolve_once(self):
        if self.tp_size % self.ep_size:
            raise ValueError("tp_size %d is not a multiple of ep_size %d" % (self.tp_size, self.ep_size))
        self.seed = random.randrange(10**9)
        os.environ["WROTE"] = str(self.ep_size)

def prepare_server_args(argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--ep-size", type=int, default=1)
    parser.add_argument("--api-key")
    return ServerArgs(**vars(parser.parse_args(argv)))
"""
ENGINE = """
import os
def _set_envs_and_config(args):
    os.environ["NCCL_NVLS_ENABLE"] = str(int(args.ep_size > 1))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    entry = tmp_path / "sglang" / "srt" / "entrypoints"
    entry.mkdir(parents=True)
    for folder in (entry, entry.parent, entry.parent.parent):
        (folder / "__init__.py").touch()
    (entry.parent / "server_args.py").write_text(SERVER_ARGS)
    (entry / "engine.py").write_text(ENGINE)
    return tmp_path


def ask(package: Path, *cases: str, **more: Any) -> list[dict[str, Any]]:
    env = {"PYTHONPATH": str(package)}
    args = {"python": sys.executable, "cases": [c.split() for c in cases], "env": env, **more}
    found: list[dict[str, Any]] = resolver.resolve_many(args)["results"]
    return found


def test_it_tells_what_the_resolver_and_the_engine_make_of_the_words(package: Path) -> None:
    first, second = ask(package, "--tp-size 8", "--tp-size 8 --ep-size 4")
    assert first["resolved"] == {
        "tp_size": 8,
        "ep_size": 1,
        "api_key": None,
        "seed": first["resolved"]["seed"],
    }
    assert second["env_changes"] == {"WROTE": [None, "4"], "NCCL_NVLS_ENABLE": [None, "1"]}
    assert second["ok"]
    assert second["engine"] is None


def test_one_case_leaves_nothing_for_the_next_not_even_a_drawn_number(package: Path) -> None:
    first, second = ask(package, "--ep-size 1", "--ep-size 1")
    assert first["resolved"] == second["resolved"]
    assert first["env_changes"]["WROTE"] == [None, "1"] == second["env_changes"]["WROTE"]


def test_a_refusal_of_argparse_is_told_in_its_words(package: Path) -> None:
    [found] = ask(package, "--tp-sise 8")
    assert not found["ok"]
    assert found["error"]["type"] == "argparse"
    assert found["error"]["message"] == "unrecognized arguments: --tp-sise 8"


def test_a_refusal_of_the_resolver_names_the_exception_and_its_place(package: Path) -> None:
    [found] = ask(package, "--tp-size 8 --ep-size 3")
    assert found["error"]["type"] == "ValueError"
    assert found["error"]["message"] == "tp_size 8 is not a multiple of ep_size 3"
    assert found["error"]["where"].endswith("server_args.py:13")


def test_a_key_on_the_command_line_does_not_come_back(package: Path) -> None:
    [found] = ask(package, "--api-key sk-sentinel-4711")
    assert "4711" not in str(found)
    assert found["resolved"]["api_key"] == "<redacted>"


def test_a_package_that_cannot_be_imported_is_named(package: Path) -> None:
    (package / "sglang" / "srt" / "server_args.py").write_text("import no_such_kernel")
    with pytest.raises(AgentError) as caught:
        ask(package, "--tp-size 8")
    assert caught.value.fields["reference"] == "resolver-unavailable"
    assert "no_such_kernel" in caught.value.fields["message"]


def test_an_engine_that_cannot_be_imported_leaves_only_its_variables_out(package: Path) -> None:
    (package / "sglang" / "srt" / "entrypoints" / "engine.py").write_text("import no_such_kernel")
    [found] = ask(package, "--tp-size 8")
    assert found["ok"]
    assert "no_such_kernel" in found["engine"]


def test_a_resolver_that_never_ends_is_given_up(package: Path) -> None:
    (package / "sglang" / "srt" / "server_args.py").write_text("import time; time.sleep(60)")
    with pytest.raises(AgentError) as caught:
        ask(package, "--tp-size 8", timeout=0.5)
    assert caught.value.fields["reference"] == "resolver-timeout"


def test_where_the_gpu_was_touched_each_case_gets_a_program_of_its_own(package: Path) -> None:
    """CUDA's words in a fork of a process that has used it, as torch 2.11 says them on a real GPU."""
    args = package / "sglang" / "srt" / "server_args.py"
    args.write_text(
        args.read_text()
        + "\nIMPORTED_BY = os.getpid()\nreal = prepare_server_args\n"
        + "def prepare_server_args(argv):\n"
        + "    found = real(argv)\n"
        + "    if os.getpid() != IMPORTED_BY:\n"
        + "        raise RuntimeError('Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
        + "multiprocessing, you must use the \\'spawn\\' start method')\n"
        + "    return found\n"
    )
    good, other, wrong, unknown = ask(
        package, "--tp-size 8", "--tp-size 8 --ep-size 4", "--tp-size 8 --ep-size 3", "--nothing"
    )
    assert good["ok"]
    assert other["env_changes"] == {"WROTE": [None, "4"], "NCCL_NVLS_ENABLE": [None, "1"]}
    assert wrong["error"]["message"] == "tp_size 8 is not a multiple of ep_size 3"
    assert unknown["error"] | {"where": ""} == {
        "type": "argparse", "message": "unrecognized arguments: --nothing", "where": "", "status": 2,
    }  # fmt: skip
