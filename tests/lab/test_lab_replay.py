"""The replay engine: SGLang's arguments, start, endpoints and ends, by the release it stands in for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import ConfigError, UsageError
from fleetctl.lab.box import Box

Make = Callable[..., Box]
PYTHON = "/opt/sglang/.venv/bin/python"
EP8 = "--tp-size 8 --ep-size 8 --max-running-requests"


def launch(box: Box, flags: str = "--device cpu", **env: str) -> None:
    """Start the server as a unit that ends with its main process alone (KillMode=mixed)."""
    settings = " ".join(f"--setenv={k}={v}" for k, v in env.items())
    box.console(
        "systemctl reset-failed sglang-main 2>/dev/null; "
        f"systemd-run --quiet --unit=sglang-main --property=KillMode=mixed {settings} {PYTHON} "
        f"-m sglang.launch_server --model-path /models/tiny-llama --host 0.0.0.0 {flags}"
    )


def ended(box: Box) -> dict[str, str]:
    """Wait until the unit has ended and return how."""
    box.console("while systemctl is-active -q sglang-main; do sleep 0.1; done")
    shown = box.console("systemctl show sglang-main -p Result,ExecMainCode,ExecMainStatus")
    return dict(line.split("=", 1) for line in shown.split())


def log(box: Box) -> str:
    """Return what the last start printed."""
    return box.console(
        "journalctl --sync; journalctl -o cat --no-pager "
        "_SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value sglang-main)"
    )


KILLED = {"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "9"}


def test_a_harmless_launch_serves_with_a_scheduler_for_each_rank(replay_host: Box) -> None:
    launch(replay_host, "--tp-size 8 --max-running-requests 128")
    replay_host.wait_until_healthy(60)
    names = replay_host.console("ps -eo args").splitlines()
    ranks = sorted(n.strip() for n in names if "sglang::" in n)
    assert ranks == ["sglang::detokenizer", *(f"sglang::scheduler_TP{n}" for n in range(8))]
    text = log(replay_host)
    assert text.startswith("replay: stand-in for SGLang 0.5.12.post1")
    assert "TP7] Load weight end." in text
    assert "max_running_requests=128" in text
    assert json.loads(replay_host.get("/server_info")[1])["max_running_requests"] == 128
    assert json.loads(replay_host.post("/generate", '{"text": "x"}')[1])["text"].startswith(
        "replay"
    )


@pytest.mark.parametrize(
    ("flags", "root", "last_phase", "never"),
    [
        (
            f"{EP8} 256 --enable-nccl-nvls",
            "CUBLAS_STATUS_EXECUTION_FAILED",
            "Capture cuda graph bs",
            "Capture cuda graph end",
        ),
        (
            f"{EP8} 128",
            "'NoneType' object has no attribute 'dtype'",
            "Memory pool end",
            "Capture cuda graph begin",
        ),
    ],
    ids=["nvls fails in capture", "fewer requests fail before it"],
)
def test_the_founding_launches_crash_on_every_rank_each_in_its_phase(
    replay_host: Box, flags: str, root: str, last_phase: str, never: str
) -> None:
    launch(replay_host, flags)
    assert ended(replay_host) == KILLED
    text = log(replay_host)
    assert text.count(root) == 8
    assert "replay: composed-from:" in text
    assert last_phase in text
    assert never not in text
    assert "Received sigquit from a child process." in text


def test_an_unknown_flag_ends_as_argparse_does(replay_host: Box) -> None:
    launch(replay_host, "--enable-nvls")
    assert ended(replay_host)["ExecMainStatus"] == "2"
    assert "sglang serve: error: unrecognized arguments: --enable-nvls" in log(replay_host)


def test_a_missing_model_ends_with_the_recorded_error(replay_host: Box) -> None:
    launch(replay_host, "--model-path /models/absent")
    assert ended(replay_host)["ExecMainStatus"] == "1"
    assert "'/models/absent'" in log(replay_host).splitlines()[-1]


def test_health_is_refused_then_503_then_200(replay_host: Box) -> None:
    launch(replay_host, REPLAY_SPEED="10")
    seen: list[int] = []
    while not seen or seen[-1] != 200:
        status = replay_host.get("/health")[0]
        seen += [status] if seen[-1:] != [status] else []
    assert seen == [0, 503, 200]


def test_model_info_answers_while_a_rank_hangs_and_health_says_503(replay_host: Box) -> None:
    launch(replay_host, SGLANG_HEALTH_CHECK_TIMEOUT="2")
    replay_host.wait_until_healthy(60)
    replay_host.console("kill -STOP $(pgrep -f '^sglang::scheduler')")
    assert replay_host.get("/model_info")[0] == 200
    assert replay_host.get("/server_info", timeout=3)[0] == 0
    assert replay_host.get("/health")[0] == 503
    assert "Health check failed." in log(replay_host)
    replay_host.console("kill -CONT $(pgrep -f '^sglang::scheduler')")
    assert replay_host.get("/health")[0] == 200


def test_a_killed_rank_takes_the_server_along(replay_host: Box) -> None:
    launch(replay_host)
    replay_host.wait_until_healthy(60)
    replay_host.console("kill -9 $(pgrep -f '^sglang::scheduler')")
    assert ended(replay_host) == KILLED
    assert "crashed with exit code -9. Triggering SIGQUIT for cleanup..." in log(replay_host)


def test_a_stop_that_was_asked_for_ends_with_signal_9_too(replay_host: Box) -> None:
    launch(replay_host)
    replay_host.wait_until_healthy(60)
    replay_host.console("systemctl stop sglang-main")
    text = log(replay_host)
    assert "SIGTERM received." in text
    assert "Gracefully exiting... Remaining number of requests 0." in text
    assert "SIGQUIT" not in text


def test_a_poisoned_request_crashes_a_server_of_one_rank(replay_host: Box) -> None:
    launch(replay_host)
    replay_host.wait_until_healthy(60)
    replay_host.post("/generate", '{"input_ids": [999999]}')
    assert ended(replay_host) == KILLED
    assert "IndexError: index out of range in self" in log(replay_host)


def test_secrets_come_from_a_config_file_and_guard_the_endpoints(replay_host: Box) -> None:
    replay_host.console("umask 077; echo 'api-key: sesame' > /run/secrets.yaml")
    launch(replay_host, "--device cpu --config /run/secrets.yaml")
    replay_host.wait_until_healthy(60)
    assert replay_host.get("/v1/models")[0] == 401
    curl = (
        "import urllib.request as u; r=u.Request('http://127.0.0.1:30000/v1/models',headers={}); "
    )
    curl += "r.add_header('Authorization','Bearer sesame'); print(u.urlopen(r).status)"
    assert replay_host.console(f'python3 -c "{curl}"') == "200\n"


def test_a_taken_port_ends_the_start(replay_host: Box) -> None:
    replay_host.console("systemd-run --quiet --unit=fleetctl-squat python3 -m http.server 30000")
    time.sleep(0.5)
    launch(replay_host)
    assert ended(replay_host)["ExecMainStatus"] == "1"
    assert "address already in use" in log(replay_host)


def test_newer_releases_have_ready_wait_before_they_end_and_lose_get_load(
    private_host: Make,
) -> None:
    box = private_host("replay:0.5.23")
    launch(box)
    box.wait_until_healthy(60)
    assert (box.get("/ready")[0], box.get("/get_load")[0]) == (200, 404)
    began = time.monotonic()
    box.post("/generate", '{"input_ids": [999999]}')
    assert ended(box) == KILLED
    assert time.monotonic() - began > 5
    assert "Sleeping 5 seconds before crash diagnostics" in log(box)


def test_older_releases_have_no_ready(replay_host: Box) -> None:
    launch(replay_host)
    replay_host.wait_until_healthy(60)
    assert replay_host.get("/ready")[0] == 404
    assert replay_host.get("/get_load")[0] == 200


def test_a_scenario_decides_by_flags_and_by_the_number_of_the_start(
    replay_host: Box, tmp_path: Path
) -> None:
    (tmp_path / "mine.log").write_text("[@] no luck this time\n")
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nspeed = 0\n[[outcome]]\nwhen = {"mem-fraction-static" = {min = 0.9}}\n'
        'starts = [1]\nphase = "weight-load"\nend = "exit"\nstatus = 3\nlog = "mine.log"\n'
    )
    replay_host.scenario(str(file))
    flags = "--device cpu --mem-fraction-static 0.95"
    launch(replay_host, flags)
    assert ended(replay_host)["ExecMainStatus"] == "3"
    assert "] no luck this time" in log(replay_host)
    launch(replay_host, flags)
    replay_host.wait_until_healthy(60)


def test_a_hang_before_the_port_opens_stays_refused(replay_host: Box, tmp_path: Path) -> None:
    file = tmp_path / "hang.toml"
    file.write_text('speed = 0\n[[outcome]]\nphase = "weight-load"\nend = "hang"\n')
    replay_host.scenario(str(file))
    launch(replay_host)
    while "Load weight begin" not in log(replay_host):
        time.sleep(0.1)
    time.sleep(0.5)
    assert replay_host.get("/health")[0] == 0
    assert "Load weight end" not in log(replay_host)


def test_a_wrong_scenario_never_reaches_the_host(replay_host: Box, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('[[outcome]]\nend = "explode"\n')
    with pytest.raises(ConfigError, match="end is one of crash"):
        replay_host.scenario(str(file))
    with pytest.raises(UsageError, match="no scenario nonsense"):
        replay_host.scenario("nonsense")


def test_two_nodes_meet_and_a_lost_one_takes_the_other_along(
    replay_host: Box, private_host: Make
) -> None:
    other = private_host("replay")
    head = f"--tp-size 4 --nnodes 2 --dist-init-addr {replay_host.address}:20000"
    launch(replay_host, f"{head} --node-rank 0")
    launch(other, f"{head} --node-rank 1")
    replay_host.wait_until_healthy(60)
    assert other.get("/health")[0] == 200
    assert other.get("/model_info")[0] == 404
    assert "TP3]" in log(other)
    assert "TP3]" not in log(replay_host)
    other.console("systemctl kill -s KILL sglang-main")
    assert ended(replay_host) == KILLED
    assert "Connection closed by peer" in log(replay_host)
