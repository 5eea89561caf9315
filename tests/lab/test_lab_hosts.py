"""What the lab promises of its hosts, as a client sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import RefusedError
from fleetctl.lab import bed, spec, state
from fleetctl.lab.box import Box

Make = Callable[..., Box]


def fleetctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleetctl", "lab", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_user_gets_in_with_the_lab_s_key_and_only_ops_has_sudo(replay_host: Box) -> None:
    assert replay_host.ssh("id -un", user="root").stdout == "root\n"
    assert replay_host.ssh("sudo -n id -un", user="ops").stdout == "root\n"
    assert "password" in replay_host.ssh("sudo -n id -un", user="visitor").stderr


def test_a_host_is_running_and_not_degraded(replay_host: Box) -> None:
    assert replay_host.ssh("systemctl is-system-running --wait").stdout == "running\n"


def test_hosts_have_names_of_each_other_and_machine_ids_of_their_own(private_host: Make) -> None:
    one, two = private_host("bare"), private_host("bare")
    assert one.ssh("hostname").stdout.strip() == one.name
    ids = {box.ssh("cat /etc/machine-id").stdout for box in (one, two)}
    assert len(ids) == 2
    assert one.ssh(f"getent hosts {two.name}").stdout.split()[0] == two.address


def test_a_key_that_is_not_the_host_s_own_is_not_trusted(
    private_host: Make, tmp_path: Path
) -> None:
    box = private_host("bare")
    box.console("rm /etc/ssh/ssh_host_*; ssh-keygen -A; systemctl restart ssh")
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in box.ssh("true").stderr


def test_the_journal_outlives_a_power_cut(private_host: Make) -> None:
    box = private_host("bare")
    box.console("logger -t lab before-the-cut; journalctl --sync")
    box.fault("kill")
    assert fleetctl("status", "--name", box.lab_name).stdout.count(" off ") == 1
    box.fault("boot")
    box.heal()
    assert "before-the-cut" in box.ssh("sudo journalctl -b -1 -t lab").stdout


def test_a_second_up_leaves_running_hosts_alone(replay_host: Box) -> None:
    before = replay_host.host
    bed.up(replay_host.lab_name, [before.spec])
    assert replay_host.host == before


def test_a_host_does_not_change_its_engine_silently(replay_host: Box) -> None:
    with pytest.raises(RefusedError, match="is shared-replay=replay"):
        bed.up(replay_host.lab_name, [spec.parse_host("shared-replay=bare")])


def test_two_labs_run_side_by_side_and_one_ends_without_the_other(replay_host: Box) -> None:
    other = bed.up(f"{replay_host.lab_name}-b", [spec.HostSpec("lab-01")], owner=os.getpid())
    try:
        assert other.subnet != replay_host.lab.subnet
        assert Box(other.name, "lab-01").ssh("hostname").stdout == "lab-01\n"
    finally:
        assert bed.down(other.name)
    assert not bed.down(other.name)
    assert replay_host.ssh("true").returncode == 0


def test_a_lab_whose_owner_is_gone_is_swept_by_the_next_up(replay_host: Box) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        bed.up(f"{replay_host.lab_name}-c", [spec.HostSpec("lab-01")], owner=owner.pid)
        owner.kill()
    bed.up(replay_host.lab_name, [])
    assert state.load(f"{replay_host.lab_name}-c") is None


def test_status_tells_what_a_client_needs(replay_host: Box) -> None:
    found = json.loads(fleetctl("status", "--name", replay_host.lab_name, "--json").stdout)
    assert found["schema"] == "fleetctl.lab/1"
    host = next(h for h in found["hosts"] if h["name"] == replay_host.name)
    assert (host["engine"], host["version"], host["state"]) == ("replay", "0.5.12.post1", "on")
    assert Path(found["key"]).stat().st_mode & 0o077 == 0
    inventory = json.loads((Path(found["site"]) / "hosts.yaml").read_text())
    assert inventory["hosts"][replay_host.name]["address"] == replay_host.address


def test_the_console_works_without_network(replay_host: Box) -> None:
    replay_host.fault("cable-out")
    done = fleetctl(
        "exec", "--name", replay_host.lab_name, replay_host.name, "--", "sh", "-c", "exit 7"
    )
    assert done.returncode == 7


def test_nobody_in_a_host_can_set_this_computer_s_clock(replay_host: Box) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    words = ("exec", "--name", replay_host.lab_name, replay_host.name, "--", "date", "-s", now)
    assert fleetctl(*words).returncode == 1


def test_four_replay_hosts_from_cache_answer_within_five_seconds() -> None:
    name = f"t{os.getpid()}-four"
    texts = [f"lab-0{n}=replay" for n in range(1, 5)]
    try:
        bed.up(name, spec.parse_hosts(texts), owner=os.getpid(), timeout=60)
        assert len(state.require(name).hosts) == 4
        assert all(bed.answers(host) for host in state.require(name).hosts)
    finally:
        bed.down(name)
