"""Hosts broken on purpose: each fault is found, and what is sound says nothing."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetctl.doctor import critical, examine
from fleetctl.fleet.doctor import Round, Visit, visit
from fleetctl.lab import container
from fleetctl.lab.box import Box
from fleetctl.model.fleet import Service, Target
from tests.lab.deploying import Operator

PYTHON = "/opt/sglang/.venv/bin/python"
PACKAGES = "/opt/sglang/.venv/lib/python3.11/site-packages"
MODEL = "/models/tiny-llama"
UNIT = "/etc/systemd/system/sglang-main.service"
DROP_IN = f"{UNIT}.d/50-test.conf"

# A stand-in: it only has to be found.
PY_SPY = "printf '#!/bin/sh\\necho py-spy stand-in\\n' > /opt/sglang/.venv/bin/py-spy; chmod 755 /opt/sglang/.venv/bin/py-spy"
# What nvidia-smi prints without a loaded driver (its own words, exit status 9).
NO_DRIVER = (
    "printf '%s\\n' '#!/bin/sh' 'echo \"NVIDIA-SMI has failed because it could not communicate with the "
    "NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\"; exit 9' "
    "> /usr/local/bin/nvidia-smi; chmod 755 /usr/local/bin/nvidia-smi"
)
# The agent's Python is told to look at nothing of its surroundings: the lie goes in front of its program.
SLOW_CLOCK = (
    "mkdir -p /opt/late; printf 'import time\\nreal = time.time\\ntime.time = lambda: real() - 90\\n' > "
    '/opt/late/late.py; printf \'#!/bin/sh\\nexec python3 -c "exec(open(\\"/opt/late/late.py\\").read());$3"\\n\' > '
    "/usr/local/bin/python-late; chmod 755 /usr/local/bin/python-late"
)


def drop_in(line: str) -> str:
    return f"mkdir -p {UNIT}.d; printf '[Service]\\n{line}\\n' > {DROP_IN}; systemctl daemon-reload"


NO_DROP_IN = f"rm -rf {UNIT}.d; systemctl daemon-reload; systemctl reset-failed sglang-main 2>/dev/null; true"


@dataclass(frozen=True)
class Fault:
    """What is broken, what is found, and how it is mended."""

    breaks: str
    mends: str
    finds: tuple[str, ...]
    expect: dict[str, Any] | None = None
    host: dict[str, Any] | None = None


FAULTS = {
    "another unit failed": Fault(
        "systemd-run -q --unit=thing false; sleep 0.5", "systemctl reset-failed thing", ("units-failed",)),
    "the host does not know its own name": Fault(
        "cp /etc/hosts /etc/hosts.kept; sed -i \"/$(hostname)/d\" /etc/hosts",
        "mv /etc/hosts.kept /etc/hosts", ("own-name",)),
    "no inodes": Fault("mount -t tmpfs -o nr_inodes=20,size=3g few /tmp", "umount /tmp", ("inodes-low",)),
    "/etc is read-only": Fault(
        "mount --bind /etc /etc && mount -o remount,ro,bind /etc", "umount /etc", ("read-only",)),
    "shared memory as in a container": Fault(
        "mount -o remount,size=64M /dev/shm", "mount -o remount,size=50% /dev/shm", ("shm-small",)),
    "another process has the port": Fault(
        "systemd-run -q --unit=thief python3 -m http.server 30000; sleep 1", "systemctl stop thief", ("port-taken",)),
    "processes were left over": Fault(
        "systemd-run -q --unit=stray bash -c 'exec -a sglang::scheduler_TP0 sleep 300'; sleep 0.5",
        "systemctl stop stray", ("leftover-processes",)),
    "the journal is kept in memory": Fault(
        "mkdir -p /etc/systemd/journald.conf.d; printf '[Journal]\\nStorage=volatile\\n' > "
        "/etc/systemd/journald.conf.d/50-test.conf; mv /var/log/journal /var/log/journal.kept; "
        "systemctl restart systemd-journald",
        "rm /etc/systemd/journald.conf.d/50-test.conf; mv /var/log/journal.kept /var/log/journal; "
        "systemctl restart systemd-journald; journalctl --flush", ("journal-volatile",)),
    "the journal keeps nothing": Fault(
        "mkdir -p /etc/systemd/journald.conf.d; printf '[Journal]\\nStorage=none\\n' > "
        "/etc/systemd/journald.conf.d/50-test.conf", "rm /etc/systemd/journald.conf.d/50-test.conf", ("journal-none",)),
    "the unit was edited by hand": Fault(
        f"cp {UNIT} /root/kept; echo '# mine' >> {UNIT}; systemctl daemon-reload",
        f"cp /root/kept {UNIT}; systemctl daemon-reload", ("unit-drift",)),
    "systemd has an older unit in memory": Fault(
        drop_in("ExecStart=\\nExecStart=/bin/sleep 300\\nExecStopPost=")
        + f"; systemctl start sglang-main; echo Nice=1 >> {DROP_IN}",
        "systemctl stop sglang-main; " + NO_DROP_IN, ("daemon-reload",)),
    "few open files": Fault(drop_in("LimitNOFILE=1024"), NO_DROP_IN, ("nofile-low",)),
    "little locked memory": Fault(drop_in("LimitMEMLOCK=8M"), NO_DROP_IN, ("memlock-low",)),
    "journald drops lines": Fault(drop_in("LogRateLimitIntervalSec=30s"), NO_DROP_IN, ("log-rate-limit",)),
    "the unit is masked": Fault(
        f"mv {UNIT} /root/kept; ln -s /dev/null {UNIT}; systemctl daemon-reload",
        f"mv /root/kept {UNIT}; systemctl daemon-reload", ("unit-masked", "unit-drift")),
    "another torch than expected": Fault(
        f"mkdir {PACKAGES}/torch-2.9.0.dist-info; printf 'Name: torch\\nVersion: 2.9.0\\n' > "
        f"{PACKAGES}/torch-2.9.0.dist-info/METADATA",
        f"rm -r {PACKAGES}/torch-2.9.0.dist-info", ("torch-version",), {"torch": ">=2.11"}),
    "the unit failed": Fault(
        drop_in("ExecStart=\\nExecStart=/bin/false\\nRestart=no") + "; systemctl start sglang-main; sleep 1",
        NO_DROP_IN, ("unit-failed",)),
    "the unit loops": Fault(
        drop_in("ExecStart=\\nExecStart=/bin/sh -c \"sleep 0.2; exit 3\"\\nRestart=always\\nRestartSec=100ms\\nExecStopPost=")
        .replace("[Service]", "[Unit]\\nStartLimitIntervalSec=0\\n[Service]")
        + "; systemctl start sglang-main; sleep 3",
        "systemctl stop sglang-main; " + NO_DROP_IN, ("restart-loop",)),
    "the interpreter is gone": Fault(f"mv {PYTHON} {PYTHON}.kept", f"mv {PYTHON}.kept {PYTHON}", ("python-missing",)),
    "the interpreter does not run": Fault(
        f"mv {PYTHON} {PYTHON}.kept; printf '#!/bin/sh\\necho no libpython >&2; exit 1\\n' > {PYTHON}; chmod 755 {PYTHON}",
        f"mv {PYTHON}.kept {PYTHON}", ("python-broken",)),
    "SGLang is not installed": Fault(
        f"mkdir /root/d; mv {PACKAGES}/sglang-*.dist-info /root/d/",
        f"mv /root/d/* {PACKAGES}/; rmdir /root/d", ("sglang-missing",)),
    "a package is not the one that SGLang pins": Fault(
        f"mkdir {PACKAGES}/torch-2.9.0.dist-info; printf 'Name: torch\\nVersion: 2.9.0\\n' > "
        f"{PACKAGES}/torch-2.9.0.dist-info/METADATA; cp {PACKAGES}/sglang-*.dist-info/METADATA /root/kept; "
        f"sed -i '/^Version/a Requires-Dist: torch==2.11.0' {PACKAGES}/sglang-*.dist-info/METADATA",
        f"rm -r {PACKAGES}/torch-2.9.0.dist-info; cp /root/kept {PACKAGES}/sglang-*.dist-info/METADATA",
        ("package-mismatch",)),
    "another release than expected": Fault("true", "true", ("sglang-version",), {"sglang": ">=0.5.20"}),
    "another kernel than expected": Fault("true", "true", ("kernel-version",), {"kernel": ">=99"}),
    "py-spy is missing": Fault("rm /opt/sglang/.venv/bin/py-spy", PY_SPY, ("py-spy-missing",)),
    "the model is gone": Fault(f"mv {MODEL} {MODEL}.kept", f"mv {MODEL}.kept {MODEL}", ("model-missing",)),
    "the model has no config": Fault(
        f"mv {MODEL}/config.json {MODEL}/c.kept", f"mv {MODEL}/c.kept {MODEL}/config.json", ("model-config",)),
    "a shard of the model is missing": Fault(
        f"echo '{{\"weight_map\": {{\"a\": \"model-00002-of-00002.safetensors\"}}}}' > {MODEL}/model.safetensors.index.json",
        f"rm {MODEL}/model.safetensors.index.json", ("model-shards",)),
    "the clock is slow": Fault(
        SLOW_CLOCK, "rm -r /opt/late /usr/local/bin/python-late", ("clock-off",), None, {"python": "/usr/local/bin/python-late"}),
    "GPUs are expected and there is no nvidia-smi": Fault("true", "true", ("no-gpu-tools",), {"gpus": 8}),
    "the driver is not loaded": Fault(NO_DRIVER, "rm /usr/local/bin/nvidia-smi", ("gpu-driver",)),
    "the login may not become root": Fault(
        "true", "true", ("not-root",), None, {"user": "visitor", "become": None}),
}  # fmt: skip


@pytest.fixture(scope="module")
def box(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Box:
    """A replay host with a deployed service that was stopped again, and all that a sound host has."""
    from tests.lab.conftest import start

    made = start("doctor=replay")
    made.scenario("founding", speed=100)
    operator = Operator(tmp_path_factory.mktemp("doctor"))
    operator.add(made, "doctor")
    done = operator.deploy("doctor", "tp8")
    assert done.rc == 0, done.err + done.out
    assert operator.run("stop", "doctor", "--yes").rc == 0
    made.console(PY_SPY)
    return made


def look(box: Box, expect: dict[str, Any] | None = None, **changes: Any) -> Visit:
    host = box.target(**changes)
    work = Round(expect or {}, "doctor.yaml", None, (), ())
    return work((host, [Target(host, Service())]))


def ids(found: Visit) -> set[str]:
    return {f.id for f in found.findings}


def test_a_sound_host_has_no_finding_and_takes_under_two_seconds(box: Box) -> None:
    found = look(box)
    assert ids(found) == set(), found.findings
    assert found.ok
    assert found.remarks == ("no GPU tools",)
    assert found.facts is not None
    assert found.facts["main"]["errors"] == {}
    assert found.facts["main"]["seconds"] < 2.0


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_gone_when_mended(box: Box, name: str) -> None:
    fault = FAULTS[name]
    box.console(fault.breaks)
    try:
        found = look(box, fault.expect, **(fault.host or {}))
        assert ids(found) >= set(fault.finds), found.findings
        for finding in found.findings:
            if finding.id in fault.finds:
                assert finding.message
                assert finding.evidence
    finally:
        box.console(fault.mends)
    assert ids(look(box)) == set()


def test_a_full_disk_is_found(box: Box) -> None:
    box.fault("disk-full", path="/var/lib/fleetctl")
    try:
        assert "disk-full" in ids(look(box))
        assert "disk-full" in {f.id for f in _critical(box)}
    finally:
        box.heal()


def test_little_space_is_found(box: Box) -> None:
    box.fault("disk-full", path="/var/lib/fleetctl", size=700 * 1024**2)
    try:
        assert ids(look(box)) == {"disk-low"}
    finally:
        box.heal()


def test_an_init_that_hangs_is_found(box: Box) -> None:
    box.fault("freeze")
    try:
        assert "systemd-hangs" in ids(look(box))
    finally:
        box.fault("thaw")


def test_cards_as_two_h200_answered(box: Box) -> None:
    """nvidia-smi of a lab host prints what it printed on real cards."""
    recorded = Path(__file__).parents[1] / "doctor" / "recorded" / "h200-x2"
    script = '#!/bin/sh\ncase "$*" in *p2p*) cat /opt/p2p;; *topo*) cat /opt/topo;; *-x*) cat /opt/smi;; esac\n'
    for path, text in (
        ("/opt/smi", (recorded / "smi.xml").read_text()),
        ("/opt/topo", (recorded / "topo.txt").read_text()),
        ("/opt/p2p", (recorded / "p2p.txt").read_text()),
        ("/usr/local/bin/nvidia-smi", script),
        (
            "/etc/systemd/system/nvidia-fabricmanager.service",
            "[Service]\nExecStart=/bin/sleep 300\n",
        ),
    ):
        box.console('printf %s "$1" > "$2"', text, path)
    box.console("chmod 755 /usr/local/bin/nvidia-smi; systemctl daemon-reload")
    try:
        found = look(box, {"gpus": 8, "driver": ">=590"}, gpus=2)
        assert ids(found) == {"gpu-count", "driver-version", "fabric-manager"}
        assert found.remarks == ()
        box.console("systemctl start nvidia-fabricmanager")
        assert ids(look(box, {"gpus": 2, "driver": ">=580", "fabric": True})) == set()
    finally:
        box.console(
            "systemctl stop nvidia-fabricmanager; rm /usr/local/bin/nvidia-smi /opt/smi /opt/topo /opt/p2p "
            "/etc/systemd/system/nvidia-fabricmanager.service; systemctl daemon-reload"
        )


def test_a_port_among_those_of_outgoing_connections_is_found(box: Box) -> None:
    inside = ["nsenter", f"--target={container.init(box.host)}", "--net", "sysctl", "-qw"]
    subprocess.run([*inside, "net.ipv4.ip_local_port_range=20000 60999"], check=True)
    try:
        assert "port-ephemeral" in ids(look(box))
        subprocess.run([*inside, "net.ipv4.ip_local_reserved_ports=30000-30300"], check=True)
        assert "port-ephemeral" not in ids(look(box))
    finally:
        subprocess.run([*inside, "net.ipv4.ip_local_port_range=32768 60999"], check=True)
        subprocess.run([*inside, "net.ipv4.ip_local_reserved_ports="], check=True)


def test_nothing_on_the_host_is_changed(box: Box) -> None:
    marker = "find /etc /var/lib/fleetctl /models /opt/sglang -newer /run/marker -not -name '*.journal' 2>/dev/null"
    box.console("touch /run/marker; sleep 0.1")
    look(box)
    assert box.console(marker).strip() == ""


def test_many_hosts_are_looked_at_side_by_side(box: Box, tmp_path: Path) -> None:
    targets = [Target(box.target(name=f"h{n:02}"), Service()) for n in range(20)]
    begun = time.monotonic()
    answers = list(visit(targets, tmp_path))
    assert {v.host for v in answers} == {t.host.name for t in targets}
    assert all(v.ok for v in answers), [v.error or v.findings for v in answers]
    print(f"20 looks at once: {time.monotonic() - begun:.2f} s")


def test_a_host_that_is_off_is_told_beside_the_others(box: Box, tmp_path: Path) -> None:
    off = Target(box.target(name="off", address="10.77.255.254"), Service())
    answers = {v.host: v for v in visit([off, Target(box.target(), Service())], tmp_path)}
    assert answers["off"].error is not None
    assert answers["off"].error.exit_code == 4
    assert answers[box.name].ok


def _critical(box: Box) -> list[Any]:
    from fleetctl.doctor import Look

    facts = look(box).facts
    assert facts is not None
    seen = Look(facts["main"])
    assert {f.id for f in critical(seen)} <= {f.id for f in examine(seen)}
    return critical(seen)


def test_a_deploy_is_refused_before_anything_is_stopped(box: Box, tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    operator.add(box, "doctor")
    box.console("mount -o remount,size=64M /dev/shm")
    try:
        refused = operator.deploy("doctor", "tp8")
        assert (refused.rc, refused.result["state"], refused.result["error"]) == (
            7, "refused", "shm-small",
        )  # fmt: skip
        assert operator.deploy("doctor", "tp8", "--no-lint=shm-small", "--dry-run").rc == 0
    finally:
        box.console("mount -o remount,size=50% /dev/shm")
