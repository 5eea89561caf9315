"""``fleetctl hosts|profiles|render|init|schemas`` as typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.app import run
from fleetctl.config import places

EXAMPLE = places.packaged("inventories") / "example"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETCTL_SITE", str(EXAMPLE))
    monkeypatch.chdir(tmp_path)


def lines(capsys: Capture) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_hosts_list_shows_services_and_protection(capsys: Capture) -> None:
    assert run(["hosts", "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "main:30000, draft-test:30010" in rows["rtx-01"]
    assert rows["b300-05"].endswith("protected")


def test_hosts_list_as_json_gives_one_object_a_host(capsys: Capture) -> None:
    assert run(["hosts", "list", "--json", "@b300", "rtx-01/*"]) == 0
    rows = lines(capsys)
    assert [r["name"] for r in rows] == [f"b300-0{n}" for n in range(1, 6)] + ["rtx-01"]
    assert {r["schema"] for r in rows} == {"fleetctl.host/1"}
    assert rows[-1]["services"][1]["unit"] == "sglang-draft-test.service"


def test_a_mistyped_host_is_a_usage_error_with_a_way_on(capsys: Capture) -> None:
    assert run(["hosts", "list", "b3000-01"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error[unknown-host]: no host is called b3000-01\nhint: did you mean b300-01" in said.err


def test_profiles_list_names_the_lineage(capsys: Capture) -> None:
    assert run(["profiles", "list"]) == 0
    assert "ep8-nvls    ep8 < tp8  /models/kimi-k2.6" in capsys.readouterr().out
    assert run(["profiles", "list", "--json"]) == 0
    assert next(r for r in lines(capsys) if r["name"] == "ep8-nvls")["lineage"] == ["tp8", "ep8"]


def test_profiles_list_shows_the_good_ones_and_says_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "hosts.yaml").write_text("hosts: {}\n")
    for name, text in {"base": "bogus: 1\n", "a": "extends: base\n", "ok": "model: /m\n"}.items():
        (tmp_path / "profiles" / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    assert run(["profiles", "list"]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["ok", "/m"]
    assert said.err.count("error[unknown-key]: profiles/base.yaml:1:1: 'bogus'") == 1


def test_profiles_show_says_where_each_value_was_written(capsys: Capture) -> None:
    assert run(["profiles", "show", "ep8-nvls", "--set", "max-running-requests=128"]) == 0
    rows = dict(line.rsplit("  ", 1) for line in capsys.readouterr().out.splitlines())
    origins = {k.strip(): v for k, v in rows.items()}
    assert origins["--enable-nccl-nvls"].endswith("ep8-nvls.yaml:5:3")
    assert origins["--max-running-requests 128"] == "--set max-running-requests=128"
    assert origins["runtime: systemd"] == "default"


def test_profiles_show_never_shows_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "hosts.yaml").write_text("hosts: {a: {}}\n")
    (tmp_path / "profiles" / "p.yaml").write_text(
        "model: /m\nsecrets: {flags: {api-key: {env: K}}, env: {T: {env: K}}}\n"
        "unit: {restart: no}\ndiag: [nccl-log]\n"
    )
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    monkeypatch.setenv("K", "hush")
    assert run(["profiles", "show", "p"]) == 0
    assert run(["profiles", "show", "p", "--json"]) == 0
    assert run(["render", "a", "-p", "p"]) == 0
    assert run(["render", "a", "-p", "p", "--json"]) == 0
    said = capsys.readouterr()
    assert "hush" not in said.out + said.err
    assert "--api-key (secret: env K)" in said.out
    assert "diag nccl-log makes NCCL print" in said.err


def test_profiles_diff_counts_the_atoms(capsys: Capture) -> None:
    assert run(["profiles", "diff", "tp8", "ep8-nvls"]) == 0
    said = capsys.readouterr()
    assert "max-running-requests: 128 → 256" in said.out.splitlines()
    assert said.err == "4 atoms\n"
    assert run(["profiles", "diff", "ep8-nvls", "ep8-nvls", "--unset", "ep-size", "--json"]) == 0
    assert [a["text"] for a in lines(capsys)[0]["atoms"]] == ["-ep-size"]


def test_save_as_keeps_a_changed_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "hosts.yaml").write_text("hosts: {a: {}}\n")
    (tmp_path / "profiles" / "p.yaml").write_text("model: /m\nflags: {x: 1}\n")
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    assert run(["profiles", "save-as", "q", "-p", "p", "--set", "y=2", "--unset", "x"]) == 0
    assert "q.yaml" in capsys.readouterr().out
    assert run(["profiles", "save-as", "q", "-p", "p"]) == 2
    assert run(["profiles", "save-as", "q", "-p", "p", "--force", "--json"]) == 0
    assert lines(capsys)[0]["name"] == "q"


def test_render_shows_every_file_of_every_target(capsys: Capture) -> None:
    assert run(["render", "rtx-01/*", "--profile", "tp8"]) == 0
    out = capsys.readouterr().out
    assert "# rtx-01: /etc/systemd/system/sglang-draft-test.service (0644 root:root)" in out
    assert "CUDA_VISIBLE_DEVICES=4,5,6,7" in out


def test_render_as_json_holds_the_launch_and_its_digest(capsys: Capture) -> None:
    assert (
        run(["render", "b300-01", "-p", "ep8-nvls", "--unset", "enable-nccl-nvls", "--json"]) == 0
    )
    (one,) = lines(capsys)
    assert one["schema"] == "fleetctl.rendered/1"
    assert "--enable-nccl-nvls" not in one["argv"]
    assert run(["render", "b300-02", "-p", "ep8", "--json"]) == 0
    assert lines(capsys)[0]["digest"] == one["digest"]


def test_render_writes_files_below_a_folder(tmp_path: Path, capsys: Capture) -> None:
    assert run(["render", "--all", "-p", "tp8", "--out", str(tmp_path / "o")]) == 0
    units = sorted(p.name for p in (tmp_path / "o").rglob("*.service"))
    assert units.count("sglang-main.service") == 6
    assert units.count("sglang-draft-test.service") == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("args", "code", "reference"),
    [
        (["-p", "tp8"], 2, "no-host"),
        (["--all", "b300-01", "-p", "tp8"], 2, "all-and-names"),
        (["b300-01", "-p", "tp9"], 2, "unknown-profile"),
        (["b300-01", "-p", "tp8", "--set", "port=1"], 2, "bad-set"),
        (["b300-01", "-p", "tp8", "--set", "env.A=\x01"], 3, "bad-value"),
        (["bastion", "-p", "tp8"], 2, "no-service"),
    ],
)
def test_a_wrong_render_prints_nothing_but_the_fault(
    args: list[str], code: int, reference: str, capsys: Capture
) -> None:
    assert run(["render", *args, "--json"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err)["error"] == reference


def test_init_makes_a_site_that_the_next_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.delenv("FLEETCTL_SITE")
    (tmp_path / "config").write_text("Host gpu-1 gpu-2 gpu/3 gpu-*\nHost *\n")
    config = ["--ssh-config", str(tmp_path / "config")]
    assert run(["init", *config, "--model", "/models/m", "--gpus", "8"]) == 0
    said = capsys.readouterr().err
    assert "2 hosts" in said
    assert "left out: gpu/3 (letters, digits, . _ and - only)" in said
    assert "left out: gpu-* (a pattern)" in said
    assert run(["render", "gpu-1", "-p", "first", "--json"]) == 0
    assert "/models/m" in lines(capsys)[0]["argv"]
    assert run(["init", *config]) == 2
    assert run(["init", "a", "--name", "other", "--json"]) == 0
    assert lines(capsys)[0]["hosts"] == ["a"]


def test_schemas_are_printed_or_written(tmp_path: Path, capsys: Capture) -> None:
    assert run(["schemas", "profile"]) == 0
    assert "extends" in json.loads(capsys.readouterr().out)["properties"]
    assert run(["schemas", "--out", str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "hosts.schema.json",
        "profile.schema.json",
    ]
    assert run(["schemas"]) == 2
    assert run(["schemas", "bogus"]) == 2


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fleetctl render b300-0", "b300-01"),
        ("fleetctl render @", "@b300"),
        ("fleetctl render rtx-01/", "rtx-01/draft-test"),
        ("fleetctl profiles show ep8", "ep8-nvls"),
        ("fleetctl render -p tp8-", "tp8-ddtree"),
        ("fleetctl ren", "render"),
    ],
)
def test_the_shell_completes_names_without_pydantic(typed: str, offered: str) -> None:
    code = (
        "import sys; from fleetctl.cli.app import run; code = run([]);"
        "sys.exit(9 if 'pydantic.main' in sys.modules else code)"
    )
    environment = os.environ | {
        "_FLEETCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert offered in done.stdout.split(), done.stderr
    assert done.returncode == 0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from fleetctl.cli.app import run; run(['--help']);"
        "sys.exit(len({'pydantic', 'yaml', 'jinja2', 'fabric', 'sqlalchemy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
