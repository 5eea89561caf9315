"""Scenarios of replay hosts: which file a host has, checked before it gets there."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from fleetctl.errors import ConfigError, UsageError
from fleetctl.lab.guest.replay import scenario
from fleetctl.lab.state import Lab, LabHost

SETTINGS = "etc/sglang-replay"


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with the program, by name."""
    folder = Path(str(resources.files("fleetctl.lab") / "data/scenarios"))
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def give(lab: Lab, host: LabHost, named: str, speed: float | None = None) -> None:
    """Give a host a scenario: a shipped name, or a file whose logs lie beside it.

    The next start of the service uses it. Raises UsageError for an unknown name or a host of another
    engine, ConfigError for a file that is wrong.
    """
    if host.engine != "replay":
        raise UsageError("no-replay", f"{host.name} is a host of engine {host.engine}, not replay")
    source = shipped().get(named) or Path(named)
    if not source.is_file():
        known = ", ".join(shipped())
        raise UsageError(
            "unknown-scenario", f"no scenario {named}", hint=f"a file, or one of {known}"
        )
    try:
        wanted = scenario.load(source)
    except scenario.ScenarioError as error:
        raise ConfigError("bad-scenario", str(error)) from error
    folder = lab.folder(host) / "root" / SETTINGS
    folder.mkdir(parents=True, exist_ok=True)
    for outcome in wanted.outcomes:
        beside = source.parent / outcome.log
        if outcome.log and beside.is_file():
            (folder / outcome.log).parent.mkdir(parents=True, exist_ok=True)
            (folder / outcome.log).write_text(beside.read_text(encoding="utf-8"))
    (folder / "scenario.toml").write_text(with_speed(source.read_text(encoding="utf-8"), speed))


def with_speed(text: str, speed: float | None) -> str:
    """Return a scenario with another speed."""
    if speed is None:
        return text
    lines = [line for line in text.splitlines() if not line.replace(" ", "").startswith("speed=")]
    return "\n".join([f"speed = {speed}", *lines]) + "\n"


def current(lab: Lab, host: LabHost) -> str:
    """Return the text of the host's scenario; the founding one where it was given none."""
    file = lab.folder(host) / "root" / SETTINGS / "scenario.toml"
    return (file if file.is_file() else shipped()["founding"]).read_text(encoding="utf-8")
