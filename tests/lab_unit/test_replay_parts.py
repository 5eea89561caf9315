"""The parts of the replay engine that need no host: arguments, scenarios, recordings."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from fleetctl.engines.sglang import schema
from fleetctl.lab import scenarios
from fleetctl.lab.guest.replay import arguments, nodes, recording, scenario
from fleetctl.lab.guest.replay.__main__ import given
from fleetctl.lab.guest.replay.endpoints import release

RECORDINGS = Path(scenarios.__file__).parent / "data/recordings"
VERSIONS = ("0.5.10", "0.5.12.post1", "0.5.15", "0.5.23")


@pytest.fixture(params=VERSIONS)
def flags_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = schema.load(request.param).to_json()
    return found


def test_arguments_are_read_with_argparse_s_prefix_rule(flags_of: dict[str, Any]) -> None:
    found = arguments.resolve(flags_of, ["--model", "m", "--tp", "8", "--enable-nccl-nvls"])
    assert (found["tp-size"], found["tensor-parallel-size"]) == (8, 8)
    assert found["enable-nccl-nvls"] is True
    assert found["max-running-requests"] is None
    assert found["port"] == 30000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments: --no-such-flag 1"),
        (["--tp-size", "many"], "invalid int value: 'many'"),
        (["--load-format", "tape"], "invalid choice: 'tape'"),
        (["--model"], "expected one argument"),
        (["--enable", "1"], "ambiguous option: --enable could match"),
    ],
)
def test_wrong_arguments_end_with_2_and_argparse_s_words(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = schema.load("0.5.12.post1").to_json()
    with pytest.raises(SystemExit) as caught:
        arguments.resolve(body, ["--model-path", "m", *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ['{"api-key": "s", "tp-size": 2}', "api-key: s\ntp-size: 2\n# no\n"]
)
def test_a_config_file_gives_flags_and_the_command_line_wins(
    text: str, tmp_path: Path, flags_of: dict[str, Any]
) -> None:
    file = tmp_path / "secrets.yaml"
    file.write_text(text)
    words = ["--model-path", "m", "--config", str(file), "--tp-size", "4"]
    found = arguments.resolve(flags_of, words)
    assert (found["api-key"], found["tp-size"]) == ("s", 4)


def test_a_config_file_has_lists_switches_and_mappings(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"a": [1, 2], "b": True, "c": False, "d": {"x": 1}, "e": None}))
    assert arguments.from_file(file) == ["--a", "1", "2", "--b", "--d", '{"x": 1}']
    assert arguments.expand([f"--config={file}", "--z"])[-1] == "--z"


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("2k", 2000), ("1Ki", 1024), ("1.5M", 1_500_000), ("2Gi", 2 << 30)],
)
def test_human_integers(text: str, number: int) -> None:
    assert arguments.human_integer(text) == number


def test_no_human_integer() -> None:
    with pytest.raises(ValueError, match="x"):
        arguments.human_integer("x")


def test_what_the_command_line_gave_counts_under_every_spelling() -> None:
    body = schema.load("0.5.12.post1").to_json()
    words = ["--model-path", "m", "--tp", "8"]
    found = given(body, arguments.resolve(body, words), words)
    assert found["tp-size"] == found["tensor-parallel-size"] == 8
    assert "ep-size" not in found


@pytest.mark.parametrize(
    ("value", "want", "answer"),
    [
        (8, 8, True),
        (8, 4, False),
        (None, 8, False),
        (None, False, True),
        (True, True, True),
        (False, True, False),
        (0.9, {"min": 0.85}, True),
        (0.8, {"min": 0.85}, False),
        (None, {"min": 0}, False),
        (True, {"min": 0}, False),
        (256, {"min": 129, "max": 256}, True),
        (257, {"max": 256}, False),
        ("triton", {"in": ["triton", "fa3"]}, True),
        ("fa4", {"in": ["triton", "fa3"]}, False),
        (8, {"not": 8}, False),
        (4, {"not": {"min": 8}}, True),
    ],
)
def test_a_condition_on_a_flag(value: Any, want: Any, answer: bool) -> None:
    assert scenario.matches(value, want) is answer


FOUNDING = scenario.load(scenarios.shipped()["founding"])


@pytest.mark.parametrize(
    ("flags", "log"),
    [
        ({"ep-size": 8, "max-running-requests": 128}, "none-dtype"),
        ({"ep-size": 8, "max-running-requests": 128, "enable-nccl-nvls": True}, "none-dtype"),
        ({"ep-size": 8, "max-running-requests": 256, "enable-nccl-nvls": True}, "cublas-capture"),
        ({"ep-size": 8, "max-running-requests": 256}, None),
        ({"ep-size": 1, "max-running-requests": 128, "enable-nccl-nvls": True}, None),
        ({"ep-size": 8, "max-running-requests": 256, "mem-fraction-static": 0.9}, None),
    ],
)
def test_the_founding_scenario(flags: dict[str, Any], log: str | None) -> None:
    found = FOUNDING.at_start(flags, {}, 1)
    assert (found is None) == (log is None)
    if found and log:
        assert log in found.log


def test_every_shipped_scenario_names_logs_that_are_shipped_and_say_where_they_come_from() -> None:
    for file in scenarios.shipped().values():
        for outcome in scenario.load(file).outcomes:
            remarks, lines = recording.read_text(RECORDINGS.parent / outcome.log)
            assert remarks[0].startswith(("composed-from:", "recorded:"))
            assert lines


def test_an_outcome_can_be_bound_to_environment_start_and_request() -> None:
    one = scenario.Outcome(env={"A": "1"}, starts=(2,))
    assert one.applies({}, {"A": "1"}, 2)
    assert not one.applies({}, {"A": "1"}, 1)
    assert not one.applies({}, {}, 2)
    poison = scenario.Outcome(request={"min-token": 512})
    found = scenario.Scenario(outcomes=(poison,))
    assert found.at_start({}, {}, 1) is None
    assert found.at_request({}, {}, 1, [1, 600], "") is poison
    assert found.at_request({}, {}, 1, [1], "") is None
    assert scenario.Outcome(request={"text": "boom"}).asked_for([], '"go boom"')


def test_chance_is_drawn_each_time() -> None:
    never, always = scenario.Outcome(chance=0.0), scenario.Outcome(chance=1.0)
    assert not any(never.applies({}, {}, 1) for _ in range(50))
    assert all(always.applies({}, {}, 1) for _ in range(50))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[outcome]]\nend = 'explode'\n", "outcome 1: end is one of"),
        ("[[outcome]]\nphase = 'lunch'\n", "outcome 1: phase is one of"),
        ("[[outcome]]\nwhe = {}\n", "outcome 1: unknown key 'whe'"),
        ("outcomes = []\n", "unknown key 'outcomes'"),
        ("name = \n", "Invalid value"),
    ],
)
def test_a_wrong_scenario_says_where(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(scenario.ScenarioError, match=said):
        scenario.load(file)


def test_a_phase_without_lines_of_its_own_is_the_one_before() -> None:
    texts = ["a", "server_args=", "Load weight begin", "x", "fired up"]
    assert scenario.turning_point("weight-load", texts) == 2
    assert scenario.turning_point("graph-capture", texts) == 2
    assert scenario.turning_point("ready", texts) == 4
    assert scenario.turning_point("args", ["a", "b"]) == 1


def test_each_release_has_a_recording_that_ends_ready() -> None:
    for version in VERSIONS:
        tape = recording.read(recording.choose(RECORDINGS, version, "cpu"))
        assert tape.remarks[0].startswith("recorded:")
        assert "fired up" in tape.lines[-1].text
        assert {line.process for line in tape.lines} == {"main", "scheduler", "detokenizer"}
        assert all(line.pause >= 0 for line in tape.lines)


def test_the_start_on_a_gpu_is_taken_where_one_was_recorded() -> None:
    assert recording.choose(RECORDINGS, "0.5.12.post1", None).name == "start-0.5.12.post1-gpu.txt"
    assert recording.choose(RECORDINGS, "0.5.23", "cuda").name == "start-0.5.23-cpu.txt"


@pytest.mark.parametrize(
    ("flags", "node", "names"),
    [
        ({}, 0, [""]),
        ({"tp-size": 2}, 0, [" TP0", " TP1"]),
        ({"tp-size": 2, "ep-size": 2}, 0, [" TP0 EP0", " TP1 EP1"]),
        ({"tp-size": 2, "pp-size": 2}, 0, [" PP0 TP0", " PP0 TP1", " PP1 TP0", " PP1 TP1"]),
        ({"tp-size": 2, "dp-size": 2, "enable-dp-attention": True}, 0, [" DP0 TP0", " DP1 TP1"]),
        ({"tp-size": 4, "nnodes": 2}, 1, [" TP2", " TP3"]),
    ],
)
def test_ranks_are_named_as_sglang_names_them(
    flags: dict[str, Any], node: int, names: list[str]
) -> None:
    assert list(recording.prefixes(flags, node)) == names


def test_the_recorded_arguments_become_those_of_this_start() -> None:
    old = "[@] server_args=ServerArgs(model_path='/m', tp_size=1, api_key=None, host='x')"
    new = recording.server_args(old, {"tp-size": 8, "api-key": "s", "host": "0.0.0.0"})
    assert (
        new == "[@] server_args=ServerArgs(model_path='/m', tp_size=8, api_key='s', host='0.0.0.0')"
    )
    old = "[@] server_args={'tp_size': 1, 'api_key': None}"
    assert recording.server_args(old, {"tp-size": 2, "api-key": "s"}) == (
        "[@] server_args={'tp_size': 2, 'api_key': '<redacted>'}"
    )


def test_a_recorded_line_is_retold_with_this_start_s_model_port_and_process() -> None:
    flags = {"model-path": "/models/kimi", "host": "0.0.0.0", "port": 31000}
    assert "http://0.0.0.0:31000 (" in recording.retold(
        "INFO: Uvicorn running on http://127.0.0.1:30000 (Press", flags, {}, 7
    )
    assert "[7]" in recording.retold("Started server process [763]", flags, {}, 7)
    assert "/models/kimi" in recording.retold("Tokenizer for /models/tiny-llama", flags, {}, 7)


def test_another_speed_replaces_the_one_in_the_file() -> None:
    assert scenarios.with_speed("name = 'x'\nspeed=20\n", 0) == "speed = 0\nname = 'x'\n"
    assert scenarios.with_speed("speed = 20\n", None) == "speed = 20\n"


def test_releases_compare_as_numbers() -> None:
    assert (
        release("0.5.9")
        < release("0.5.10")
        < release("0.5.12")
        < release("0.5.12.post1")
        < release("0.5.20")
    )


def test_nodes_knock_until_somebody_opens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        found: list[socket.socket] = []
        knocking = threading.Thread(target=lambda: found.append(nodes._knock("127.0.0.1", port)))
        knocking.start()
        door.accept()[0].close()
        knocking.join(5)
        found[0].close()
