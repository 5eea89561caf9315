"""The debug loop on the real SGLang: crash, push, restart, the same request, the field's name, revert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl.lab.box import Box

pytestmark = pytest.mark.sglang
FILE = (
    "/opt/sglang/.venv/lib/python3.11/site-packages/sglang/srt/model_executor/cuda_graph_runner.py"
)
REQUEST = json.dumps({"input_ids": [511, 5], "sampling_params": {"max_new_tokens": 2}})
SPOOL = "/var/lib/fleetctl/spool/main"


class Loop:
    """fleetctl on the command line against one host, with the time that each command took."""

    def __init__(self, box: Box, home: Path) -> None:
        self.box = box
        self.home = home
        self.seconds: dict[str, float] = {}

    def fleetctl(self, *words: str, code: int = 0, as_json: bool = True) -> list[dict[str, Any]]:
        env = dict(os.environ, FLEETCTL_SITE=str(self.box.lab.site), FLEETCTL_HOME=str(self.home))
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "fleetctl", *words, *(["--json"] if as_json else [])],
            capture_output=True, text=True, check=False, env=env,
        )  # fmt: skip
        self.seconds[" ".join(words[:2])] = time.monotonic() - began
        assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()] if as_json else []

    def sha(self) -> str:
        return self.box.console(f"sha256sum {FILE}").split()[0]

    def crash(self) -> str:
        """Send the request, wait for the end, return the journal of that invocation."""
        show = "systemctl show sglang-main -p InvocationID --value"
        invocation = self.box.console(show).strip()
        self.box.post("/generate", REQUEST)
        kept = f"{SPOOL}/{invocation}/manifest.json"
        self.box.console(f"until [ -e {kept} ]; do sleep 0.1; done")
        return self.box.console(f"journalctl -o cat _SYSTEMD_INVOCATION_ID={invocation}")

    def bundle(self) -> dict[str, Any]:
        """Return patches.json of the newest bundle on the host."""
        newest = f"ls -td {SPOOL}/*/ | head -1"
        found: dict[str, Any] = json.loads(self.box.console(f"cat $({newest})/patches.json"))
        return found


@pytest.fixture
def loop(private_host: Callable[[str], Box], tmp_path: Path) -> Loop:
    return Loop(private_host("sglang:0.5.12.post1+graphcopy"), tmp_path)


def test_the_loop_by_overlay_and_by_edit(loop: Loop, capsys: pytest.CaptureFixture[str]) -> None:
    host = loop.box.name
    original = loop.sha()
    loop.fleetctl("deploy", host, "--profile", "cpu", "--yes")
    log = loop.crash()
    assert "AttributeError: 'NoneType' object has no attribute 'dtype'" in log
    assert "num_token_non_padded" not in log.split("AttributeError")[-1]

    for rung in ("overlay", "edit"):
        (pushed,) = loop.fleetctl(
            "patch", "push", "none-in-foreach-copy", host, "--rung", rung, "--restart", "--yes",
            "--why", "which tensor is None?",
        )  # fmt: skip
        assert [f["path"] for f in pushed["files"]] == [FILE]
        assert (loop.sha() == original) is (rung == "overlay")
        loop.box.wait_until_healthy()
        (status,) = loop.fleetctl("patch", "status", host)
        (patch,) = status["patches"]
        assert (patch["state"], patch["markers"]) == ("active", 0)
        assert patch["result"] is None, "it serves: silence says nothing yet"
        assert patch["silent_means"] == "the None is not in this function"

        log = loop.crash()
        assert "AttributeError: 'NoneType' object has no attribute 'dtype'" in log
        assert '"message": "pair 5 of 6, src None, field num_token_non_padded"' in log
        kept = loop.bundle()
        (told,) = kept["patches"]
        assert told["state"] == "active"
        assert told["last_markers"][-1]["field"] == "num_token_non_padded"
        assert kept["files"][FILE]["original"] == original

        loop.fleetctl("collect", host, code=1)
        (incident, *_) = loop.fleetctl("incidents", "list")
        assert incident["label"]
        bundle = max(loop.home.glob("bundles/*/patches.json"), key=lambda p: p.stat().st_mtime)
        (triage,) = loop.fleetctl("triage", str(bundle.parent), code=1)
        found = triage["captured"]["patch_markers"][-1]
        assert (found["field"], found["index"], found["side"]) == ("num_token_non_padded", 5, "src")
        assert triage["root"]["worker"] == "target"
        lines = {f["function"]: f["line"] for f in triage["root"]["frames"] if f["file"] == FILE}
        assert lines == {"populate_from_forward_batch": 390, "_grouped_foreach_copy_": 124}

        (reverted,) = loop.fleetctl("patch", "revert", "none-in-foreach-copy", host)
        assert reverted["reverted"] == ["none-in-foreach-copy"]
        assert loop.sha() == original
        assert "fleetctl" not in loop.box.console("systemctl cat sglang-main | grep Bind || true")
        ours = sum(loop.seconds[f"patch {verb}"] for verb in ("push", "status", "revert"))
        with capsys.disabled():
            print(f"\n{rung}: push (with restart) + status + revert {ours:.2f} s {loop.seconds}")
    (history,) = loop.fleetctl("patch", "history", host)
    ends = [(h["event"], h["markers"]) for h in history["history"] if h["event"] == "revert"]
    assert [e[0] for e in ends] == ["revert", "revert"]
