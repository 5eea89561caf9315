"""``fleetctl patch`` as it is typed: text, JSON, exit codes, faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.apply import audit
from fleetctl.cli import app
from fleetctl.fleet import run as from_shell
from tests.patching.conftest import Scratch

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site whose two hosts are this machine; state and cache are its own."""
    folder = tmp_path / "site"
    (folder / "profiles").mkdir(parents=True)
    entry = {"address": "localhost", "transport": "local", "python": sys.executable}
    hosts = {"here": entry, "guarded": entry | {"protected": True}}
    (folder / "hosts.yaml").write_text(json.dumps({"hosts": hosts}))
    monkeypatch.setenv("FLEETCTL_SITE", str(folder))
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def run(site: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*words: str) -> tuple[int, str, str]:
        code = app.run(["patch", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return go


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_list_and_show(run: Run) -> None:
    code, out, _ = run("list", "--json")
    rows = objects(out)
    assert code == 0
    assert {r["schema"] for r in rows} == {"fleetctl.patch-row/1"}
    assert all(r["shipped"] for r in rows)
    code, out, _ = run("show", "none-in-foreach-copy")
    assert code == 0
    assert "silence means: the None is not in this function" in out
    code, out, _ = run("show", "none-in-foreach-copy", "--json")
    assert objects(out)[0]["captures"]["index"]


def test_a_broken_patch_of_the_site_does_not_hide_the_others(run: Run, site: Path) -> None:
    (site / "patches/broken").mkdir(parents=True)
    (site / "patches/broken/patch.toml").write_text('name = "broken"\nexpire = "soon"\n')
    code, out, err = run("list", "--json")
    assert code == 3
    assert len(objects(out)) == 7
    assert any(x["where"].endswith("broken/patch.toml:2:10") for x in objects(err))


def test_new_then_check_without_a_host(run: Run, site: Path, tmp_path: Path) -> None:
    code, out, _ = run("new", "mine", "--symbol", "sglang.srt.x:f", "--json")
    assert code == 0
    assert (site / "patches/mine/patch.toml").is_file()
    assert run("new", "mine", "--symbol", "sglang.srt.x:f")[0] == 3
    assert run("new", "../x", "--symbol", "sglang.srt.x:f")[0] == 3
    wheel = tmp_path / "cache/fleetctl/wheels/sglang-0.5.12-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    import zipfile

    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("sglang/srt/x.py", "def f(a):\n    return a\n")
    code, out, _ = run("check", "mine", "--sglang", "0.5.12", "--json")
    assert code == 0
    (line,) = objects(out)
    assert line["anchors"] == [{"file": "sglang/srt/x.py", "symbol": "f", "line": 1, "ok": True}]
    assert run("check", "mine", "--sglang", "0.5.12", "--write", str(tmp_path / "w"))[0] == 0
    assert b"fleetctl-patch mine v1" in (tmp_path / "w/sglang/srt/x.py").read_bytes()
    code, out, _ = run("check", "none-in-foreach-copy", "--sglang", "0.5.12", "--json")
    assert code == 1
    assert objects(out)[0]["ok"] is False
    assert run("check", "mine", "--sglang", "latest")[0] == 2


def test_push_status_revert_history(run: Run, scratch: Scratch) -> None:
    code, out, err = run("push", "none-in-foreach-copy", "here", "--why", "a test")
    assert code == 0, err
    assert "here/main: none-in-foreach-copy pushed (overlay, sglang 0.5.12.post1" in out
    code, out, _ = run("push", "none-in-foreach-copy", "here", "--json")
    (line,) = objects(out)
    assert (line["schema"], line["changed"], line["error"]) == (
        "fleetctl.patch-push/1",
        False,
        None,
    )
    assert line["expires_at"].endswith("Z")
    code, out, _ = run("status", "here", "--json")
    assert code == 1, "it does not run"
    (line,) = objects(out)
    assert line["patches"][0]["state"] == "applied-not-active"
    assert run("status", "here")[0] == 1
    code, out, _ = run("revert", "none-in-foreach-copy", "here", "--json")
    (line,) = objects(out)
    assert (code, line["reverted"]) == (0, ["none-in-foreach-copy"])
    code, out, _ = run("revert", "here")
    assert (code, out) == (0, "here/main: no patch is applied\n")
    code, out, _ = run("history", "here", "--json")
    (line,) = objects(out)
    assert [h["event"] for h in line["history"]] == ["push", "renew", "revert"]
    assert line["history"][0]["why"] == "a test"
    assert run("status", "here")[1] == "here/main: no patches\n"


def test_parameters_and_times_are_checked_before_anything_is_opened(
    run: Run, scratch: Scratch
) -> None:
    for words in (
        ("push", "none-in-foreach-copy", "here", "--param", "limit"),
        ("push", "none-in-foreach-copy", "here", "--expire", "soon"),
        ("push", "none-in-foreach-copy", "here", "--rung", "deep"),
        ("push", "no-such-patch", "here"),
        ("push", "none-in-foreach-copy", "nowhere"),
        ("push", "none-in-foreach-copy", "here", "--all"),
        ("push", "none-in-foreach-copy"),
    ):
        assert run(*words)[0] == 2, words
    assert run("push", "none-in-foreach-copy", "here", "--param", "limit=0")[0] == 3
    assert not scratch.drop_in.exists()


def test_nothing_that_serves_is_restarted_unasked(run: Run, scratch: Scratch) -> None:
    unit = scratch.root / "units/sglang-main.service"
    unit.write_text(unit.read_text().replace("ActiveState=inactive", "ActiveState=active"))
    code, _, err = run("push", "none-in-foreach-copy", "here", "--restart", "--json")
    assert (code, objects(err)[0]["error"]) == (7, "not-confirmed")
    code, _, err = run("push", "none-in-foreach-copy", "guarded", "--restart", "--yes", "--json")
    assert (code, objects(err)[0]["error"]) == (7, "protected-host")
    assert not scratch.drop_in.exists()
    words = ("--restart", "--yes", "--yes-protected", "guarded", "--json")
    assert run("push", "none-in-foreach-copy", "guarded", *words)[0] == 0
    assert any(x.startswith("--no-ask-password restart") for x in scratch.asked)


def test_a_fault_of_a_host_has_its_reference_and_place(run: Run, scratch: Scratch) -> None:
    scratch.unit(start="/usr/bin/podman run image")
    code, out, _ = run("push", "none-in-foreach-copy", "here", "--json")
    (line,) = objects(out)
    assert (code, line["error"]) == (7, "container-unit")
    assert line["context"][0].startswith("-v ")
    code, _, err = run("push", "none-in-foreach-copy", "here")
    assert code == 7
    assert err.startswith("error[container-unit]: here")


NOTE = "note: here/main: patch none-in-foreach-copy of "
ASKS = [
    ("history", "here"),
    ("diff", "here"),
    ("lock", "status", "here"),
    ("lock", "break", "here", "--reason", "nobody is there"),
    ("audit", "here"),
    ("engine", "list", "here"),
    ("engine", "remove", "old", "here"),
    ("fetch", "here", "/etc/hostname", "--to", "{tmp}/got"),
    ("fetch", "here", "/nowhere", "--to", "{tmp}/got"),
    ("ssh", "here", "--", "true"),
]


@pytest.mark.parametrize("words", ASKS, ids=" ".join)
def test_what_asks_a_host_says_its_patches(
    words: tuple[str, ...], run: Run, scratch: Scratch, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    at_host = from_shell.NOTES.replace("/var/", f"{scratch.root}/var/")
    monkeypatch.setattr(from_shell, "NOTES", at_host)
    words = tuple(w.format(tmp=tmp_path) for w in words)
    app.run([*words])
    assert NOTE not in capsys.readouterr().err
    assert run("push", "none-in-foreach-copy", "here")[0] == 0
    capsys.readouterr()
    app.run([*words])
    said = capsys.readouterr()
    assert said.err.count(NOTE) == 1, said
    assert "is applied until" in said.err
    assert "fleetctl-patch-note" not in said.err
    overdue(scratch)
    app.run([*words])
    assert f"{NOTE}{audit.who()} EXPIRED at 2020-" in capsys.readouterr().err


def overdue(scratch: Scratch) -> None:
    """Let the time of the host's patches be over."""
    state = scratch.patches / "state.json"
    body = json.loads(state.read_text())
    for patch in body["patches"]:
        patch["expires_at"] = 1577836800.0
    state.write_text(json.dumps(body))
    notice = scratch.patches / "notice"
    rows = [line.split("\t") for line in notice.read_text().splitlines()]
    notice.write_text("".join("\t".join([*row[:3], "2020-01-01T00:00:00Z"]) + "\n" for row in rows))


def test_what_asks_no_host_says_nothing_of_patches(
    run: Run, scratch: Scratch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("push", "none-in-foreach-copy", "here")[0] == 0
    assert app.run(["audit"]) == 0
    assert NOTE not in capsys.readouterr().err


def test_what_cannot_be_written_is_no_bug_of_ours(
    run: Run, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "patches").touch()
    code, _, err = run("new", "mine", "--symbol", "sglang.srt.x:f")
    assert (code, err.split(":")[0]) == (3, "error[unwritable]")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/fleetctl").touch()
    code, _, err = run("check", "rank-beacon", "--sglang", "0.5.99")
    assert (code, "error[unwritable]" in err, "XDG_CACHE_HOME" in err) == (3, True, True)


def test_a_wheel_that_is_none_is_named(run: Run, tmp_path: Path) -> None:
    wheel = tmp_path / "cache/fleetctl/wheels/sglang-0.5.99-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"PK half of it")
    code, _, err = run("check", "rank-beacon", "--sglang", "0.5.99")
    assert (code, err.startswith(f"error[bad-wheel]: {wheel}")) == (3, True)
