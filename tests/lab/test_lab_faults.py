"""Each fault as a client sees it, and that it can be taken back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from fleetctl.errors import FleetError, UsageError
from fleetctl.lab import container
from fleetctl.lab.box import Box

Make = Callable[..., Box]


@pytest.mark.parametrize(
    ("fault", "said"),
    [("cable-out", "timed out"), ("drop", "timed out"), ("refuse", "Connection refused")],
)
def test_ssh_fails_as_the_fault_says_and_works_again_when_healed(
    replay_host: Box, fault: str, said: str
) -> None:
    replay_host.fault(fault)
    assert said in replay_host.ssh("true").stderr
    replay_host.heal()
    assert replay_host.ssh("true").returncode == 0


def test_a_pulled_cable_can_be_put_back(replay_host: Box) -> None:
    replay_host.fault("cable-out")
    replay_host.fault("cable-in")
    assert replay_host.ssh("true").returncode == 0


def test_a_session_over_a_lossy_link_is_slow_but_gets_through(replay_host: Box) -> None:
    replay_host.fault("loss", percent=10)
    done = replay_host.ssh("echo through", timeout=120)
    assert done.stdout == "through\n"
    own = ["nsenter", f"--target={container.init(replay_host.host)}", "--net"]
    rules = subprocess.run(
        [*own, "nft", "list", "ruleset"], capture_output=True, text=True, check=True
    )
    # How many were dropped in each direction is chance; that each is thrown for is not.
    assert rules.stdout.count("numgen random mod 100 < 10") == 2


def test_a_frozen_pid_1_lets_ssh_in_but_answers_no_systemctl(replay_host: Box) -> None:
    replay_host.fault("freeze")
    assert replay_host.ssh("true").returncode == 0
    with pytest.raises(subprocess.TimeoutExpired):
        replay_host.ssh("systemctl is-active ssh", timeout=3)
    replay_host.fault("thaw")
    assert replay_host.ssh("systemctl is-active ssh").stdout == "active\n"


def test_a_full_disk_keeps_what_was_there_and_takes_only_what_is_left(replay_host: Box) -> None:
    replay_host.console("mkdir -p /etc/fleetctl; echo old > /etc/fleetctl/old")
    replay_host.fault("disk-full", path="/etc/fleetctl", size=8192)
    done = replay_host.ssh("sudo dd if=/dev/zero of=/etc/fleetctl/new bs=1k count=20")
    assert "No space left on device" in done.stderr
    assert replay_host.ssh("cat /etc/fleetctl/old").stdout == "old\n"
    replay_host.heal()
    assert replay_host.ssh("ls /etc/fleetctl").stdout == "old\n"


def test_an_orderly_reboot_comes_back_as_the_next_boot(private_host: Make) -> None:
    box = private_host("bare")
    before = box.ssh("cat /proc/sys/kernel/random/boot_id; sudo journalctl --list-boots").stdout
    box.fault("reboot")
    box.heal()
    assert len(before.splitlines()) < len(
        box.ssh(
            "cat /proc/sys/kernel/random/boot_id; sudo journalctl --list-boots"
        ).stdout.splitlines()
    )


def test_a_host_over_its_memory_gets_its_process_killed_by_the_kernel(private_host: Make) -> None:
    box = private_host("bare")
    box.fault("memory", size=150 << 20)
    eat = "systemd-run --quiet --wait python3 -c 'bytearray(400 << 20)'"
    with pytest.raises(FleetError):
        box.console(eat)
    box.heal()
    box.console(eat)


def test_a_slow_link_has_its_rate(replay_host: Box) -> None:
    replay_host.fault("slow", rate="64kbit")
    with pytest.raises(subprocess.TimeoutExpired):
        replay_host.ssh("head -c 100000 /dev/urandom | base64", timeout=4)


def test_an_unknown_fault_names_the_known_ones(replay_host: Box) -> None:
    with pytest.raises(UsageError) as caught:
        replay_host.fault("gremlins")
    assert "cable-out" in caught.value.hint
