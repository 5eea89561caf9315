"""What a shell can do to the streams and to the folders of a command: told in one line, never by a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.cli import app

LOG = Path(__file__).parent.parent / "corpus/open/logs/108.log"


def _shell(command: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    program = f'fleetctl() {{ {sys.executable} -m fleetctl "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", program + command], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "FLEETCTL_HOME": str(home), **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"fleetctl triage {LOG} >&-", 1),
        (f"fleetctl triage {LOG} 2>&-", 1),
        ("fleetctl triage - <&-", 0),
        ("fleetctl --version >&-", 0),
        ("fleetctl --version >&- 2>&- <&-", 0),
    ],
)
def test_a_closed_stream_is_like_dev_null(command: str, code: int, tmp_path: Path) -> None:
    done = _shell(command, tmp_path)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("words", ["--version", "--help", "rules list", "rules list --json"])
def test_a_reader_that_went_away_is_no_negative_answer(words: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "fleetctl", *words.split()], stdout=writer, stderr=subprocess.PIPE,
        timeout=60, check=False, env={**os.environ, "FLEETCTL_HOME": str(tmp_path)},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", ["--version", "--help"])
def test_a_full_disk_is_told_whatever_is_printed(words: str, tmp_path: Path) -> None:
    done = _shell(f"fleetctl {words} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error[no-space-here]: the output: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("below", ["", "/deeper/still"])
def test_a_state_folder_that_cannot_be_used_is_no_bug_of_ours(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fleetctl.apply import audit

    (tmp_path / "file").touch()
    monkeypatch.setenv("FLEETCTL_HOME", f"{tmp_path}/file{below}")
    monkeypatch.setattr(app, "root", lambda **_: audit.write({"do": "x"}))
    assert app.run(["deploy", "--json"]) == 3
    said = json.loads(capsys.readouterr().err)
    assert (said["error"], "FLEETCTL_HOME" in said["hint"]) == ("unwritable", True)


def test_a_file_that_we_should_have_written_is_a_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(app, "root", lambda **_: (tmp_path / "gone").read_bytes())
    assert app.run(["status", "--json"]) == 1
    said = json.loads(capsys.readouterr().err)
    assert said["error"] == "internal-fault"
    assert Path(said["hint"].split()[-1]).parent == tmp_path


def test_a_bug_is_told_where_there_is_no_place_for_its_details(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", none)
    monkeypatch.setattr(app, "root", lambda **_: 1 / 0)
    assert app.run(["status"]) == 1
    assert "FLEETCTL_DEBUG=1" in capsys.readouterr().err
