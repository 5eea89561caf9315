"""Files and a command in one exec: old or new, never between; each outcome its own reference."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.errors import RemoteError, UsageError
from fleetctl.fleet import run as run_module
from fleetctl.fleet.run import Job, Put, Runner, command_text, noted, parse_put, script, stdin
from fleetctl.model.fleet import Host
from fleetctl.remote import patch_store

Start = Callable[..., Any]
HERE = Host(name="here", address="localhost", transport="local")


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest) -> Host:
    if request.param == "local":
        return HERE
    return request.getfixturevalue("sshd")().host()  # type: ignore[no-any-return]


def put(destination: Path | str, data: bytes = b"new\n", mode: int = 0o644) -> Put:
    return Put(data, "unit.service", str(destination), mode)


def whole_line(path: Path) -> str:
    """Return the line that a command writes to a file, once it is there and whole."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.02)
    raise AssertionError(f"nothing was written to {path}")


def runs(pid: str, mark: Path) -> bool:
    """Return whether the process runs that has the mark in its command line: its number may be another's now."""
    try:
        return str(mark) in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def test_output_errors_and_status_come_back(host: Host) -> None:
    outcome = Runner(Job("echo out; echo err >&2; exit 3"))(host)
    assert (outcome.rc, outcome.stdout, outcome.stderr) == (3, b"out\n", b"err\n")
    assert outcome.exit_code == 6
    assert outcome.seconds > 0


def test_a_file_is_there_before_the_command_runs(host: Host, tmp_path: Path) -> None:
    there = tmp_path / "a 'b' $c.service"
    outcome = Runner(Job(f'cat "{tmp_path}"/*.service', (put(there, b"\x00\xff data"),)))(host)
    assert outcome.stdout == b"\x00\xff data"
    assert there.read_bytes() == b"\x00\xff data"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755, 0o400])
def test_the_mode_is_what_was_said(host: Host, tmp_path: Path, mode: int) -> None:
    assert Runner(Job(":", (put(tmp_path / "f", mode=mode),)))(host).rc == 0
    assert (tmp_path / "f").stat().st_mode & 0o7777 == mode


def test_several_files_do_not_mix(host: Host, tmp_path: Path) -> None:
    data = [os.urandom(n) for n in (0, 1, 70_000, 3)]
    puts = tuple(put(tmp_path / str(n), d) for n, d in enumerate(data))
    assert Runner(Job("cat", puts))(host).rc == 0
    assert [(tmp_path / str(n)).read_bytes() for n in range(4)] == data


def test_a_directory_takes_the_file_s_own_name(host: Host, tmp_path: Path) -> None:
    Runner(Job(":", (put(tmp_path),)))(host)
    assert (tmp_path / "unit.service").read_bytes() == b"new\n"


def test_a_link_stays_and_its_target_is_replaced(host: Host, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    Runner(Job(":", (put(tmp_path / "link"),)))(host)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new\n"


def test_home_is_the_home_there(sshd: Start) -> None:
    server = sshd()
    Runner(Job(":", (put("~/it"),)))(server.host())
    assert (server.folder / "it").read_bytes() == b"new\n"


def test_what_cannot_be_written_is_put_failed_and_nothing_is_run(
    host: Host, tmp_path: Path
) -> None:
    outcome = Runner(Job(f"touch {tmp_path}/ran", (put(tmp_path / "no/f"),)))(host)
    assert isinstance(outcome.error, RemoteError)
    assert outcome.error.reference == "put-failed"
    assert "No such file" in "".join(outcome.error.context)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("missing", [1, 6, 7, 106])
def test_input_that_ends_too_early_leaves_the_old_file(tmp_path: Path, missing: int) -> None:
    (tmp_path / "f").write_text("old")
    job = Job(f"touch {tmp_path}/ran", (put(tmp_path / "f", b"x" * 100),))
    done = subprocess.run(
        ["/bin/sh", "-c", script(job)],
        input=stdin(job)[:-missing],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 73
    assert (tmp_path / "f").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f", "home"]


def test_a_reader_sees_the_old_or_the_new_never_less(host: Host, tmp_path: Path) -> None:
    there = tmp_path / "f"
    old, new = b"o" * 200_000, b"n" * 200_000
    there.write_bytes(old)
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(there.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for data in (new, old) * 5:
        assert Runner(Job(":", (put(there, data),)))(host).rc == 0
    done.set()
    reader.join()
    assert seen <= {old, new}


def test_the_host_itself_ends_a_command_at_its_timeout(host: Host) -> None:
    began = time.monotonic()
    outcome = Runner(Job("echo on; sleep 300", timeout=0.3))(host)
    assert outcome.error is not None
    assert outcome.error.reference == "command-timeout"
    assert outcome.error.exit_code == 6
    assert time.monotonic() - began < 120  # of the 300 that it wanted to sleep


@pytest.mark.parametrize("status", [124, 137])
def test_a_status_like_a_timeout_s_before_the_time_is_the_command_s_own(
    host: Host, status: int
) -> None:
    outcome = Runner(Job(f"exit {status}", timeout=30))(host)
    assert (outcome.rc, outcome.error) == (status, None)


def test_without_timeout_on_the_host_the_command_runs_all_the_same(tmp_path: Path) -> None:
    text = script(Job("echo ran", timeout=5))
    done = subprocess.run(
        ["/bin/sh", "-c", text], env={"PATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert done.stdout == b"ran\n"


def test_stopping_ends_what_runs_on_the_host(host: Host, tmp_path: Path) -> None:
    runner = Runner(Job(f"echo $$ > {tmp_path}/pid; sleep 300; :"))
    thread = threading.Thread(target=runner, args=(host,))
    thread.start()
    pid = whole_line(tmp_path / "pid")
    assert runs(pid, tmp_path)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    end = time.monotonic() + 60  # a host that is busy may take longer than the line to it is kept
    while runs(pid, tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert not runs(pid, tmp_path)


def test_output_is_heard_while_the_command_runs(host: Host) -> None:
    heard: list[bytes] = []
    outcome = Runner(Job("echo a; sleep 0.2; echo b"), lambda _, chunk: heard.append(chunk))(host)
    assert heard == [b"a\n", b"b\n"]
    assert outcome.stdout == b"a\nb\n"


def test_sudo_is_in_front_and_its_refusal_is_its_own_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "sudo"
    fake.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    outcome = Runner(Job("true", become=True))(HERE)
    assert outcome.error is not None
    assert outcome.error.reference == "sudo-password"
    fake.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    assert (
        Runner(Job("echo 'it is'", (put(tmp_path / "f"),), become=True))(HERE).stdout == b"it is\n"
    )


def test_a_host_that_is_not_there_is_an_outcome(free_port: int) -> None:
    outcome = Runner(Job("true"))(Host(name="gpu-01", address="127.0.0.1", port=free_port))
    assert outcome.error is not None
    assert (outcome.error.reference, outcome.exit_code, outcome.rc) == (
        "connection-refused",
        4,
        None,
    )


def test_one_word_is_shell_text_several_are_words() -> None:
    assert command_text(["a | b"]) == "a | b"
    assert command_text(["echo", "a b", "$c"]) == "echo 'a b' '$c'"


@pytest.mark.parametrize(
    ("text", "reference"),
    [("a", "bad-put"), ("a:", "bad-put"), ("/nowhere:b", "no-such-file"), ("{}:b:9", "bad-put"),
     ("{}:b:0644:c", "bad-put")],
)  # fmt: skip
def test_a_put_that_cannot_be_read_is_a_usage_fault(
    tmp_path: Path, text: str, reference: str
) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(UsageError) as caught:
        parse_put(text.format(tmp_path / "f"))
    assert caught.value.reference == reference


def test_a_put_takes_the_local_mode_unless_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "f").chmod(0o750)
    assert parse_put(f"{tmp_path}/f:/etc/x") == Put(b"x", "f", "/etc/x", 0o750)
    assert parse_put(f"{tmp_path}/f:/etc/x:0600").mode == 0o600


def test_the_patches_of_a_host_come_in_front_of_what_a_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "patches" / "main"
    folder.mkdir(parents=True)
    rows = "rank-beacon\toverlay\tann@desk\t{}\n"
    (folder / "notice").write_text(
        rows.format("2020-01-01T00:00:00Z") + rows.format("2999-01-01T00:00:00Z")
    )
    assert f"{patch_store.PATCHES}/*/{patch_store.NOTICE}" == run_module.NOTICES
    notes = run_module.NOTES.replace(patch_store.PATCHES, str(tmp_path / "patches"))
    monkeypatch.setattr(run_module, "NOTES", notes)
    text = script(Job("echo fleetctl-patch-note: mine >&2; echo out; exit 3"))
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, check=False)
    said, patches = noted(done.stderr)
    assert (done.returncode, done.stdout) == (3, b"out\n")
    assert [(s, n.name, n.by, n.expired) for s, n in patches] == [
        ("main", "rank-beacon", "ann@desk", True), ("main", "rank-beacon", "ann@desk", False),
    ]  # fmt: skip
    assert said == b"fleetctl-patch-note: mine\n"
    assert noted(b"a: fleetctl-patch-note: x") == (b"a: fleetctl-patch-note: x", ())
