"""``run``, ``fetch`` and ``hosts trust`` as typed: output, JSON, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.app import run
from tests.transport.conftest import free_port, login_key, own_home, sshd

__all__ = ["free_port", "login_key", "own_home", "sshd"]
Start = Callable[..., Any]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int) -> Path:
    """Three hosts that are this machine, one that is down."""
    text = f"""
defaults: {{transport: local}}
hosts:
  b300-[01-03]: {{groups: [b300]}}
  down-01: {{transport: ssh, address: 127.0.0.1, port: {free_port}}}
"""
    (tmp_path / "hosts.yaml").write_text(text)
    monkeypatch.setenv("FLEETCTL_SITE", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "state"))
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_equal_output_is_shown_once(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "@b300", "--", "echo same"]) == 0
    assert capsys.readouterr().out == (
        "----------------\nb300-[01-03] (3)\n----------------\nsame\n"
    )


def test_one_host_s_output_stands_alone(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "b300-01", "--", "echo", "a  b"]) == 0
    assert capsys.readouterr().out == "a  b\n"


def test_json_is_a_line_a_host(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "b300-[01-02]", "--json", "--", "echo hi; echo no >&2; exit 3"]) == 6
    found = lines(capsys)
    assert sorted(x["host"] for x in found) == ["b300-01", "b300-02"]
    for one in found:
        assert one["schema"] == "fleetctl.run/1"
        assert (one["rc"], one["stdout"], one["stderr"], one["error"]) == (3, "hi\n", "no\n", None)
        assert one["seconds"] > 0


def test_a_host_that_is_down_has_its_reference_and_the_others_their_output(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--all", "--json", "--", "true"]) == 1
    found = {x["host"]: x for x in lines(capsys)}
    assert found["down-01"]["error"] == "connection-refused"
    assert found["down-01"]["rc"] is None
    assert [found[f"b300-0{n}"]["rc"] for n in (1, 2, 3)] == [0, 0, 0]


def test_a_fault_of_many_hosts_is_shown_once(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "f").touch()
    assert run(["run", "@b300", "--put", f"{site}/f:/nowhere/f", "--", "true"]) == 6
    shown = capsys.readouterr().err
    assert shown.count("error[put-failed]: b300-[01-03]:") == 1


def test_hosts_all_unreachable_is_exit_four(site: Path) -> None:
    assert run(["run", "down-01", "--", "true"]) == 4


def test_a_put_alone_needs_no_command(site: Path) -> None:
    (site / "f").write_text("x")
    assert run(["run", "b300-01", "--put", f"{site}/f:{site}/g:0600"]) == 0
    assert (site / "g").read_text() == "x"


def test_a_put_is_in_the_audit_log_and_a_mere_look_is_not(site: Path) -> None:
    (site / "f").write_text("x")
    assert run(["run", "b300-01", "--", "true"]) == 0
    assert not (site / "state").exists()
    token = "hf_" + "a" * 34
    argv = ["run", "b300-01", "--put", f"{site}/f:{site}/g", "--", f"HF_TOKEN={token} true"]
    assert run(argv) == 0
    (line,) = (site / "state/audit.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["do"], event["hosts"], event["puts"]) == ("run", ["b300-01"], [f"{site}/g"])
    assert token not in line


def test_nothing_to_do_is_a_usage_fault(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "b300-01"]) == 2
    assert "error[no-command]" in capsys.readouterr().err


def test_host_text_cannot_steer_the_terminal(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["run", "b300-01", "--", r"printf '\033[2Jgone\n'; printf '\033]0;t\007' >&2"])
    captured = capsys.readouterr()
    assert captured.out == "\\x1b[2Jgone\n"
    assert "\x1b" not in captured.err


def test_streamed_lines_carry_their_host(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "b300-[01-02]", "--stream", "--", "echo 1; echo 2; exit 2"]) == 6
    captured = capfd.readouterr()
    assert sorted(captured.out.splitlines()) == [
        "b300-01: 1",
        "b300-01: 2",
        "b300-02: 1",
        "b300-02: 2",
    ]
    assert "b300-01: exit status 2" in captured.err


def test_what_is_ready_is_shown_while_a_slow_host_is_awaited(site: Path) -> None:
    gate = site / "gate"
    slow = f"mkdir {site}/first 2>/dev/null && while [ ! -e {gate} ]; do sleep .05; done; echo done"
    argv = [sys.executable, "-m", "fleetctl", "run", "@b300", "--", slow]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        early = [process.stdout.readline() for _ in range(4)]
        assert "(2)" in early[1]
        gate.touch()
        assert "done" in process.stdout.read()
    assert process.returncode == 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_what_runs_on_the_hosts(site: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fleetctl", "run", "@b300", "--",
         f"echo $$ >> {site}/pids; sleep 300; :"], start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if (site / "pids").exists() and (site / "pids").read_text().count("\n") == 3:
            break
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(how)
    assert process.wait(20) == 130
    for pid in (site / "pids").read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_fetched_files_lie_by_host(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "log").write_text("x" * 5000)
    assert run(["fetch", "@b300", f"{site}/log", "--to", f"{site}/got", "--json"]) == 0
    assert {x["host"]: (x["bytes"], x["error"]) for x in lines(capsys)} == {
        f"b300-0{n}": (5000, None) for n in (1, 2, 3)
    }
    assert (site / "got/b300-02/log").read_text() == "x" * 5000


def test_a_file_that_is_not_there_is_exit_six(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fetch", "b300-01", "/nowhere/log", "--to", str(site), "--json"]) == 6
    assert lines(capsys)[0]["error"] == "fetch-failed"


class Fleet:
    """A site of one real sshd whose key nobody knows yet."""

    def __init__(self, site: Path, server: Any) -> None:
        self.known = site / "known_hosts"
        self.server = server
        (site / "hosts.yaml").write_text(
            f"hosts: {{gpu-01: {{address: 127.0.0.1, port: {server.port}, user: root, "
            f"key: {server.key}, known_hosts: {self.known}}}}}\n"
        )


@pytest.fixture
def fleet(site: Path, sshd: Start) -> Fleet:
    return Fleet(site, sshd())


def test_first_contact_shows_asks_and_writes(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "gpu-01", "--", "true"]) == 4
    assert (
        "hint: compare the fingerprint, then: fleetctl hosts trust gpu-01"
        in capsys.readouterr().err
    )
    assert run(["hosts", "trust", "gpu-01"]) == 1  # nobody is there to say yes
    assert not fleet.known.exists()
    assert "SHA256:" in capsys.readouterr().out
    assert run(["hosts", "trust", "gpu-01", "--yes", "--json"]) == 0
    (line,) = lines(capsys)
    assert (line["state"], line["file"]) == ("new", str(fleet.known))
    assert run(["run", "gpu-01", "--", "echo in"]) == 0
    assert run(["hosts", "trust", "gpu-01"]) == 0
    assert "known" in capsys.readouterr().out


def test_a_fingerprint_said_beforehand_must_fit(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hosts", "trust", "gpu-01", "--fingerprint", "SHA256:other"]) == 7
    assert not fleet.known.exists()
    shown = capsys.readouterr().out.split()[-1]
    assert run(["hosts", "trust", "gpu-01", "--fingerprint", shown]) == 0
    assert fleet.known.exists()


def test_a_changed_key_is_refused_even_with_yes(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True
    )
    other = " ".join((tmp_path / "k.pub").read_text().split()[:2])
    fleet.known.write_text(f"[127.0.0.1]:{fleet.server.port} {other}\n")
    assert run(["hosts", "trust", "gpu-01", "--yes"]) == 7
    assert "error[host-key-changed]" in capsys.readouterr().err
    assert other in fleet.known.read_text()


@pytest.mark.parametrize(
    "command", [["run", "b300-01", "--", "true"], ["run", "down-01", "--", "true"]]
)
def test_run_starts_without_pydantic_and_fabric(site: Path, command: list[str]) -> None:
    code = (
        "import sys; from fleetctl.cli.app import run; run(sys.argv[1:]); "
        "print(sorted({'pydantic', 'fabric', 'invoke', 'rich', 'yaml', 'sqlalchemy', 'jinja2'} & set(sys.modules)))"
    )
    argv = [sys.executable, "-c", code, *command]
    subprocess.run(argv, check=True, capture_output=True)  # reads the inventory
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.splitlines()[-1] == "[]"
