"""Triage of a bundle: traceback lines of a patched file are those of the original file."""

from __future__ import annotations

import json
from pathlib import Path

from fleetctl.triage import triage_bundle
from fleetctl.triage.patched import findings

FILE = "/opt/v/lib/python3.11/site-packages/sglang/srt/model_executor/cuda_graph_runner.py"
LOG = f"""\
[2026-11-29 16:50:04] Load weight begin. avail mem=21.46 GB
[2026-11-29 16:50:06] The server is fired up and ready to roll!
fleetctl-patch none-in-foreach-copy v1 {{"event": "none", "message": "pair 5 of 6, src None, field \
num_token_non_padded", "index": 5, "field": "num_token_non_padded", "worker": "draft", "step": "replay"}}
[2026-11-29 16:50:14] Scheduler hit an exception: Traceback (most recent call last):
  File "{FILE}", line 481, in populate_from_forward_batch
    _grouped_foreach_copy_(dsts, srcs)
  File "{FILE}", line 215, in _grouped_foreach_copy_
    key = (dst.dtype, src.dtype)
AttributeError: 'NoneType' object has no attribute 'dtype'

[2026-11-29 16:50:14] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
"""


def test_a_patched_file_is_shown_by_its_original_lines(tmp_path: Path) -> None:
    lines = [json.dumps({"MESSAGE": x, "_PID": "7"}) for x in LOG.splitlines()]
    (tmp_path / "journal.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": "fleetctl.bundle/1"}))
    plain = triage_bundle(tmp_path)
    assert plain.root is not None
    assert [f.line for f in plain.root.frames] == [481, 215]
    patches = {
        "schema": "fleetctl.patches/1",
        "patches": [{"name": "none-in-foreach-copy", "state": "active", "files": [{"path": FILE}]}],
        "files": {FILE: {"line_maps": [[[1, 1], [115, 0], [206, 115], [1583, 0], [1586, 1492]]]}},
    }
    (tmp_path / "patches.json").write_text(json.dumps(patches))
    mapped = triage_bundle(tmp_path)
    assert mapped.root is not None
    assert [f.line for f in mapped.root.frames] == [390, 124]
    assert mapped.fingerprint == plain.fingerprint
    assert (mapped.root.worker, mapped.root.step) == ("draft", "replay")
    assert [p["name"] for p in mapped.captured["patches"]] == ["none-in-foreach-copy"]
    pushed = "fleetctl patch push none-in-foreach-copy"
    assert not any(pushed in (a.command or "") for a in mapped.advice), "it has spoken already"
    assert findings(mapped.captured) == [
        "none-in-foreach-copy: pair 5 of 6, src None, field num_token_non_padded"
    ]
    (marker,) = mapped.captured["patch_markers"]
    assert marker["field"] == "num_token_non_padded"
