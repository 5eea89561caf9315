"""Where a file may be edited and where only an overlay will do: whose file system it is on."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.remote import patch_plan, patch_resolve, procs
from fleetctl.remote.agent import AgentError

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / /opt rw - nfs4 nas:/opt rw
41 40 0:51 / /opt/local\\040disk rw - xfs /dev/sdb rw
42 22 0:52 / /opt/sglang/.venv rw - fuse.sshfs far:/venv rw
43 22 0:53 / /srv/models rw - overlay overlay rw
"""
UNIT = patch_resolve.Unit("u.service", "loaded", "active", "", 1, "", "", [], [], [], "/", "")


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procs, "read", lambda path: MOUNTS if path.endswith("mountinfo") else "")
    monkeypatch.setattr(patch_resolve, "other_units", lambda prefix, own: [])


def admit(package: str, rung: str) -> None:
    state: dict[str, Any] = {"service": "main", "files": {}}
    seen = {"locations": [f"{package}/sglang"], "prefix": package}
    patch_plan.admit(state, f"{package}/sglang/srt/x.py", {"rung": rung}, UNIT, seen)


@pytest.mark.parametrize(
    ("package", "kind"), [("/opt/site", "nfs4"), ("/opt/sglang/.venv", "fuse.sshfs")]
)
def test_a_file_of_a_network_file_system_is_never_edited(
    mounts: None, package: str, kind: str
) -> None:
    with pytest.raises(AgentError) as caught:
        admit(package, "edit")
    assert caught.value.fields["reference"] == "edit-refused"
    assert f"lies on {kind}, where other hosts use it" in caught.value.fields["message"]
    assert "overlay" in caught.value.fields["hint"]
    admit(package, "overlay")


@pytest.mark.parametrize("package", ["/opt/local disk/venv", "/srv/models", "/usr/lib"])
def test_a_file_of_the_hosts_own_is(mounts: None, package: str) -> None:
    admit(package, "edit")
