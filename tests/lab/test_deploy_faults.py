"""Each fault has its own reference, message, hint and exit code, and leaves the host old or new."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from fleetctl.lab.box import Box
from tests.lab.deploying import Done, Operator, interrupt, kill, leftovers, unit_state

UNIT = "/etc/systemd/system/sglang-main.service"


@pytest.fixture
def ops(ops: Operator, replay_host: Box) -> Operator:
    """The operator of a host where whatever is deployed serves."""
    replay_host.scenario("serves", speed=100)
    return ops


def fault_of(done: Done) -> dict[str, str]:
    """The fault that went to standard error as JSON."""
    lines = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert lines, done.err + done.out
    return dict(lines[0])


def expect(done: Done, reference: str, rc: int, state: str) -> None:
    """The command ended with that reference, code and state, a message and a hint."""
    fault = fault_of(done)
    assert (fault["error"], done.rc, done.result["state"]) == (reference, rc, state), done.err
    assert fault["message"]
    assert fault["hint"], fault


@pytest.mark.parametrize(
    ("fault", "references"),
    [
        ("refuse", {"connection-refused"}),
        ("drop", {"unreachable-timeout"}),
        ("cable-out", {"unreachable-timeout", "no-route"}),  # the kernel may give up first
    ],
)
def test_a_host_that_cannot_be_reached(
    ops: Operator, replay_host: Box, fault: str, references: set[str]
) -> None:
    replay_host.fault(fault)
    done = ops.deploy("lab-01", "tp8")
    assert fault_of(done)["error"] in references
    expect(done, fault_of(done)["error"], 4, "unreachable")


def test_a_key_that_opens_nothing(ops: Operator, replay_host: Box, tmp_path: Path) -> None:
    import subprocess

    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    ops.add(replay_host, "lab-01", key=str(key))
    expect(ops.deploy("lab-01", "tp8"), "auth-failed", 4, "unreachable")


def test_a_host_key_that_has_changed(ops: Operator, replay_host: Box, tmp_path: Path) -> None:
    real = Path(str(replay_host.target().known_hosts)).read_text()
    other = [line for line in real.splitlines() if replay_host.address not in line.split()[0]]
    import subprocess

    key = tmp_path / "hostkey"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    fake = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    known = tmp_path / "known_hosts"
    known.write_text("\n".join([*other, f"{replay_host.address} {fake}"]) + "\n")
    ops.add(replay_host, "lab-01", known_hosts=str(known))
    expect(ops.deploy("lab-01", "tp8"), "host-key-changed", 4, "unreachable")


def test_no_python_there(ops: Operator, replay_host: Box) -> None:
    ops.add(replay_host, "lab-01", python="/usr/bin/python9")
    expect(ops.deploy("lab-01", "tp8"), "no-python", 6, "apply-failed")


def test_sudo_that_wants_a_password(ops: Operator, replay_host: Box) -> None:
    ops.add(replay_host, "lab-01", user="visitor")
    expect(ops.deploy("lab-01", "tp8"), "sudo-password", 6, "apply-failed")


@pytest.mark.parametrize(
    ("words", "reference", "rc"),
    [
        (("nowhere", "-p", "tp8"), "unknown-host", 2),
        (("lab-01", "-p", "nothing"), "unknown-profile", 2),
        (("lab-01", "-p", "tp8", "--request", "/nowhere.json"), "bad-request", 2),
    ],
)
def test_what_is_not_there_is_named_before_any_host_is_asked(
    ops: Operator, words: tuple[str, ...], reference: str, rc: int
) -> None:
    done = ops.run("deploy", *words, "--json")
    assert (fault_of(done)["error"], done.rc) == (reference, rc)


def test_an_unknown_flag_is_refused_and_can_be_insisted_on(ops: Operator, replay_host: Box) -> None:
    done = ops.deploy("lab-01", "tp8", "--set", "enable-nvls=true")
    expect(done, "unknown-flag", 3, "refused")
    assert "--enable-nccl-nvls" in fault_of(done)["hint"]
    insisted = ops.deploy("lab-01", "tp8", "--set", "enable-nvls=true", "--no-lint=unknown-flag")
    assert (insisted.rc, insisted.result["state"]) == (1, "failed-start")
    assert insisted.result["triage"]["label"] == "args-invalid"


def test_a_template_that_cannot_be_filled(ops: Operator, replay_host: Box) -> None:
    folder = ops.folder / "site" / "templates"
    folder.mkdir()
    (folder / "sglang.service.j2").write_text("[Service]\nExecStart={{ nothing }}\n")
    expect(ops.deploy("lab-01", "tp8"), "template-error", 3, "refused")
    assert "No such file" in replay_host.console(f"ls {UNIT} 2>&1; true")


def test_a_unit_that_systemd_warns_of(ops: Operator, replay_host: Box) -> None:
    folder = ops.folder / "site" / "templates"
    folder.mkdir()
    (folder / "sglang.service.j2").write_text(
        "# Written by fleetctl\n[Service]\nType=exec\nExecStart={{ exec_start }}\nRestrat=always\n"
    )
    done = ops.deploy("lab-01", "tp8")
    expect(done, "unit-verify", 3, "refused")
    assert "No such file" in replay_host.console(f"ls {UNIT} 2>&1; true")
    assert leftovers(replay_host) == ""


def test_a_port_that_is_taken(ops: Operator, replay_host: Box) -> None:
    replay_host.console(
        "systemd-run --unit=sglang-squatter python3 -m http.server 30000 >/dev/null 2>&1; sleep 0.5"
    )
    done = ops.deploy("lab-01", "tp8")
    expect(done, "port-held", 7, "refused")
    assert "sglang-squatter" in fault_of(done)["message"]
    allowed = ops.deploy("lab-01", "tp8", "--stop-others")
    assert (allowed.rc, allowed.result["state"]) == (0, "ready"), allowed.out[-1500:]


@pytest.mark.parametrize("path", ["/etc/fleetctl", "/etc/systemd/system"])
def test_a_disk_that_fills_while_writing_leaves_the_old_launch(
    ops: Operator, replay_host: Box, path: str
) -> None:
    assert ops.deploy("lab-01", "tp8").rc == 0
    before = replay_host.console(f"cat {UNIT} /etc/fleetctl/main/environment")
    invocation = unit_state(replay_host)["InvocationID"]
    replay_host.fault("disk-full", path=path)
    done = ops.deploy("lab-01", "tp8", "--set", "max-running-requests=64", "--set", "env.NEW=1")
    if "env.NEW" in done.err:
        done = ops.deploy("lab-01", "tp8", "--set", "max-running-requests=64")
    assert done.rc in (6, 7), done.out + done.err
    assert fault_of(done)["error"] in ("disk-full", "disk-low")
    assert replay_host.console(f"cat {UNIT} /etc/fleetctl/main/environment") == before
    assert unit_state(replay_host)["InvocationID"] == invocation
    replay_host.heal()
    assert leftovers(replay_host) == ""


def test_a_second_operator_is_told_who_holds_the_lock(ops: Operator, replay_host: Box) -> None:
    replay_host.scenario("serves", speed=4)
    seen: list[Done] = []

    def second(_: object) -> None:
        seen.append(ops.deploy("lab-01", "ep8"))

    first = ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == "phase",
        second,
    )
    expect(seen[0], "locked", 5, "locked")
    assert "deploy tp8" in fault_of(seen[0])["message"]
    assert first.result["state"] == "ready"


def test_ctrl_c_while_watching_says_what_runs_and_leaves_no_lock(
    ops: Operator, replay_host: Box
) -> None:
    done = ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == "phase",
        interrupt,
    )
    assert (done.rc, done.result["state"]) == (130, "interrupted")
    assert done.result["invocation_id"] == unit_state(replay_host)["InvocationID"]
    assert leftovers(replay_host) == ""
    assert ops.run("wait", "lab-01", "--json").result["state"] == "ready"


def test_ctrl_c_before_the_restart_takes_everything_back(ops: Operator, replay_host: Box) -> None:
    done = ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == "plan",
        interrupt,
    )
    assert done.rc == 130
    state = unit_state(replay_host)
    if done.result["invocation_id"] is None:
        assert state["ActiveState"] == "inactive"
        assert "No such file" in replay_host.console(f"ls {UNIT} 2>&1; true")
    assert leftovers(replay_host) == ""


@pytest.mark.parametrize("moment", ["plan", "step", "phase"])
def test_a_killed_client_leaves_the_host_old_or_new_and_unlocked(
    ops: Operator, replay_host: Box, moment: str
) -> None:
    ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == moment,
        kill,
    )
    deadline = time.monotonic() + 30
    while leftovers(replay_host) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert leftovers(replay_host) == ""
    again = ops.deploy("lab-01", "tp8")
    assert (again.rc, again.result["state"]) in ((0, "ready"), (0, "unchanged")), again.out[-1000:]


def test_a_connection_that_is_lost_while_watching_is_taken_up_again(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.scenario("serves", speed=4)
    cut: list[float] = []

    def pull(_: object) -> None:
        cut.append(time.monotonic())
        # The session's own processes end: what a dying sshd or a middle box does to a connection.
        replay_host.console("pkill -u ops -x sshd || true")

    done = ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == "phase" and e["phase"] == "import",
        pull,
    )
    assert [e["state"] for e in done.named("connection")][-1] == "back"
    assert (done.rc, done.result["state"]) == (0, "ready"), done.out[-1500:]
    phases = [e["phase"] for e in done.named("phase") if "life" not in e]
    assert phases.index("serving") > phases.index("import")


def test_a_cable_that_is_out_for_half_a_minute_costs_only_time(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.scenario("serves", speed=2)

    def pull(_: object) -> None:
        replay_host.fault("cable-out")
        threading.Timer(32.0, lambda: replay_host.fault("cable-in")).start()

    done = ops.until(
        ("deploy", "lab-01", "-p", "tp8", "--json", "--yes"),
        lambda e: e["event"] == "phase" and e["phase"] == "import",
        pull,
    )
    assert [e["state"] for e in done.named("connection")][-1] == "back"
    assert (done.rc, done.result["state"]) == (0, "ready"), done.out[-1500:]


def test_a_unit_that_fleetctl_did_not_write_is_not_written_over(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.console(f"printf '[Service]\\nExecStart=/bin/true\\n' > {UNIT}")
    expect(ops.deploy("lab-01", "tp8"), "foreign-unit", 7, "refused")
    assert "/bin/true" in replay_host.console(f"cat {UNIT}")


def test_a_server_that_goes_silent_is_found_to_hang(ops: Operator, replay_host: Box) -> None:
    hang = ops.folder / "hang.toml"
    hang.write_text(
        'name = "hang"\nspeed = 20\n[[outcome]]\nphase = "graph-capture"\nend = "hang"\ntext = "[@] silent from here"\n'
    )
    replay_host.scenario(str(hang))
    done = ops.deploy("lab-01", "tp8", "--stall", "8")
    assert (done.rc, done.result["state"]) == (1, "hung"), done.out[-1500:]
    assert done.result["incident"]
    manifest = json.loads((Path(done.result["bundle"]) / "manifest.json").read_text())
    assert "stacks.txt" in manifest["missing"], "these hosts have no py-spy"
    assert any("py-spy" in note for note in manifest["notes"])


def test_one_that_was_given_too_little_time_is_slow_and_no_incident(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.scenario("serves", speed=2)
    done = ops.deploy("lab-01", "tp8", "--timeout", "2")
    assert (done.rc, done.result["state"]) == (1, "timed-out"), done.out[-1500:]
    assert (done.result["incident"], done.result["triage"]) == (None, None)
    assert done.result["bundle"]
    assert ops.run("incidents", "list", "--json").out == ""


def test_a_broken_profile_that_restarts_itself_is_a_loop_for_who_comes_later(
    ops: Operator, replay_host: Box
) -> None:
    replay_host.scenario("founding", speed=60)
    ops.profile("loop", "name: loop\nextends: ep8-nvls\nunit: {restart_sec: 1}\n")
    assert ops.deploy("lab-01", "loop").result["state"] == "failed-start"
    deadline = time.monotonic() + 90
    while int(unit_state(replay_host)["NRestarts"] or 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.3)
    done = ops.run("wait", "lab-01", "--json")
    assert (done.rc, done.result["state"]) == (1, "crash-loop"), done.out + done.err


def test_a_systemd_that_does_not_answer_is_named(ops: Operator, replay_host: Box) -> None:
    replay_host.fault("freeze")
    expect(ops.deploy("lab-01", "tp8"), "systemd-silent", 6, "apply-failed")
    replay_host.fault("thaw")


# A stand-in for nvidia-smi: two GPUs, and one process (of a unit that is no service of ours) on the first.
SMI = """#!/bin/sh
case "$*" in
*query-gpu*) for n in 0 1; do echo "$n, GPU-$n, Stand-in, 81920, 40000, 570.00"; done;;
*compute-apps*) echo "GPU-0, $(systemctl show -p MainPID --value sglang-squatter), 40000";;
esac
"""


def test_a_gpu_that_is_taken(ops: Operator, replay_host: Box) -> None:
    replay_host.console("systemd-run --unit=sglang-squatter sleep 1000 >/dev/null 2>&1; sleep 0.3")
    replay_host.console(
        f"cat > /usr/local/bin/nvidia-smi <<'X'\n{SMI}X\nchmod +x /usr/local/bin/nvidia-smi"
    )
    try:
        ops.add(replay_host, "lab-01", services={"main": {"gpus": [0, 1], "port": 30000}})
        done = ops.deploy("lab-01", "tp8", "--set", "tp-size=2", "--no-lint=gpu-driver")
        expect(done, "gpus-held", 7, "refused")
        assert "sglang-squatter" in fault_of(done)["message"]
        other = {"main": {"gpus": [1], "port": 30000}}
        ops.add(replay_host, "lab-01", services=other)
        free = ops.deploy("lab-01", "tp8", "--set", "tp-size=1", "--no-lint=gpu-driver")
        assert (free.rc, free.result["state"]) == (0, "ready"), free.err
    finally:
        replay_host.console("rm -f /usr/local/bin/nvidia-smi")
