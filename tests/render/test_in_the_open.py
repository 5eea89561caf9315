"""A secret that is given as a plain value is told before anything is written."""

from __future__ import annotations

import pytest

from fleetctl.model.fleet import Host, Profile, SecretRef, Service, Target
from fleetctl.render import render

TARGET = Target(Host("h", "a"), Service("main", 30000))


def told(profile: Profile) -> tuple[str, ...]:
    return render(profile, TARGET).warnings


@pytest.mark.parametrize("flag", ["api-key", "admin-api-key", "ssl-keyfile-password"])
def test_a_flag_in_the_open(flag: str) -> None:
    (line,) = told(Profile("p", "/m", flags={flag: "sk-4711"}))
    assert line.startswith(f"--{flag} is given in the open")
    assert "sk-4711" not in line


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
