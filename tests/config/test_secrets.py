from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.config import secrets
from fleetctl.config.secrets import Secrets, fetch, resolve_secrets, within_reach
from fleetctl.errors import ManyErrors
from fleetctl.model.fleet import Origin, Profile, SecretRef


def test_each_kind_is_fetched_as_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k-1")
    (tmp_path / "f").write_text("k-2\n")
    profile = Profile(
        "p", "/m",
        secret_flags={"api-key": SecretRef("env", "KEY")},
        secret_env={"A": SecretRef("file", str(tmp_path / "f")),
                    "B": SecretRef("command", "printf 'k 3'")},
    )  # fmt: skip
    found = resolve_secrets(profile)
    assert found.flags == {"api-key": "k-1"}
    assert found.env == {"A": "k-2", "B": "k 3"}
    assert found.values() == ["k-1", "k-2", "k 3"]


def test_the_repr_has_no_value() -> None:
    assert "k-1" not in repr(Secrets({"api-key": "k-1"}, {"A": "k-1"}))


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("env", "NOT_SET_ANYWHERE", "the variable NOT_SET_ANYWHERE is not set"),
        ("env", "EMPTY", "env EMPTY is empty"),
        ("env", "LINES", "env LINES gives more than one line"),
        ("file", "/nonexistent/f", "/nonexistent/f: No such file or directory"),
        ("file", "BINARY", "gives no UTF-8 text"),
        ("file", "/dev/zero", "/dev/zero gives more than 64 KiB"),
        ("command", "yes", "`yes` gives more than 64 KiB"),
        ("command", "cat /dev/zero", "gives more than 64 KiB"),
        ("command", "", "the command is empty"),
        ("command", "echo 'open", "No closing quotation"),
        ("command", "printf 'a\\rb'", "gives more than one line"),
        ("command", "sh -c 'echo k; exec sleep 5'", "gave nothing in 0.05 s"),
        ("command", "false", "`false` ended with status 1"),
        ("command", "/nonexistent/program", "No such file or directory"),
        ("command", "printf '\\377'", "gives no UTF-8 text"),
        ("command", "sleep 5", "gave nothing in 0.05 s"),
    ],
)
def test_a_secret_that_cannot_be_had_says_why(
    kind: str, value: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("LINES", "a\nb")
    monkeypatch.setattr(secrets, "COMMAND_SECONDS", 0.05 if "sleep 5" in value else 30.0)
    if value == "BINARY":
        value = str(tmp_path / "f")
        (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r".") as caught:
        fetch(SecretRef(kind, value))
    assert why in str(caught.value)


def test_all_missing_secrets_are_said_at_once_with_their_places() -> None:
    profile = Profile(
        "p", "/m",
        secret_flags={"api-key": SecretRef("env", "NOT_SET_1")},
        secret_env={"A": SecretRef("env", "NOT_SET_2")},
        origins={"secrets.flags.api-key": Origin("p.yaml:3:4")},
    )  # fmt: skip
    with pytest.raises(ManyErrors) as caught:
        resolve_secrets(profile)
    assert [(e.reference, e.where) for e in caught.value.errors] == [
        ("secret-missing", "p.yaml:3:4"),
        ("secret-missing", ""),
    ]


def test_what_a_failing_command_prints_is_not_in_the_fault() -> None:
    with pytest.raises(ValueError, match="status 3") as caught:
        fetch(SecretRef("command", "sh -c 'echo hush-hush; echo hush >&2; exit 3'"))
    assert str(caught.value).count("hush") == 3  # the command itself, as it was written


def test_a_plan_without_them_says_which_are_out_of_reach() -> None:
    there = Profile("p", "/m", secret_env={"A": SecretRef("command", "echo a")})
    found, why = within_reach(there)
    assert (found, why) == (Secrets({}, {"A": "a"}), "")
    gone = Profile("p", "/m", secret_env={"A": SecretRef("env", "NOT_SET_1")})
    assert within_reach(gone) == (None, "A: the variable NOT_SET_1 is not set")
