from __future__ import annotations

import pytest

from fleetctl.remote import procs


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/sglang-main.service\n", "sglang-main.service"),
        ("0::/system.slice/sglang-main.service/rank0\n", "sglang-main.service"),
        ("1:name=systemd:/system.slice/x.service\n0::/\n", "x.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-1.slice/user@1.service/app.slice/nb.service\n", "user@1.service"),
        ("0::/system.slice/docker-0a1b.scope\n", "docker-0a1b.scope"),
        ("0::/docker/0a1b\n", ""),
        ("", ""),
    ],
)
def test_a_process_belongs_to_the_unit_that_the_system_manager_knows(
    cgroup: str, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procs, "read", lambda _path: cgroup)
    assert procs.unit_of(1) == unit
