from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.config.schema import DIAG, UnitEntry
from fleetctl.config.secrets import Secrets
from fleetctl.errors import ConfigError
from fleetctl.model.fleet import Host, Origin, Profile, SecretRef, Service, Target
from fleetctl.model.plan import MASK, WriteFile
from fleetctl.render import Rendered, compare, render
from fleetctl.render.arguments import as_text, flag_words
from fleetctl.render.diag import DIAGNOSTICS
from fleetctl.render.unit import DEFAULTS, TEMPLATES, fill, shipped
from tests.render import systemd_rules as rules
from tests.render.test_quote import VALUES, VARIABLES, needs_systemd

HOST = Host("h", "h.example.net")
TARGET = Target(HOST, Service("draft", 30010, (4, 5)))
PROFILE = Profile("p", "/models/m", flags={"tp-size": "2"}, env={"NCCL_DEBUG": "WARN"})
SECRET = dataclasses.replace(
    PROFILE,
    secret_flags={"api-key": SecretRef("env", "KEY")},
    secret_env={"HF_TOKEN": SecretRef("file", "~/.hf")},
)
VALUE_OF = Secrets({"api-key": "hush-1"}, {"HF_TOKEN": "hush-2"})


def unit(done: Rendered) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for section, key, value in rules.directives(done.unit_text):
        found.setdefault(f"{section}{key}", []).append(value)
    return found


def file(done: Rendered, name: str) -> WriteFile:
    return next(f for f in done.files if f.path.endswith(name))


def profile(**changes: Any) -> Profile:
    return dataclasses.replace(PROFILE, **changes)


def test_the_unit_starts_what_the_profile_says() -> None:
    done = render(PROFILE, TARGET)
    argv = ["/opt/sglang/.venv/bin/python", "-m", "sglang.launch_server", "--model-path",
            "/models/m", "--port", "30010", "--tp-size", "2"]  # fmt: skip
    assert list(done.argv) == argv
    assert rules.words(unit(done)["[Service]ExecStart"][0]) == argv
    assert (done.unit, done.unit_path) == (
        "sglang-draft.service", "/etc/systemd/system/sglang-draft.service",
    )  # fmt: skip
    assert [f.path for f in done.files] == ["/etc/fleetctl/draft/environment", done.unit_path]
    assert done.complete


def test_the_environment_has_the_venv_first_the_gpus_and_no_buffering() -> None:
    env = rules.variables(file(render(PROFILE, TARGET), "environment").content)
    assert env["PATH"].split(":")[0] == "/opt/sglang/.venv/bin"
    assert env["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert env["NCCL_DEBUG"] == "WARN"


def test_a_service_with_all_gpus_sets_no_visible_devices() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in render(PROFILE, Target(HOST, Service())).env


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("[Service]Type", "exec"),
        ("[Service]KillMode", "mixed"),
        ("[Service]TimeoutStopSec", "180"),
        ("[Service]Restart", "on-failure"),
        ("[Service]RestartSec", "15"),
        ("[Unit]StartLimitIntervalSec", "3600"),
        ("[Unit]StartLimitBurst", "3"),
        ("[Service]LogRateLimitIntervalSec", "0"),
        ("[Service]LimitMEMLOCK", "infinity"),
        ("[Service]LimitNOFILE", "1048576"),
        ("[Unit]RequiresMountsFor", "/models/m"),
        (
            "[Service]ExecStopPost",
            "-+/usr/bin/python3 /var/lib/fleetctl/lib/collect.py --service draft --unit %n",
        ),
    ],
)
def test_a_default_of_the_unit(key: str, value: str) -> None:
    assert unit(render(PROFILE, TARGET))[key] == [value]


def test_settings_of_the_profile_replace_the_defaults() -> None:
    settings = {"timeout_stop": 60, "restart": "no", "user": "sglang", "working_directory": "/srv"}
    found = unit(render(profile(unit=settings), TARGET))
    assert found["[Service]TimeoutStopSec"] == ["60"]
    assert found["[Service]Restart"] == ["no"]
    assert found["[Service]User"] == ["sglang"]
    assert found["[Service]WorkingDirectory"] == ["/srv"]


def test_every_setting_has_a_default() -> None:
    assert set(DEFAULTS) == set(UnitEntry.model_fields)


def test_growing_restart_delays_need_a_systemd_that_has_them() -> None:
    for version in (None, 252, 253):
        assert "[Service]RestartSteps" not in unit(render(PROFILE, TARGET, systemd=version))
    found = unit(render(PROFILE, TARGET, systemd=254))
    assert (found["[Service]RestartSteps"], found["[Service]RestartMaxDelaySec"]) == (
        ["4"],
        ["300"],
    )


def test_the_hosts_own_flags_and_variables_win() -> None:
    host = dataclasses.replace(
        HOST,
        flags=(("tp-size", "1"), ("extra", True), ("gone", None)),
        env=(("NCCL_DEBUG", None), ("PATH", "/bin")),
        python="/usr/bin/python3.9",
    )
    done = render(profile(flags={"tp-size": "2", "gone": "x"}), Target(host, Service()))
    assert done.argv[-3:] == ("--extra", "--tp-size", "1")
    assert "NCCL_DEBUG" not in done.env
    assert done.env["PATH"] == "/bin"
    assert unit(done)["[Service]ExecStopPost"][0].startswith("-+/usr/bin/python3.9 /var/lib")


# --- secrets ---


def test_secrets_stand_in_their_own_files_and_nowhere_else() -> None:
    done = render(SECRET, TARGET, secrets=VALUE_OF)
    holders = [f.path for f in done.files if "hush" in f.content]
    assert holders == ["/etc/fleetctl/draft/secrets.env", "/etc/fleetctl/draft/secrets.yaml"]
    for one in done.files:
        assert (one.mode, one.secret) == ((0o600, True) if one.path in holders else (0o644, False))
    outside = (done.argv, done.env, done.config, done.unit_text, done.settings)
    assert "hush" not in repr(outside)
    assert yaml.safe_load(file(done, "secrets.yaml").content) == {"api-key": "hush-1"}
    assert rules.variables(file(done, "secrets.env").content) == {"HF_TOKEN": "hush-2"}
    assert unit(done)["[Service]EnvironmentFile"] == [
        "/etc/fleetctl/draft/environment", "/etc/fleetctl/draft/secrets.env",
    ]  # fmt: skip


def test_the_secret_file_goes_to_sglangs_own_config_option() -> None:
    argv = render(SECRET, TARGET, secrets=VALUE_OF).argv
    at = argv.index("--config")
    assert argv[at + 1] == "/etc/fleetctl/draft/secrets.yaml"
    assert "--api-key" not in argv


def test_sglang_reads_its_secrets_as_the_user_that_it_runs_as() -> None:
    done = render(dataclasses.replace(SECRET, unit={"user": "sg"}), TARGET, secrets=VALUE_OF)
    assert file(done, "secrets.yaml").owner == "sg:root"
    assert file(done, "secrets.env").owner == "root:root"


def test_without_their_values_secret_files_hold_a_mask() -> None:
    done = render(SECRET, TARGET)
    assert not done.complete
    assert {f.content for f in done.files if f.secret} == {MASK}


def test_a_secret_hides_a_flag_of_the_same_name_that_the_host_gives() -> None:
    host = dataclasses.replace(HOST, flags=(("api-key", "open"),), env=(("HF_TOKEN", "open"),))
    done = render(SECRET, Target(host, Service()), secrets=VALUE_OF)
    assert "open" not in repr((done.argv, done.env))


@given(VALUES.filter(lambda v: not v.startswith("-")))
def test_a_secret_reads_back_as_sglang_will_read_it(value: str) -> None:
    """SGLang's merger takes str() of each value that yaml.safe_load gives."""
    only = profile(secret_flags={"api-key": SecretRef("env", "K")})
    done = render(only, TARGET, secrets=Secrets({"api-key": value}))
    assert yaml.safe_load(file(done, "secrets.yaml").content) == {"api-key": value}


@pytest.mark.parametrize("value", ["-x", "a\nb"])
def test_a_secret_that_sglang_could_not_take_is_refused(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(SECRET, TARGET, secrets=Secrets({"api-key": value}, {"HF_TOKEN": "x"}))
    assert caught.value.reference == "bad-value"
    assert value not in str(caught.value)


def test_files_that_a_launch_has_no_use_for_are_named() -> None:
    assert render(SECRET, TARGET).obsolete == ()
    assert render(PROFILE, TARGET).obsolete == (
        "/etc/fleetctl/draft/secrets.env", "/etc/fleetctl/draft/secrets.yaml",
    )  # fmt: skip


# --- arguments ---


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--f"]),
        ("0.80", ["--f", "0.80"]),
        ("", ["--f", ""]),
        ("-1", ["--f=-1"]),
        (("1", "2"), ["--f", "1", "2"]),
        (("-1", "-0.5"), ["--f", "-1", "-0.5"]),
        ({"a": [1, None, "é"]}, ["--f", '{"a":[1,null,"é"]}']),
        (3, ["--f", "3"]),
    ],
)
def test_a_value_becomes_words(value: Any, words: list[str]) -> None:
    assert flag_words({"f": value}) == words


def test_a_list_cannot_hold_what_argparse_would_take_for_an_option() -> None:
    with pytest.raises(ConfigError, match="begins with a dash"):
        flag_words({"f": ("a", "--b")})


def test_flags_are_sorted_so_that_equal_sets_are_equal_lines() -> None:
    assert flag_words({"b": True, "a": True}) == flag_words({"a": True, "b": True})
    assert as_text(1.5) == "1.5"


@given(st.dictionaries(st.sampled_from(["a", "b-c"]), VALUES), VALUES, VARIABLES)
def test_no_value_becomes_a_directive(flags: dict[str, str], model: str, env: str) -> None:
    plain = render(profile(flags=dict.fromkeys(flags, "x"), model="m"), TARGET)
    done = render(profile(flags=dict(flags), model=model or "m", env={"E": env}), TARGET)
    keys = [k for k in unit(done) if k != "[Unit]RequiresMountsFor"]
    assert keys == [k for k in unit(plain) if k != "[Unit]RequiresMountsFor"]
    assert rules.words(unit(done)["[Service]ExecStart"][0]) == list(done.argv)
    assert rules.variables(file(done, "environment").content) == done.env


# --- diagnostics ---


@pytest.mark.parametrize("name", DIAG)
def test_a_diagnostic_is_off_unless_asked_for(name: str) -> None:
    entry = DIAGNOSTICS[name]
    plain, done = render(PROFILE, TARGET), render(profile(diag=(name,)), TARGET)
    for flag in entry.flags:
        assert f"--{flag}" in done.argv
        assert f"--{flag}" not in plain.argv
    for variable in entry.env:
        if variable not in PROFILE.env:  # the profile's own value wins
            assert variable in done.env
            assert variable not in plain.env
    assert done.warnings == (f"diag {name} {entry.costs}",)
    assert unit(done)["[Service]StateDirectory"] == ["fleetctl/diag/draft"]
    assert unit(done)["[Service]StateDirectoryMode"] == ["0700"]
    assert "[Service]StateDirectory" not in unit(plain)


def test_every_diagnostic_of_the_schema_is_known() -> None:
    assert set(DIAGNOSTICS) == set(DIAG)


def test_a_diagnostic_that_this_sglang_lacks_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        render(profile(diag=("cuda-coredumps",)), TARGET, version="0.5.8")
    assert caught.value.reference == "diag-too-new"
    assert render(profile(diag=("cuda-coredumps",)), TARGET, version="0.5.10").argv


# --- the launch configuration ---


def test_the_configuration_tells_launches_apart_without_secrets() -> None:
    done = render(SECRET, TARGET, versions={"sglang": "0.5.10"}, patches={"x": "ab"})
    config = done.config
    assert config.flags == {
        "tp-size": "2", "api-key": "(secret: env KEY)", "port": "30010",
    }  # fmt: skip
    assert config.env["HF_TOKEN"] == "(secret: file ~/.hf)"
    assert (config.versions, config.patches) == ({"sglang": "0.5.10"}, {"x": "ab"})
    assert config.unit["python"] == PROFILE.python
    assert config.digest() == render(SECRET, TARGET, versions={"sglang": "0.5.10"},
                                     patches={"x": "ab"}, secrets=VALUE_OF).config.digest()  # fmt: skip


def test_the_profiles_name_is_nowhere_in_the_files() -> None:
    """Else a renamed profile would restart a server."""
    files = [render(profile(name=n), TARGET).files for n in ("one", "two")]
    assert files[0] == files[1]


# --- refusals ---


@pytest.mark.parametrize(
    ("changes", "reference"),
    [
        ({"model": ""}, "missing-model"),
        ({"runtime": "docker"}, "unsupported-runtime"),
        ({"nodes": 2, "origins": {"nodes": Origin("p.yaml:3:1")}}, "unsupported-nodes"),
        ({"model": "a\nb"}, "bad-value"),
        ({"flags": {"f": "a\nb"}}, "bad-value"),
        ({"env": {"E": "a\x01"}}, "bad-value"),
    ],
)
def test_what_cannot_be_rendered_is_refused(changes: dict[str, Any], reference: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(profile(**changes), TARGET)
    assert caught.value.reference == reference
    if "origins" in changes:
        assert caught.value.where == "p.yaml:3:1"


# --- templates ---


def test_a_site_may_replace_a_template() -> None:
    own = {"sglang.service.j2": "[Service]\nExecStart={{ exec_start }}\nNice=5\n"}
    done = render(PROFILE, TARGET, templates=own)
    assert list(unit(done)) == ["[Service]ExecStart", "[Service]Nice"]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("[Service]\nX={{ nothing }}\n", 2, "'nothing' is undefined"),
        ("a\nb\n{% if %}\n", 3, "Expected an expression"),
        ("{{ service * 2 }}\n{{ 'a\\nb' ~ service }}\n", 2, "a value has several lines"),
    ],
)
def test_a_template_fault_says_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        render(PROFILE, TARGET, templates={"sglang.service.j2": text})
    assert caught.value.reference == "template-error"
    assert caught.value.where == f"templates/sglang.service.j2:{line}"
    assert why in caught.value.message


def test_a_template_that_is_not_there_is_a_template_fault() -> None:
    with pytest.raises(ConfigError) as caught:
        fill("nothing.j2", {}, {})
    assert (caught.value.reference, caught.value.where) == (
        "template-error",
        "templates/nothing.j2",
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_shipped(name: str) -> None:
    assert shipped(name).startswith("# Written by fleetctl")


@needs_systemd
def test_systemd_analyze_has_nothing_to_say(tmp_path: Path) -> None:
    settings = {"user": "root", "working_directory": "/"}
    true = profile(python="/bin/true", unit=settings, diag=DIAG, flags={"f": "a %n $X \"'\\ é"})
    for version in (None, 252):
        done = render(true, TARGET, systemd=version)
        path = tmp_path / done.unit
        path.write_text(done.unit_text)
        ran = subprocess.run(
            ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
        )
        assert [line for line in ran.stderr.splitlines() if done.unit in line] == []


def test_profiles_are_compared_wherever_they_run() -> None:
    other = profile(name="q", flags={"tp-size": "4"}, env={})
    assert [str(a) for a in compare(PROFILE, other)] == ["tp-size: 2 → 4", "env -NCCL_DEBUG"]
    assert compare(PROFILE, profile(name="q")) == ()
