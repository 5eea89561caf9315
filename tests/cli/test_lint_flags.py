"""``fleetctl lint`` and ``fleetctl flags`` as typed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.app import run
from fleetctl.config import places
from fleetctl.engines.sglang import schema
from fleetctl.errors import UsageError

EXAMPLE = places.packaged("inventories") / "example"
Capture = pytest.CaptureFixture[str]
WRONG = "model: /m\nflags:\n  tp-size: 8\n  enable-nvls: true\n"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without an inventory, and a cache of its own."""
    monkeypatch.delenv("FLEETCTL_SITE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def one(capsys: Capture) -> Any:
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_a_bare_file_needs_no_inventory(capsys: Capture) -> None:
    Path("p.yaml").write_text(WRONG)
    assert run(["lint", "p.yaml", "--sglang", "0.5.12.post1", "--json"]) == 1
    body = one(capsys)
    assert body["ok"] is False
    [found] = body["findings"]
    assert {k: found[k] for k in ("id", "severity", "file", "line", "col", "flag", "hint")} == {
        "id": "unknown-flag", "severity": "error", "file": "p.yaml", "line": 4, "col": 3, "flag": "--enable-nvls",
        "hint": "did you mean --enable-nccl-nvls?",
    }  # fmt: skip
    assert found["message"] == "--enable-nvls is not a flag of sglang 0.5.12.post1"


def test_a_sound_profile_of_a_site_is_ok(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETCTL_SITE", str(EXAMPLE))
    assert run(["lint", "ep8-nvls", "--sglang", "0.5.12.post1", "--json"]) == 0
    body = one(capsys)
    assert body["ok"] is True
    assert [f["severity"] for f in body["findings"]] == ["info"]


def test_a_parent_of_a_file_is_looked_up_beside_it(capsys: Capture) -> None:
    Path("base.yaml").write_text("model: /m\nflags: {tpsize: 8}\n")
    Path("p.yaml").write_text("extends: base\nflags: {ep-size: 8}\n")
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    found = {f["id"]: f for f in one(capsys)["findings"]}
    assert found["unknown-flag"]["file"] == "base.yaml"


def test_a_missing_model_is_a_finding(capsys: Capture) -> None:
    Path("p.yaml").write_text("flags: {tp-size: 8}\n")
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    [found] = one(capsys)["findings"]
    assert (found["id"], found["file"], found["line"]) == ("missing-model", "p.yaml", 1)


@pytest.mark.parametrize(("text", "identity"), [
    ("model: /m\nflags: {tp_size: 8}\n", "wrong-name"), ("modle: /m\n", "unknown-key"), ("a: [", "yaml-syntax"),
    ("model: /m\nflags: {tp-size: 1, tp-size: 2}\n", "duplicate-key"),
])  # fmt: skip
def test_a_file_that_is_no_profile_is_findings_too(
    capsys: Capture, text: str, identity: str
) -> None:
    Path("p.yaml").write_text(text)
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    found = one(capsys)["findings"][0]
    assert (found["id"], found["severity"], found["file"]) == (identity, "error", "p.yaml")
    assert found["line"] >= 1


def test_a_fault_of_the_file_hides_no_other_finding_and_cannot_be_overridden(
    capsys: Capture,
) -> None:
    Path("p.yaml").write_text(WRONG + "  port: 30000\n")
    words = ["lint", "p.yaml", "--sglang", "0.5.23", "--no-lint", "unknown-flag"]
    assert run([*words[:4], "--json"]) == 1
    found = one(capsys)["findings"]
    assert [(f["id"], f["line"], bool(f["override"])) for f in found] == [
        ("unknown-flag", 4, True), ("wrong-name", 5, False),
    ]  # fmt: skip
    assert run(words) == 1
    assert "--no-lint" not in capsys.readouterr().err
    assert run([*words, "--no-lint", "wrong-name"]) == 2


def test_a_model_that_a_fault_may_hide_is_not_missed(capsys: Capture) -> None:
    Path("p.yaml").write_text("extends: nowhere\nflags: {enable-nvls: true}\n")
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    assert [f["id"] for f in one(capsys)["findings"]] == ["unknown-profile", "unknown-flag"]


@pytest.mark.parametrize("command", [["lint", "p.yaml"], ["render", "b300-01", "-p", "ep8-nvls"], ["deploy", "b300-01", "-p", "ep8-nvls"]])  # fmt: skip
def test_an_override_that_no_finding_has_is_refused(
    capsys: Capture, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCTL_SITE", str(EXAMPLE))
    Path("p.yaml").write_text(WRONG)
    assert run([*command, "--no-lint", "unknwn-flag"]) == 2
    assert "did you mean unknown-flag" in capsys.readouterr().err


def test_every_finding_can_be_overridden_by_an_id_that_the_page_has() -> None:
    from fleetctl.lint import conflicts, flags, ids

    package = Path(flags.__file__).parent
    text = "".join(p.read_text() for p in package.glob("*.py") if p.name != "ids.py")
    assert {i for i in ids.IDS if f'"{i}"' not in text} == set()
    assert {i for i, _, _ in conflicts.RULES} | set(flags.IDS.values()) <= ids.IDS
    made = re.findall(r'"([a-z]+(?:-[a-z]+)+)",\s*Severity|Finding\(\s*"([a-z-]+)"|identity(?:, message)? = "([a-z-]+)"', text)  # fmt: skip
    assert {name for names in made for name in names if name} <= ids.IDS


def test_an_empty_file_has_its_finding_in_the_file(capsys: Capture) -> None:
    Path("p.yaml").write_text("")
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    [found] = one(capsys)["findings"]
    assert (found["id"], found["file"], found["line"]) == ("missing-model", "p.yaml", 1)


def test_a_shared_parent_and_a_file_that_is_not_there_cost_no_finding(capsys: Capture) -> None:
    Path("base.yaml").write_text(WRONG)
    for name in ("a", "b"):
        Path(f"{name}.yaml").write_text("extends: base\n")
    words = ["lint", "a.yaml", "b.yaml", "no.yaml", "--sglang", "0.5.12.post1", "--json"]
    assert run(words) == 3
    shown = capsys.readouterr()
    body = json.loads(shown.out)
    assert (body["ok"], [f["file"] for f in body["findings"]]) == (False, ["base.yaml"])
    assert json.loads(shown.err)["where"] == "no.yaml"


def test_several_profiles_give_one_object(capsys: Capture) -> None:
    Path("a.yaml").write_text(WRONG)
    Path("b.yaml").write_text("model: /m\n")
    assert run(["lint", "a.yaml", "b.yaml", "--sglang", "0.5.12.post1", "--json"]) == 1
    assert [f["file"] for f in one(capsys)["findings"]] == ["a.yaml"]


def test_a_file_that_is_not_there_is_a_fault(capsys: Capture) -> None:
    assert run(["lint", "no.yaml", "--sglang", "0.5.23", "--json"]) == 3
    assert json.loads(capsys.readouterr().err)["error"] == "unreadable"


def test_overrides_and_strictness(capsys: Capture) -> None:
    Path("p.yaml").write_text(WRONG + "  tp: 8  # fleetctl: allow repeated-flag\n")
    words = ["lint", "p.yaml", "--sglang", "0.5.12.post1"]
    assert run([*words, "--no-lint", "unknown-flag"]) == 0
    assert run([*words, "--no-lint", "unknown-flag", "--strict"]) == 1
    assert "abbreviated-flag" in capsys.readouterr().out
    assert run(words) == 1
    shown = capsys.readouterr()
    assert "error[unknown-flag]: p.yaml:4:3:" in shown.out
    assert "--no-lint=unknown-flag" in shown.err


def test_without_a_version_the_profile_s_own_counts_and_else_the_newest_which_is_said(capsys: Capture) -> None:  # fmt: skip
    Path("p.yaml").write_text("model: /m\nflags: {cuda-graph-max-bs: 8}\n")
    assert run(["lint", "p.yaml"]) == 1
    assert f"sglang {schema.shipped()[-1]}, the newest known here" in capsys.readouterr().err
    Path("p.yaml").write_text(
        "model: /m\nflags: {cuda-graph-max-bs: 8}\nsglang: {schema: 0.5.12.post1}\n"
    )
    assert run(["lint", "p.yaml"]) == 0


def test_a_profile_s_own_release_that_is_none_is_told_in_its_line(capsys: Capture) -> None:
    Path("p.yaml").write_text("model: /m\nsglang:\n  schema: newest\n")
    assert run(["lint", "p.yaml"]) == 3
    assert "error[no-schema]: p.yaml:3:3: 'newest' is neither" in capsys.readouterr().err


def test_a_schema_file_of_a_fork(capsys: Capture) -> None:
    body = schema.load("0.5.12.post1").to_json()
    body["flags"].append({"names": ["--ddtree-budget"], "dest": "ddtree_budget", "type": "int"})
    Path("fork.json").write_text(json.dumps(body))
    Path("p.yaml").write_text("model: /m\nflags: {ddtree-budget: 8, ddtree-topk: 4}\n")
    assert run(["lint", "p.yaml", "--sglang", "fork.json", "--json"]) == 0
    [found] = one(capsys)["findings"]
    assert (found["flag"], found["severity"]) == ("--ddtree-topk", "warning")


def test_the_model_of_a_folder_here_is_looked_at(capsys: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"num_attention_heads": 12}')
    Path("p.yaml").write_text(f"model: {folder}\nflags: {{tp-size: 8}}\n")
    assert run(["lint", "p.yaml", "--sglang", "0.5.23", "--json"]) == 1
    assert [f["id"] for f in one(capsys)["findings"]] == ["heads-divide"]


@pytest.mark.parametrize("body", ["[]", "{}", '{"flags": 3}'])
def test_a_file_that_is_no_schema_says_what_one_has(capsys: Capture, body: str) -> None:
    Path("p.yaml").write_text("model: /m\n")
    Path("x.json").write_text(body)
    assert run(["lint", "p.yaml", "--sglang", "x.json"]) == 3
    assert "error[not-a-flag-schema]: x.json" in (told := capsys.readouterr().err)
    assert "fleetctl.flags/1" in told


def test_a_model_folder_that_is_named_must_have_a_config(capsys: Capture) -> None:
    Path("p.yaml").write_text("model: /m\n")
    Path("model").mkdir()
    words = ["lint", "p.yaml", "--sglang", "0.5.23", "--model-dir", "model"]
    assert run(words) == 3
    assert "no-model-config" in capsys.readouterr().err
    Path("model/config.json").write_text('{"text_config": 3, "quantization_config": "fp8"}')
    Path("model/model.safetensors.index.json").write_text('{"weight_map": ["a"]}')
    assert run(words) == 0


def test_an_unknown_version_says_which_are_known(capsys: Capture) -> None:
    Path("p.yaml").write_text("model: /m\n")
    assert run(["lint", "p.yaml", "--sglang", "newest"]) == 3
    assert "0.5.1 to 0.5.23 are shipped" in capsys.readouterr().err


def test_lint_imports_no_connection_and_no_store() -> None:
    Path("p.yaml").write_text("model: /m\nflags: {tp-size: 8}\n")
    program = (
        "import sys; from fleetctl.cli.app import run; run(['lint', 'p.yaml', '--sglang', '0.5.23']); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'paramiko', 'fabric', 'sqlalchemy', 'jinja2', 'rich'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# --- flags ---


def test_list_and_show(capsys: Capture) -> None:
    assert run(["flags", "list", "nvls", "--sglang", "0.5.12.post1"]) == 0
    assert capsys.readouterr().out.startswith("--enable-nccl-nvls\n")
    assert run(["flags", "list", "--sglang", "0.5.12.post1", "--json"]) == 0
    assert len(one(capsys)["flags"]) == 387
    assert run(["flags", "show", "tp-size", "--sglang", "0.5.15", "--json"]) == 0
    body = one(capsys)
    assert (body["names"], body["known"]) == (["--tp-size", "--tensor-parallel-size"], True)


def test_show_tells_of_a_flag_that_is_gone_and_of_one_that_never_was(capsys: Capture) -> None:
    assert run(["flags", "show", "cuda-graph-max-bs", "--sglang", "0.5.23", "--json"]) == 1
    body = one(capsys)
    assert (body["releases"], body["successor"]) == (
        [["0.5.1", "0.5.19"]],
        "--cuda-graph-max-bs-decode",
    )
    assert run(["flags", "show", "enable-nvls"]) == 2
    assert "did you mean --enable-nccl-nvls" in capsys.readouterr().err


def test_show_takes_a_name_as_it_stands_on_a_command_line(capsys: Capture) -> None:
    for name in ("--tp-size", "tp_size", "--tp-size=8"):
        assert run(["flags", "show", name, "--sglang", "0.5.15", "--json"]) == 0, name
        assert one(capsys)["names"] == ["--tp-size", "--tensor-parallel-size"]
    assert run(["flags", "show", ""]) == 2
    assert "the name of a flag is wanted" in capsys.readouterr().err


def test_show_takes_a_beginning_for_the_only_flag_that_has_it(capsys: Capture) -> None:
    assert run(["flags", "show", "tp", "--sglang", "0.5.12.post1"]) == 0
    shown = capsys.readouterr()
    assert "--tensor-parallel-size, --tp-size" in shown.out
    assert "argparse takes it for --tp-size" in shown.err


def test_diff_of_releases(capsys: Capture) -> None:
    assert run(["flags", "diff", "0.5.10", "0.5.10.post1"]) == 0
    assert run(["flags", "diff", "0.5.12.post1", "0.5.23", "--json"]) == 1
    body = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "--cuda-graph-max-bs" in body["removed"]
    assert "--attn-dp-size" in body["added"]
    backends = [
        c for c in body["changed"] if c["flag"] == "--attention-backend" and c["key"] == "choices"
    ]
    assert "cutlass_mla" in backends[0]["before"]


def test_migrate_shows_writes_and_then_has_nothing_left(capsys: Capture) -> None:
    text = "# mine\nmodel: /m\nflags:\n  cuda-graph-max-bs: 16  # keep\n"
    Path("p.yaml").write_text(text)
    assert run(["flags", "migrate", "p.yaml", "--to", "0.5.23"]) == 0
    assert "+  cuda-graph-max-bs-decode: 16  # keep" in capsys.readouterr().out
    assert Path("p.yaml").read_text() == text
    assert run(["flags", "migrate", "p.yaml", "--to", "0.5.23", "--write"]) == 0
    assert Path("p.yaml").read_text() == text.replace("max-bs:", "max-bs-decode:")
    capsys.readouterr()
    assert run(["flags", "migrate", "p.yaml", "--to", "0.5.23", "--json"]) == 0
    assert one(capsys)["changes"] == []


def test_migrate_keeps_the_line_ends_of_the_file(capsys: Capture) -> None:
    Path("p.yaml").write_bytes(b"model: /m\r\nflags:\r\n  cuda-graph-max-bs: 16\r\n")
    assert run(["flags", "migrate", "p.yaml", "--to", "0.5.23", "--write"]) == 0
    assert "+  cuda-graph-max-bs-decode: 16" in capsys.readouterr().out
    wanted = b"model: /m\r\nflags:\r\n  cuda-graph-max-bs-decode: 16\r\n"
    assert Path("p.yaml").read_bytes() == wanted


def test_a_word_that_is_no_verb_is_a_host_unless_it_is_nearly_a_verb(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("FLEETCTL_SITE", str(EXAMPLE))
    assert run(["flags", "b300-99"]) == 2
    assert "b300-99" in capsys.readouterr().err
    assert run(["flags", "lits"]) == 2
    assert "list" in capsys.readouterr().err


def test_render_lints_against_the_profile_s_own_release(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("FLEETCTL_SITE", str(EXAMPLE))
    words = ["render", "b300-01", "-p", "ep8-nvls"]
    assert run(words) == 0
    assert "[" not in capsys.readouterr().err.split("note", 1)[0]
    assert run([*words, "--set", "enable-nvls=true"]) == 1
    shown = capsys.readouterr()
    assert "--enable-nvls" in shown.out
    assert "error[unknown-flag]: --set enable-nvls=true" in shown.err
    assert run([*words, "--set", "enable-nvls=true", "--no-lint", "unknown-flag"]) == 0


@pytest.mark.parametrize(
    ("words", "given", "unsets"),
    [
        (["ep-size=8", "enable-x"], {"ep-size": "8", "enable-x": True}, []),
        (["--unset", "tp-size", "--unset", "--dp-size"], {}, ["tp-size", "dp-size"]),
        (["ep-size=8", "--", "-pp-size"], {"ep-size": "8"}, ["pp-size"]),
    ],
)
def test_effect_takes_flags_away_as_deploy_does(
    words: list[str], given: dict[str, Any], unsets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fleetctl.fleet import flag_effect

    asked: list[Any] = []

    def ask(*said: Any) -> None:
        asked.extend(said)
        raise UsageError("asked", "")

    monkeypatch.setattr(flag_effect, "effect", ask)
    assert run(["flags", "effect", "h", *words]) == 2
    assert asked == ["h", given, unsets, None]


@pytest.mark.parametrize("words", [[], ["="], ["=8"], ["--", "-"]])
def test_effect_of_nothing_asks_no_host(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["flags", "effect", "h", *words]) == 2
    assert "flag" in capsys.readouterr().err.splitlines()[0]


def test_effect_without_a_flag_that_is_not_there_is_refused() -> None:
    from fleetctl.fleet import flag_effect

    flag_effect._has({"tp-size": "8"}, ["tp-size"], "profile p")
    with pytest.raises(UsageError, match="profile p has no tp-sise"):
        flag_effect._has({"tp-size": "8"}, ["tp-size", "tp-sise"], "profile p")
