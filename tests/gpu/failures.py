"""The steps in which SGLang fails for real, and what fleetctl says of it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from tests.gpu.steps import HERE, UNIT, Run, step

REQUESTS = HERE / "requests"


def request(name: str) -> tuple[str, str]:
    """Return the options that send a recorded request after ready."""
    return "--request", str(REQUESTS / f"{name}.json")


@step("kill-scheduler", needs=25, limit=60)
def kill_scheduler(run: Run) -> None:
    """The scheduler is killed by a signal from outside; nobody watches, collect brings it home."""
    if not run.serving():
        return
    ask = f"systemctl show -p InvocationID --value {UNIT}"
    invocation = run.shell(ask).strip()
    run.shell("pkill -KILL -f 'sglang::[s]cheduler'; sleep 3; systemctl is-active " + UNIT)
    mine: list[dict[str, Any]] = []
    until = time.monotonic() + 25
    while not mine and time.monotonic() < until:
        done = run.fleetctl("collect", run.host, "--since", "15m", "--json", limit=60)
        mine = [o for _, o in done.objects() if o.get("invocation_id") == invocation]
    found = mine[0] if mine else {}
    run.record.incidents.append(
        {k: found.get(k) for k in ("incident", "label", "signature", "verdict", "phase")}
    )
    run.check("the invocation is found", mine)
    run.check("label external-kill", found.get("label") == "external-kill", found.get("label"))
    again = run.fleetctl("collect", run.host, "--since", "15m", "--json", limit=60)
    new = [o for _, o in again.objects() if o.get("new")]
    run.check("a second collect adds nothing", not new, new or None)


@step("cublas-capture", needs=60, limit=200)
def cublas_capture(run: Run) -> None:
    """A cuBLAS handle cannot be made while capturing: the cuBLAS line is the root, the wrapper is not."""
    run.deployed()
    for name in ("capture-guard", "cublas-handle"):
        run.patch("push", name, run.host)
    triage = run.crash("cublas-capture", "cublas-capture", "--keep-patches")
    root = triage.get("root") or {}
    run.check(
        "the root is the cuBLAS line",
        "CUBLAS_STATUS" in root.get("message", ""),
        root.get("message", "")[:200],
    )
    run.check(
        "the phase is the capture", triage.get("phase") == "graph-capture", triage.get("phase")
    )
    wrapped = [
        c for c in triage.get("cascades", []) if "Capture cuda graph failed" in json.dumps(c)
    ]
    run.check(
        "the wrapper is a consequence", wrapped, [c.get("kind") for c in triage.get("cascades", [])]
    )
    guard = run.markers("capture-guard")
    run.check(
        "capture-guard names the call",
        any("cublas_capture" in json.dumps(m) or "mm" in json.dumps(m) for m in guard),
        guard[:1],
    )
    handle = run.markers("cublas-handle")
    run.check(
        "cublas-handle tells of before and of the failure",
        {"before", "failed"} <= {m.get("when") for m in handle},
        handle[:2],
    )
    run.patch("revert", "capture-guard", "cublas-handle", run.host)


@step("foreach-none", needs=60, limit=200)
def foreach_none(run: Run) -> None:
    """A None in the grouped copy at replay: an exception that does not say which field."""
    triage = run.crash("foreach-none", "code-bug", "--restart", *request("three-prompts"))
    root = triage.get("root") or {}
    frames = [f.get("function") for f in root.get("frames", [])]
    run.check("the root is in the grouped copy", "_grouped_foreach_copy_" in frames, frames[-4:])
    run.check("it failed at replay", root.get("step") in ("replay", None), root.get("step"))


@step("named-field", needs=75, limit=220)
def named_field(run: Run) -> None:
    """With a patch pushed, the next crash names the pair and its field; the revert leaves nothing."""
    run.deployed()
    run.patch("push", "none-in-foreach-copy", run.host)
    run.patch("push", "forward-batch-dump", run.host)
    triage = run.crash(
        "foreach-none", "code-bug", "--restart", "--keep-patches", *request("three-prompts")
    )
    text = json.dumps(triage)
    run.check(
        "the incident names the field",
        "num_token_non_padded" in text,
        triage.get("entity") or triage.get("captured"),
    )
    said = run.markers("none-in-foreach-copy")
    run.check("the patch says which pair", "num_token_non_padded" in json.dumps(said), said[:1])
    dumped = run.markers("forward-batch-dump")
    run.check(
        "forward-batch-dump lists the fields of a mode",
        "num_token_non_padded" in json.dumps(dumped),
        json.dumps(dumped[:1])[:300],
    )
    run.patch("revert", run.host)
    status = run.fleetctl("patch", "status", run.host, "--json")
    run.check("no patch is left", not any(o.get("patches") for _, o in status.objects()))


@step("illegal-access", needs=60, limit=200)
def illegal_access(run: Run) -> None:
    """A kernel stores out of range before a matrix product: the fault is named, not where it surfaced."""
    triage = run.crash(
        "illegal-access", "illegal-memory-access", "--restart", *request("long-prompt")
    )
    run.check("Xid 31 was joined", str(captured_xid(triage)) == "31", triage.get("captured"))
    kernel = run.shell("dmesg | grep 'NVRM: Xid' | tail -1")
    pids = run.shell(
        f'journalctl -u {UNIT} -o json --no-pager -n 3000 | grep -oE \'"_PID":"[0-9]+"\' | sort -u'
    )
    found = re.search(r"pid=(\d+)", kernel)
    named = found is not None and f'"{found.group(1)}"' in pids
    run.check("the kernel's pid is one of the unit's", named, kernel.strip()[-200:])


def captured_xid(triage: dict[str, Any]) -> Any:
    """Return the Xid code that triage took out of the kernel log, wherever it stands."""
    return next(iter(re.findall(r'"xid": "?(\d+)', json.dumps(triage))), None) or next(
        iter(re.findall(r"NVRM: Xid \S+ (\d+)", json.dumps(triage))), None
    )


@step("init-none", needs=50, limit=200)
def init_none(run: Run) -> None:
    """A parameter is None after the load: the audit names it, and it is another group than at replay."""
    run.deployed()
    run.patch("push", "init-none-audit", run.host)
    run.crash("init-none", "code-bug", "--restart", "--keep-patches")
    said = run.markers("init-none-audit")
    run.check(
        "the audit names the parameter",
        "input_layernorm.weight" in json.dumps(said),
        json.dumps(said[:1])[:300],
    )
    run.patch("revert", run.host)


@step("groups", needs=3)
def groups(run: Run) -> None:
    """Failures of different causes are different groups, and the same cause is one."""
    done = run.fleetctl("incidents", "list", "--json")
    rows = [o for _, o in done.objects()]
    by_step = {
        name: {i.get("fingerprint") for i in record["incidents"]} - {None}
        for name, record in run.report.records.items()
    }
    if by_step.get("init-none") and by_step.get("foreach-none"):
        run.check(
            "None at init and None at replay are two groups",
            not by_step["init-none"] & by_step["foreach-none"],
        )
    if by_step.get("named-field") and by_step.get("foreach-none"):
        run.check(
            "the crash keeps its group with the patch",
            by_step["named-field"] == by_step["foreach-none"],
            sorted(by_step["named-field"]),
        )
    run.record.numbers["groups"] = sorted({f"{r['label']} {r['fingerprint']}" for r in rows})
    run.check("incidents are listed", rows)


# --- memory ---


@step("oom-kv", needs=45, limit=150)
def oom_kv(run: Run) -> None:
    """Nothing is left for the KV pool: raise the share, the opposite of the other two."""
    run.crash("oom-kv", "kv-pool-too-small", "--restart")


@step("oom-weights", needs=60, limit=200)
def oom_weights(run: Run) -> None:
    """Another process holds the card: the weights do not fit."""
    empty(run)
    put = f"{HERE / 'hog.py'}:/run/hog.py"
    start = "systemd-run --unit=hog --collect /opt/sglang/.venv/bin/python /run/hog.py 4000 150"
    run.fleetctl("run", run.host, "--become", "--put", put, "--", start)
    said = run.shell(
        "for i in $(seq 60); do journalctl -u hog -o cat --no-pager | grep holding && break; sleep .5; done",
        limit=45,
    )
    run.check("the other process holds the memory", "holding" in said, said)
    refused = run.fleetctl("deploy", run.host, "-p", "oom-weights", "--json", "--yes", limit=40)
    run.check(
        "deploy sees the other process and refuses",
        refused.last.get("state") == "refused",
        refused.last.get("state"),
    )
    run.crash("oom-weights", "cuda-oom-weights", "--restart", "--share-gpus")
    run.shell("systemctl stop hog")


@step("oom-capture", needs=60, limit=200)
def oom_capture(run: Run) -> None:
    """The KV pool leaves too little for the graphs."""
    empty(run)
    triage = run.crash("oom-capture", "cuda-oom-graph-capture", "--restart")
    run.check(
        "the phase is the capture", triage.get("phase") == "graph-capture", triage.get("phase")
    )


def empty(run: Run) -> None:
    """Stop every server, and wait until the card is empty."""
    run.fleetctl("stop", *sorted(run.ground.hosts), "--yes", "--json", limit=60)
    wait = "for i in $(seq 40); do [ $(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits) -lt 1500 ] && break; sleep .5; done; nvidia-smi --query-gpu=memory.used --format=csv,noheader"
    run.record.numbers["GPU memory before"] = run.shell(wait).strip()


# --- one of six ---


@step("bisect", needs=240, limit=480)
def bisect(run: Run) -> None:
    """Of six changes one breaks the start: it is found in at most five search trials."""
    empty(run)
    left = min(480.0, max(60.0, run.tool.deadline - time.monotonic() - 5))
    done = run.fleetctl(
        "bisect-flags", run.host, "--good", "llama", "--bad", "six-atoms", "--fast-load", "--json", "--yes",
        f"--max-minutes={left / 60 - 0.5:.1f}", limit=left,
    )  # fmt: skip
    verdict = done.last
    flags = [f for cause in verdict.get("causes", []) for f in cause.get("flags", [])]
    run.check("found", verdict.get("status") == "found", verdict.get("status") or done.err[-300:])
    run.check(
        "it is the attention backend", len(flags) == 1 and "attention-backend" in str(flags), flags
    )
    run.check(
        "both ways were run",
        all(c.get("confirmed") for c in verdict.get("causes", [])) and flags,
        verdict.get("causes"),
    )
    trials = launched(run, Path(str(verdict.get("state_file") or "nowhere")))
    search = sum(t["purpose"] in ("search", "outright", "isolate") for t in trials)
    run.check("in at most five search trials", trials and search <= 5, search)
    run.record.numbers["bisect"] = {k: verdict.get(k) for k in ("trials", "outcomes", "status")}
    run.record.numbers["bisect launches"] = [
        f"{t['purpose']} {t['outcome']} {t['seconds']:.0f} s" for t in trials
    ]
    run.record.numbers["bisect seconds"] = round(done.seconds, 1)


def launched(run: Run, state: Path) -> list[dict[str, Any]]:
    """Return the launches that a bisect wrote down, and keep its state beside the report."""
    if not state.exists():
        return []
    text = state.read_text()
    (run.tool.kept.parent / "bisect.json").write_text(text)
    return [t for t in json.loads(text)["trials"] if not t["cached"] and t["purpose"] != "paid"]
