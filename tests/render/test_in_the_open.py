"""A secret that is given as a plain value is refused or told before anything is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Host, Origin, Profile, SecretRef, Service, Target
from fleetctl.render import render

TARGET = Target(Host("h", "a"), Service("main", 30000))


def told(profile: Profile) -> tuple[str, ...]:
    return render(profile, TARGET).warnings


@pytest.mark.parametrize("flag", ["api-key", "admin-api-key", "ssl-keyfile-password"])
@pytest.mark.parametrize("place", ["profile", "host"])
def test_no_command_line_carries_a_secret(flag: str, place: str) -> None:
    given: dict[str, Any] = {place: {flag: "sk-4711"}}
    origins = {f"flags.{flag}": Origin(f"--set {flag}=sk-4711")}
    profile = Profile("p", "/m", flags=given.get("profile", {}), origins=origins)
    host = replace(TARGET.host, flags=tuple(given.get("host", {}).items()))
    with pytest.raises(ConfigError) as caught:
        render(profile, replace(TARGET, host=host))
    assert caught.value.reference == "secret-in-the-open"
    assert flag in caught.value.hint
    assert caught.value.where == f"--set {flag}"
    assert "sk-4711" not in str(caught.value)


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "DB_PASSWORD"])
def test_a_variable_in_the_open(name: str) -> None:
    (line,) = told(Profile("p", "/m", env={name: "hf_4711"}))
    assert line.startswith(f"{name} is given in the open")


def test_a_secret_by_reference_and_other_values_are_fine() -> None:
    profile = Profile(
        "p", "/m", flags={"max-total-tokens": "9", "api-key": False}, env={"NCCL_DEBUG": "WARN", "HF_TOKEN": ""},
        secret_flags={"admin-api-key": SecretRef("env", "K")}, secret_env={"S3_SECRET": SecretRef("env", "S")},
    )  # fmt: skip
    assert told(profile) == ()
