"""``fleetctl triage`` and ``fleetctl rules`` at the shell: exit codes, JSON, what a person reads."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from fleetctl.cli import app
from fleetctl.model.triage import Triage

OPEN = Path(__file__).parent.parent / "corpus/open/logs"
CRASH, HEALTHY, NO_ROOT = (str(OPEN / f"{n}.log") for n in ("108", "165", "136"))


def test_json_gives_one_object_a_path_and_the_unreadable_one_last_in_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = app.run(["triage", CRASH, "/no/such.log", HEALTHY, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 3
    assert [row["path"] for row in rows] == [CRASH, "/no/such.log", HEALTHY]
    assert set(rows[1]) == {"path", "error"}
    assert set(rows[0]) == {"schema", "path", *Triage.__dataclass_fields__}
    assert set(rows[0]["root"]) == {
        "line",
        "exception_type",
        "message",
        "ranks",
        "worker",
        "step",
        "frames",
        "rule",
    }


@pytest.mark.parametrize(("path", "code"), [(CRASH, 1), (HEALTHY, 0), (NO_ROOT, 1)])
def test_the_exit_code_says_whether_anything_crashed(
    path: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["triage", path]) == code
    assert capsys.readouterr().out.startswith(path + ": ")


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Input:
        buffer = io.BytesIO(Path(CRASH).read_bytes())

    monkeypatch.setattr(sys, "stdin", Input())
    assert app.run(["triage", "-", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["label"] == "cublas-capture"


def test_a_person_reads_the_verdict_first_then_the_root_then_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app.run(["triage", CRASH, "--explain-fingerprint"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "The server crashed in graph-capture: cublas-capture (supported, not proven)"
    )
    assert lines[1].startswith("  root     line 46, ranks TP3 EP3, TP6 EP6, graph capture")
    order = [line.split()[0] for line in lines[1:] if line[2:3] != " "]
    assert order.index("root") < order.index("follows") < order.index("next") < order.index("group")
    assert any("given: CUBLAS_STATUS_EXECUTION_FAILED" in line for line in lines)


def test_escapes_of_a_log_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"ValueError: \x1b]0;owned\x07 \xe2\x80\xae txt \x9b31m\n")
    app.run(["triage", str(log)])
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(out)


def test_record_puts_a_log_into_the_incident_log_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    app.run(["triage", CRASH, "--record"])
    app.run(["triage", CRASH, HEALTHY, "--record"])
    capsys.readouterr()
    app.run(["incidents", "list", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["label"], row["count"]) for row in rows] == [("cublas-capture", 1)]


def test_rules_of_a_folder_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.toml").write_text(
        'title = "t"\nrole = "root"\nlabel = "hub-access"\nany = ["CUBLAS_STATUS_EXECUTION"]\nbeats = ["cublas"]\n'
    )
    app.run(["triage", CRASH, "--rules", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["root"]["rule"] == "ours"
    assert app.run(["triage", CRASH, "--rules", str(tmp_path / "none")]) == 3


def test_explain_says_why_the_losers_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["rules", "explain", str(OPEN / "112.log"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    roots = {row["rule"]: row for row in rows if row["role"] == "root"}
    assert roots["peer-closed"]["line"] == 7 or roots["peer-closed"]["root"]
    assert roots["peer-lost"]["lost"] == "peer-closed beats it"
    assert sum(row["root"] for row in rows) == 1


def test_a_new_rule_is_drafted_checked_and_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = str(tmp_path / "pack")
    assert (
        app.run(["rules", "new", "our-bug", "--from", str(OPEN / "126.log"), "--into", into]) == 0
    )
    assert app.run(["rules", "lint", str(tmp_path)]) == 0
    assert app.run(["rules", "test", str(tmp_path)]) == 1  # a log that must not match is missing
    (tmp_path / "pack/our-bug/other.not.log").write_text(
        "TypeError: 'NoneType' object is not iterable\n"
    )
    assert app.run(["rules", "test", str(tmp_path)]) == 0
    assert (
        app.run(["rules", "new", "our-bug", "--from", str(OPEN / "126.log"), "--into", into]) == 2
    )
    assert app.run(["rules", "new", "our-bug", "--from", NO_ROOT, "--into", into]) == 3
    capsys.readouterr()


def test_lint_shows_what_is_wrong_with_a_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.toml").write_text(
        'title = "t"\nrole = "root"\nlabel = "code-bug"\nany = ["(a+)+", "(?<=x)y"]\nbeats = ["nobody"]\n'
    )
    assert app.run(["rules", "lint", str(tmp_path), "--json"]) == 1
    said = " ".join(json.loads(line)["message"] for line in capsys.readouterr().out.splitlines())
    for part in (
        "a repeat inside a repeat",
        "look-around",
        "no literal of 4 characters",
        "beats names no rule: nobody",
        "no advice",
    ):
        assert part in said


_MANIFEST = {
    "host": "h",
    "service": "main",
    "invocation_id": "a1",
    "created_at": "2026-11-29T13:48:53Z",
}


def _bundle(folder: Path, **files: object) -> Path:
    folder.mkdir()
    lines = Path(CRASH).read_text(encoding="utf-8").splitlines()
    rows = [json.dumps({"MESSAGE": text, "_PID": "7"}) for text in lines]
    (folder / "journal.jsonl").write_text("\n".join(rows), encoding="utf-8")
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "manifest",
    [
        "", "{", "[1]", "7", "[" * 200_000, "\\ud800", {}, _MANIFEST | {"host": 7}, _MANIFEST | {"invocation_id": None},
        {k: v for k, v in _MANIFEST.items() if k != "created_at"},
    ],
)  # fmt: skip
def test_a_bundle_that_does_not_say_what_failed_is_triaged_and_not_recorded(
    manifest: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    folder = _bundle(tmp_path / "b", manifest=manifest)
    code = app.run(["triage", str(folder), "--record", "--json"])
    said = capsys.readouterr()
    assert code == 3
    assert json.loads(said.out)["label"] == "cublas-capture"
    assert json.loads(said.err)["error"] == "bad-bundle"
    assert not (tmp_path / "home/incidents.db").exists()


@pytest.mark.parametrize(
    ("patches", "launch"),
    [
        ({"patches": 7}, []),
        ({"patches": [7, {"name": 3}, {}]}, {"config": []}),
        ({"patches": [{"name": "x", "files": 3, "markers": "a"}], "files": 7}, {"changed_since_ready": 7}),
        ({"patches": [{"name": "x", "files": [7]}], "files": {"/a.py": 7}}, {"config": {"flags": []}}),
        ({"patches": [{"name": "x", "files": [{"path": "/a.py"}], "state": "active"}], "files": {"/a.py": {"line_maps": [["a"], 3]}}}, 7),
        ("[" * 200_000, "[" * 200_000),
    ],
)  # fmt: skip
def test_what_else_a_bundle_says_may_be_of_any_form(
    patches: object, launch: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    frame = str(json.loads(_out(capsys, "triage", CRASH, "--json"))["root"]["frames"][-1]["file"])
    text = json.dumps(patches).replace("/a.py", frame) if not isinstance(patches, str) else patches
    folder = _bundle(tmp_path / "b", manifest=_MANIFEST, patches=text, launch=launch)
    assert app.run(["triage", str(folder), "--record"]) == 1
    name = capsys.readouterr().err.split()[-1]
    assert app.run(["incidents", "show", name]) == 0
    assert app.run(["incidents", "list"]) == 0
    assert app.run(["rules", "explain", str(folder)]) == 0


def _out(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    app.run(list(words))
    return capsys.readouterr().out


def test_a_rule_that_cannot_be_written_is_no_bug_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rules", "new", "our-bug", "--from", str(OPEN / "126.log")]
    (tmp_path / "file").touch()
    for into in (tmp_path / "file", Path("/proc/no-such")):
        assert app.run([*words, "--into", str(into)]) == 3
        assert capsys.readouterr().err.startswith("error[unwritable]: ")
    (tmp_path / "pack/our-bug").mkdir(parents=True)
    (tmp_path / "pack/our-bug/first.log").touch()
    assert app.run([*words, "--into", str(tmp_path / "pack")]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "pack/our-bug.toml").exists()


@pytest.mark.parametrize(
    "words",
    [["lint"], ["test"], ["list", "--rules"], ["explain", CRASH, "--rules"], ["triage", CRASH, "--rules"]],
)  # fmt: skip
@pytest.mark.parametrize("name", ["none", "empty", "file"])
def test_a_folder_without_rules_is_told_and_not_passed_over(
    words: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    words = words if words[0] == "triage" else ["rules", *words]
    assert app.run([*words, str(tmp_path / name)]) == 3
    assert capsys.readouterr().err.startswith("error[no-such-rules]: ")


@pytest.mark.parametrize("words", [["rules", "explain"], ["triage"]])
def test_a_log_that_is_not_there_has_one_exit_code_everywhere(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*words, "/no/such.log"]) == 3
    assert capsys.readouterr().err.startswith("error[unreadable]: ")
