"""``python -m sglang.launch_server`` of a replay host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from . import arguments, recording
from .scenario import Scenario, ScenarioError, load
from .server import Server

HERE = Path(__file__).parent
SETTINGS = Path("/etc/sglang-replay")


def scenario() -> Scenario:
    """Return the scenario of this start.

    REPLAY_SCENARIO (a file or a shipped name), else the host's own, else the founding one.
    """
    named = os.environ.get("REPLAY_SCENARIO", "")
    shipped = HERE / "scenarios"
    candidates = [
        Path(named)
        if "/" in named
        else shipped / f"{named}.toml"
        if named
        else Path("/nonexistent"),
        SETTINGS / "scenario.toml",
        shipped / "founding.toml",
    ]
    found = load(candidates[0] if named else next(p for p in candidates if p.is_file()))
    speed = os.environ.get("REPLAY_SPEED")
    return (
        found if speed is None else Scenario(found.name, float(speed), found.outcomes, found.folder)
    )


def count_start(port: int) -> int:
    """Return which start of the service on this port it is since the host booted, from 1."""
    file = Path(f"/run/sglang-replay.{port}.starts")
    try:
        number = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(number))
    except (OSError, ValueError):
        number = 1
    return number


def given(schema: dict[str, Any], flags: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """Return the values that the command line gave, under every spelling of their flags."""
    names = {word.partition("=")[0] for word in words if word.startswith("--")}
    spellings = {n for flag in schema["flags"] for n in flag["names"]}
    exact = names & spellings
    prefixes = tuple(names - spellings)
    meant = exact | {n for n in spellings if prefixes and n.startswith(prefixes)}
    return {
        n[2:]: flags[n[2:]]
        for flag in schema["flags"]
        if meant & set(flag["names"])
        for n in flag["names"]
    }


def main(version: str, argv: list[str]) -> None:
    """Check the arguments as that release does, then walk the start-up."""
    schema = json.loads((HERE / "flags.json").read_text(encoding="utf-8"))
    words = arguments.expand(argv)
    flags = arguments.resolve(schema, argv)
    try:
        chosen = scenario()
    except ScenarioError as error:
        sys.exit(f"replay: {error}")
    device = flags.get("device")
    tape = recording.read(recording.choose(HERE / "recordings", version, device))
    model = Path(str(flags["model-path"]))
    if model.is_absolute() and not model.is_dir():
        _, lines = recording.read_text(HERE / "recordings/model-missing-0.5.12.post1.txt")
        print("replay: recorded: SGLang 0.5.12.post1 and a model path that is not there")
        print("\n".join(lines).replace("/models/tiny-llama", str(model)), flush=True)
        sys.exit(1)
    start = count_start(int(flags["port"]))
    Server(version, flags, given(schema, flags, words), chosen, start).run(tape)
