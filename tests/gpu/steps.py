"""The steps: each drives fleetctl on one host, and says what it expected and what it saw."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.gpu.bed import Bed
from tests.gpu.record import Record, Report
from tests.gpu.tool import Done, Tool

HERE = Path(__file__).parent
UNIT = "sglang-main.service"
DEPLOY_SECONDS = 170.0


@dataclass(frozen=True)
class Step:
    """What is taken; ``needs``: not begun with fewer seconds left."""

    take: Callable[[Run], None]
    needs: float
    limit: float


STEPS: dict[str, Step] = {}


def step(
    name: str, needs: float, limit: float = 0.0
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a step. ``needs``: seconds that it usually takes; ``limit``: that it may take."""

    def register(take: Callable[[Run], None]) -> Callable[[Run], None]:
        STEPS[name] = Step(take, needs, limit or 3 * needs)
        return take

    return register


class Run:
    """One step on its way."""

    def __init__(self, host: str, record: Record, tool: Tool, ground: Bed, report: Report) -> None:
        self.host = host
        self.record = record
        self.tool = tool
        self.ground = ground
        self.report = report
        self.check = record.check

    def fleetctl(self, *words: str, limit: float = 60.0) -> Done:
        """Run fleetctl; a command that does not end in time is a wrong check."""
        done = self.tool.run(*words, limit=limit)
        if done.timed_out:
            self.check(f"`fleetctl {' '.join(words)[:80]}` ends within {limit:.0f} s", False)
        return done

    def shell(self, text: str, limit: float = 30.0) -> str:
        """Run a command as root on the host and return its output."""
        done = self.fleetctl("run", self.host, "--become", "--json", "--", text, limit=limit)
        return str(done.last.get("stdout", ""))

    def deploy(self, profile: str, *more: str, limit: float = DEPLOY_SECONDS) -> Done:
        """Deploy and keep the times of its phases."""
        words = ("deploy", self.host, "-p", profile, "--json", "--yes", *more)
        done = self.fleetctl(*words, limit=limit)
        result = done.last
        phases: dict[str, float] = {}
        for _, event in done.objects("phase"):
            phases.setdefault(event["phase"], event["seconds"])
        self.record.numbers["phases"] = phases
        self.record.numbers["deploy"] = round(done.seconds, 2)
        if result.get("state") == "ready" and result.get("ready_seconds"):
            self._overhead(done)
        return done

    def _overhead(self, done: Done) -> None:
        """Note what deploy cost over what SGLang itself took from its start to its ready line."""
        show = f"systemctl show -p ExecMainStartTimestampMonotonic --value {UNIT}"
        ready = f"journalctl -u {UNIT} -o json --no-pager -n 4000 | grep -F 'fired up and ready' | tail -1"
        began, _, line = self.shell(f"{show}; {ready}").partition("\n")
        with contextlib.suppress(ValueError):
            own = (int(json.loads(line)["__MONOTONIC_TIMESTAMP"]) - int(began)) / 1e6
            self.record.numbers["SGLang's own start"] = round(own, 2)
            overhead = done.seconds - own - stopping(done)
            self.record.numbers["deploy overhead"] = round(overhead, 2)

    def ready(self, profile: str, *more: str) -> bool:
        """Deploy what has to become ready."""
        done = self.deploy(profile, *more)
        state = done.last.get("state")
        return self.check(
            f"{profile} becomes ready", done.rc == 0 and state == "ready", state or done.err[-300:]
        )

    def crash(self, profile: str, label: str, *more: str) -> dict[str, Any]:
        """Deploy what has to fail; check the label, note the delays, return the triage."""
        done = self.deploy(profile, *more)
        result = done.last
        self.check(
            "it is seen to fail",
            result.get("state") in ("failed-start", "crash-loop"),
            result.get("state") or done.err[-300:],
        )
        triage = dict(result.get("triage") or {})
        root = triage.get("root") or {}
        self.check(f"label {label}", triage.get("label") == label, triage.get("label"))
        self.check("an incident was made", result.get("incident"), result.get("incident"))
        self.delays(done)
        self.record.incidents.append(
            {
                k: triage.get(k)
                for k in (
                    "label",
                    "phase",
                    "verdict",
                    "signature",
                    "fingerprint",
                    "entity",
                    "captured",
                )
            }
            | {"root": root.get("message", "")[:300], "incident": result.get("incident")}
        )
        return triage

    def delays(self, done: Done) -> None:
        """Note how long after its line was printed the crash was told, and the verdict."""
        for at, event in done.objects("crash")[:1]:
            if event.get("printed_at"):
                printed = datetime.fromisoformat(event["printed_at"]).timestamp()
                self.record.numbers["crash line to provisional verdict"] = round(at - printed, 3)
                for end, _ in done.objects("result")[-1:]:
                    self.record.numbers["crash line to verdict"] = round(end - printed, 3)

    def serving(self) -> bool:
        """Make sure that something serves on the host."""
        status = self.fleetctl("status", self.host, "--json")
        return status.rc == 0 or self.ready("llama")

    def deployed(self) -> None:
        """Make sure that there is a unit, for what needs one; it need not run."""
        if self.shell(f"systemctl show -p LoadState --value {UNIT}").strip() != "loaded":
            self.deploy("llama", "--no-wait")

    def patch(self, *words: str) -> Done:
        """Run ``fleetctl patch``; it has to succeed."""
        done = self.fleetctl("patch", words[0], *words[1:], "--json")
        self.check(f"patch {' '.join(words[:2])}", done.rc == 0, done.err[-300:] or None)
        self.record.numbers[f"patch {' '.join(words[:2])}"] = round(done.seconds, 2)
        return done

    def markers(self, name: str) -> list[dict[str, Any]]:
        """Return what a patch printed, as patch status tells it."""
        done = self.fleetctl("patch", "status", self.host, "--json")
        found: list[dict[str, Any]] = []
        for _, line in done.objects():
            for patch in line.get("patches", []):
                if patch.get("name") == name:
                    found += patch.get("last_markers") or []
        return found


def stopping(done: Done) -> float:
    """Return the seconds that a deploy waited for the server before it to end."""
    steps = [e for _, e in done.objects("step") if e.get("do") in ("stop-unit", "restart-unit")]
    begin = [e["seconds"] for e in steps if e.get("state") == "issued"]
    end = [e["seconds"] for e in steps if e.get("state") == "done"]
    return float(sum(end) - sum(begin)) if len(begin) == len(end) else 0.0


# --- a server that is well ---


@step("facts", needs=5)
def facts(run: Run) -> None:
    """Keep what the GPU, the driver and the kernel say, as they say it."""
    folder = run.tool.kept.parent / "facts"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        "nvidia-smi.txt": "nvidia-smi",
        "nvidia-smi-q.xml": "nvidia-smi -q -x",
        "nvidia-smi-list.txt": "nvidia-smi -L",
        "nvidia-smi-query.csv": "nvidia-smi --query-gpu=index,name,uuid,driver_version,memory.total,memory.used,"
        "pstate,persistence_mode,ecc.errors.uncorrected.volatile.total,pci.bus_id,mig.mode.current,"
        "retired_pages.pending,clocks_throttle_reasons.active,temperature.gpu,power.limit --format=csv",
        "nvidia-smi-topo.txt": "nvidia-smi topo -m",
        "nvidia-smi-nvlink.txt": "nvidia-smi nvlink -s",
        "driver-version.txt": "cat /proc/driver/nvidia/version",
        "driver-gpus.txt": "cat /proc/driver/nvidia/gpus/*/information",
        "kernel-nvidia.txt": "dmesg | grep -iE 'nvidia|nvrm' | tail -40",
        "memory.txt": "cat /proc/meminfo | head -8; df -h / /dev/shm; nproc; uname -a",
    }
    for name, command in wanted.items():
        (folder / name).write_text(run.shell(f"{command} 2>&1"))
    version = run.shell(
        "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; uname -r; "
        "/opt/sglang/.venv/bin/python -c 'import importlib.metadata as m; "
        'print(*[n+" "+m.version(n) for n in ("sglang","torch","triton","transformers")])\''
    )
    run.report.facts["machine"] = " · ".join(version.split("\n")).strip(" ·")
    run.report.facts["fleetctl"] = run.fleetctl("--version").out.strip()
    run.check(
        "the driver tells its version",
        "NVIDIA" in (folder / "nvidia-smi.txt").read_text() or not run.ground.gpu,
    )


@step("doctor", needs=5)
def doctor(run: Run) -> None:
    """Doctor reads the GPU and the driver, and finds nothing wrong with the card."""
    done = run.fleetctl("doctor", run.host, "-p", "llama", "--json", "--facts", limit=40)
    answer = done.last
    run.record.numbers["doctor"] = round(done.seconds, 2)
    (run.tool.kept.parent / "facts").mkdir(parents=True, exist_ok=True)
    (run.tool.kept.parent / "facts" / "doctor.json").write_text(json.dumps(answer, indent=1))
    findings = [f"{f['id']}: {f['message']}" for f in answer.get("findings", [])]
    run.check("it answers", done.rc in (0, 1) and "facts" in answer, done.err[-300:] or None)
    text = json.dumps(answer.get("facts", {}))
    run.check("it sees the card", "H200" in text or not run.ground.gpu)
    run.check(
        "no finding blames the GPU",
        not [f for f in findings if f.startswith(("xid", "ecc", "gpu-"))],
        findings,
    )


@contextlib.contextmanager
def endpoints(url: str, seen: list[dict[str, Any]]) -> Iterator[None]:
    """Ask the server's endpoints five times a second, and note when an answer changes."""
    over = threading.Event()
    began = time.monotonic()
    last: dict[str, str] = {}

    def ask() -> None:
        while not over.wait(0.2):
            for path in ("/health", "/v1/models", "/model_info"):
                answer = status_of(url + path)
                if last.get(path) != answer:
                    last[path] = answer
                    seen.append(
                        {"at": round(time.monotonic() - began, 2), "path": path, "answer": answer}
                    )

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)


def status_of(url: str) -> str:
    """Return the status that a GET comes to, or ``refused``."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError:
        return "refused"


@step("serve", needs=60, limit=200)
def serve(run: Run) -> None:
    """A good profile becomes ready; not before /health says so, whatever the other endpoints say."""
    seen: list[dict[str, Any]] = []
    with endpoints(run.ground.url(run.host), seen):
        run.ready("llama", "--restart")
    run.record.numbers["endpoints"] = [f"{s['at']} {s['path']} {s['answer']}" for s in seen]
    overhead = run.record.numbers.get("deploy overhead")
    run.check("deploy overhead is at most 2 s", overhead is not None and overhead <= 2.0, overhead)


@step("serve-dsv2", needs=60, limit=200)
def serve_dsv2(run: Run) -> None:
    """The model with latent attention and experts becomes ready."""
    run.ready("dsv2", "--restart")


@step("unchanged", needs=5)
def unchanged(run: Run) -> None:
    """The same deploy again changes nothing and says so at once."""
    if not run.serving():
        return
    profile = run.fleetctl("status", run.host, "--json").last.get("profile") or "llama"
    done = run.fleetctl("deploy", run.host, "-p", str(profile), "--json", "--yes", limit=30)
    run.check(
        "unchanged", (done.rc, done.last.get("state")) == (0, "unchanged"), done.last.get("state")
    )
    run.record.numbers["unchanged"] = round(done.seconds, 2)


@step("lint", needs=5)
def lint(run: Run) -> None:
    """A misspelt flag is refused before the restart: what serves goes on serving."""
    ask = f"systemctl show -p InvocationID --value {UNIT}"
    before = run.shell(ask)
    done = run.fleetctl("deploy", run.host, "-p", "misspelt", "--json", "--yes", limit=30)
    run.check("refused", done.last.get("state") == "refused", done.last.get("state"))
    run.check("it names the flag meant", "max-running-requests" in done.out + done.err)
    run.check("the server was not touched", run.shell(ask) == before and before.strip())
    run.record.numbers["refused after"] = round(done.seconds, 2)
    alone = run.fleetctl("lint", "misspelt", "--host", run.host, "--json")
    ids = [f["id"] for f in alone.last.get("findings", [])]
    run.check("lint alone says so too", alone.rc == 1 and "unknown-flag" in ids, ids)


@step("stop", needs=20)
def stop(run: Run) -> None:
    """A stop on purpose is no incident, though SGLang ends it as failed."""
    run.serving()
    done = run.fleetctl("stop", run.host, "--yes", "--json", limit=60)
    run.check("stopped", done.rc == 0, done.err[-300:] or None)
    run.record.numbers["stop"] = round(done.seconds, 2)
    invocation = run.shell(f"systemctl show -p InvocationID --value {UNIT}").strip()
    listed = run.fleetctl("collect", run.host, "--since", "10m", "--json", limit=60)
    mine = [
        o for _, o in listed.objects() if o.get("invocation_id") == invocation and o.get("incident")
    ]
    run.check("no incident of it", not mine, mine or None)


@step("fleet", needs=20)
def fleet(run: Run) -> None:
    """Commands over all hosts at once answer for each."""
    hosts = sorted(run.ground.hosts)
    for words in (("doctor",), ("status",), ("patch", "status")):
        done = run.fleetctl(*words, *hosts, "--json", limit=60)
        answered = sorted({str(o.get("host")) for _, o in done.objects()})
        run.check(f"{' '.join(words)} answers for every host", answered == hosts, answered)
    text = run.fleetctl("run", ",".join(hosts), "--", "uname -r", limit=30)
    run.check("run answers equally on all", text.rc == 0, text.out[-200:])


from tests.gpu import failures  # noqa: E402, F401  registers the other steps
