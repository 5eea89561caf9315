"""A host's folders under a temporary root, and a stand-in for systemctl that writes down what it was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.remote import bus, places, shell


@pytest.fixture
def host_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every folder that the agent writes, moved below a temporary one."""
    for name in (
        "ETC", "UNITS", "STATE", "LAUNCHES", "REVISIONS", "SPOOL", "LIB", "AUDIT", "RUN", "LOCKS", "STOPS",
    ):  # fmt: skip
        monkeypatch.setattr(places, name, str(tmp_path) + getattr(places, name))
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return tmp_path


SYSTEMCTL = """#!/bin/sh
# A stand-in: writes down what it is asked, and fails where $FAIL is among its words.
echo "$(basename "$0") $*" >> "{log}"
case " $* " in *" $FAIL "*) echo "no: $FAIL" >&2; exit 1;; esac
case " $* " in *" show "*) cat "{props}" 2>/dev/null;; esac
exit 0
"""


class Systemctl:
    """What the stand-in was asked, what it shows, and what it refuses."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "asked"
        self.props = folder / "props"
        self.show(InvocationID="new", ActiveState="active", SubState="running")

    def show(self, **props: str) -> None:
        self.props.write_text("".join(f"{k}={v}\n" for k, v in props.items()))

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = Systemctl(folder)
    for name in ("systemctl", "systemd-analyze", "journalctl"):
        path = folder / name
        path.write_text(SYSTEMCTL.format(log=fake.log, props=fake.props))
        path.chmod(0o755)
    monkeypatch.setitem(shell.ENV, "PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setitem(shell.ENV, "FAIL", "nothing")
    monkeypatch.setattr(bus, "SOCKET", str(folder / "private"))  # not this computer's own PID 1
    return fake
