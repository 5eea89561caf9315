"""Watch one invocation on its host: journal, unit, endpoint and processes together."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any

from fleetctl.remote import (
    apply,
    host_down,
    journal,
    places,
    probes,
    procs,
    records,
    redact,
    spool,
    unit,
    watch_state,
    web,
)

UNIT_EVERY = 2.0
DYING_EVERY = 0.1  # after a crash, until systemd says that it is over
LIFE_EVERY = 2.0
GPU_EVERY = 10.0
NUDGES = ("Uvicorn running", "fired up and ready", "startup complete")


def _jitter() -> float:
    """Return a number in [0, 1); random itself takes a millisecond to import."""
    return int.from_bytes(os.urandom(2), "big") / 65536


class Prober(threading.Thread):
    """Asks the endpoint that is due, with backoff and jitter, one question at a time."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(daemon=True)
        self.watch = watch
        self.nudge = threading.Event()
        self._attempt = 0

    def run(self) -> None:
        """Ask until the watch is over."""
        while not self.watch.over.is_set():
            due = self.watch.state.due()
            if due is not None:
                self._ask(*due)
            elif self.watch.state.wants_identity():
                self._identify()
            wait = probes.backoff(self._attempt, _jitter())
            if self.nudge.wait(wait):
                self.nudge.clear()
                self._attempt = 0

    def _ask(self, path: str, timeout: float) -> None:
        self.watch.settled.clear()
        answer = self.watch.server.ask("GET", path, timeout)
        self._attempt = 0 if answer.status == 200 else self._attempt + 1
        ours = self.watch.ours() if answer.status is not None else None
        self.watch.put(("answer", answer.status, answer.seconds, ours))
        if answer.status == 200:
            self.watch.settled.wait(1.0)  # the next question depends on what this answer meant
            self.nudge.set()

    def _identify(self) -> None:
        answer = self.watch.server.ask("GET", self.watch.state.probe.identity, probes.QUICK_SECONDS)
        self._attempt += 1
        if answer.status is not None:  # one that refuses to say is there all the same
            info = answer.json() if answer.status == 200 else None
            self.watch.put(("identity", info, self.watch.ours()))


class Watch:
    """The threads that observe, and the loop that feeds the state."""

    def __init__(self, args: dict[str, Any], session: Any) -> None:
        self.args = args
        self.session = session
        self.unit: str = args["unit"]
        self.invocation: str = args["invocation_id"]
        self.server = web.Server(
            procs.local_address(str(args.get("address") or "")),
            int(args["port"]),
            bool(args.get("tls")),
            str(args.get("key") or ""),
        )
        self.cursor: str = (args.get("resume") or {}).get("cursor", "")
        self.state = self._first_state()
        self.over = threading.Event()
        self.settled = threading.Event()
        self._queue: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._unit_at = 0.0
        self._line_at = 0.0
        self._group = ""
        self._main = 0
        self._requests: threading.Thread | None = None
        self._probers: list[Prober] = []

    def _first_state(self) -> watch_state.WatchState:
        args, resume = self.args, self.args.get("resume") or {}
        model = str(args.get("model") or "")
        state = watch_state.WatchState(
            self.invocation,
            probes.probe_for(
                args.get("sglang"),
                shallow_health=bool(args.get("shallow_health")),
                skip_warmup=bool(args.get("skip_warmup")),
                warms_up=bool(args.get("warms_up")),
            ),
            time.monotonic() - float(resume.get("seconds", 0.0)),
            model=model,
            served_name=args.get("served_name"),
            limits=args.get("limits"),
            requests=len(args.get("requests") or ()),
            model_bytes=folder_bytes(model),
            attached=bool(args.get("attached")),
            signs_from=time.time() - 5.0 if args.get("attached") else 0.0,
        )
        if resume.get("phase"):
            state.phases.resume(resume["phase"])
            state.ready_line = bool(resume.get("ready_line"))
            if resume.get("ready"):
                state.was_ready(time.monotonic())
            state.touch(time.monotonic())
        return state

    def put(self, observation: tuple[Any, ...]) -> None:
        """Hand an observation to the loop."""
        self._queue.put(observation)

    def ours(self) -> bool | None:
        """Return whether the unit's own processes listen on the port; None when that cannot be seen."""
        inodes = procs.listeners([self.server.port]).get(self.server.port)
        if not inodes:
            return None
        if procs.socket_holder(inodes, procs.of_cgroup(self._group, self._main)):
            return True
        return False if procs.socket_holder(inodes, procs.all_pids()) else None

    def run(self) -> dict[str, Any]:
        """Watch to the end and return the result."""
        self._follower = self._follow()
        life = threading.Thread(target=self._sample, daemon=True)
        self._look_at_unit()
        if not self.args.get("follow"):  # another node's endpoint tells whether it is ready
            self._probe()
        life.start()
        try:
            while self.state.result is None:
                self._turn()
        finally:
            self.over.set()
            self._nudge()
            self._follower.close()
        result = dict(self.state.result, cursor=self.cursor)
        _redact(result)
        return result

    def _follow(self) -> journal.Follower:
        return journal.Follower(
            self.invocation,
            self.cursor,
            lambda record: self.put(("line", record)),
            lines="5000" if self.args.get("attached") else "all",
        )

    def _probe(self) -> None:
        self._probers.append(Prober(self))
        self._probers[-1].start()

    def _nudge(self) -> None:
        for prober in self._probers:
            prober.nudge.set()

    def _turn(self) -> None:
        if self.session.cancelled():
            self._tell(self.state.interrupted(time.monotonic()))
            return
        if not self._follower.alive():  # journald was restarted, or somebody killed it
            self._follower.close()
            self._follower = self._follow()
        try:
            # A bare traceback, or the lines after a death, are waited for in small steps.
            brief = self.state.hurried() or self.state.crash is not None
            seen = self._queue.get(timeout=0.05 if brief else 0.25)
        except queue.Empty:
            pass
        else:
            self._take(seen)
        now = time.monotonic()
        if now - self._unit_at >= (DYING_EVERY if self.state.crash else UNIT_EVERY):
            self._look_at_unit()
        self._tell(self.state.tick(time.monotonic()))
        if self.state.ready_at is not None and self.state.requests and self._requests is None:
            self._requests = threading.Thread(target=self._send_requests, daemon=True)
            self._requests.start()

    def _take(self, seen: tuple[Any, ...]) -> None:
        now = time.monotonic()
        kind = seen[0]
        if kind == "line":
            self._line(seen[1], now)
        elif kind == "answer":
            self._tell(self.state.answered(seen[1], seen[2], seen[3], now))
            self.settled.set()
        elif kind == "identity":
            if watch_state.ended(unit.show(self.unit), self.invocation):
                self._look_at_unit()  # it answered with its last breath
            else:
                self._tell(self.state.identity(seen[1], now, seen[2]))
        elif kind == "life":
            self._tell(self.state.life(seen[1], now))
        elif kind == "request":
            self._tell(self.state.answered_request(seen[1], now))

    def _line(self, record: dict[str, Any], now: float) -> None:
        self.cursor = str(record.get("__CURSOR") or self.cursor)
        text = journal.message(record)
        manager = "_SYSTEMD_INVOCATION_ID" not in record
        at = int(record.get("__REALTIME_TIMESTAMP") or 0) / 1e6
        events = self.state.line(
            text, record.get("_PID"), at, now, manager, str(record.get("MESSAGE_ID") or "")
        )
        self._line_at = at
        self._tell(events)
        if manager:
            self._look_at_unit()
        elif any(word in text for word in NUDGES):
            # A deep question may be on its way, for a second or more: the line needs none.
            if self.state.line_counts() and len(self._probers) == 1:
                self._probe()
            self._nudge()

    def _look_at_unit(self) -> None:
        self._unit_at = time.monotonic()
        props = unit.show(self.unit)
        self._group = props.get("ControlGroup", "") or self._group
        self._main = int(props.get("MainPID") or 0)
        if props and records.asked_stop(self.invocation):
            self.state.stop_asked = True
        self._tell(self.state.unit(props, time.monotonic()))

    def _sample(self) -> None:
        """Look at the processes every two seconds, at the GPUs every ten."""
        gpu: dict[int, int] = {}
        gpu_at = 0.0
        has_gpu = bool(procs.gpu_bytes())
        while not self.over.wait(LIFE_EVERY):
            if (has_gpu or not gpu_at) and time.monotonic() - gpu_at >= GPU_EVERY:
                gpu, gpu_at = procs.gpu_bytes(), time.monotonic()
            pids = procs.of_cgroup(self._group, self._main)
            self.put(("life", procs.life(pids, gpu)))

    def _send_requests(self) -> None:
        """Send each recorded request in turn; what comes back is told, never its text."""
        for number, request in enumerate(self.args["requests"]):
            if self.over.is_set():
                return
            answer = self.server.ask(
                "POST",
                request.get("path", "/generate"),
                float(request.get("timeout", 120.0)),
                request.get("body"),
            )
            self.put(("request", {
                "number": number + 1, "path": request.get("path", "/generate"),
                "status": answer.status, "error": answer.error,
                "seconds": round(answer.seconds, 3),
            }))  # fmt: skip
            if answer.status is None:
                time.sleep(0.2)

    def _tell(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            _redact(event)
            if event["event"] == "crash":  # journald's time of the newest line, and ours
                event["printed_at"] = records.rfc3339(self._line_at)
                event["seen_at"] = records.now()
            event["cursor"] = self.cursor
            self.session.emit(event)


def _redact(event: dict[str, Any]) -> None:
    """Take secrets out of the texts of a log that leave the host."""
    for name in ("line", "message", "last_line"):
        if isinstance(event.get(name), str):
            event[name] = redact.redact(event[name])
    if isinstance(event.get("crash"), dict):
        _redact(event["crash"])


def folder_bytes(model: str) -> int:
    """Return the size of the weight files in a model's folder, 0 when it is no folder here."""
    total = 0
    try:
        with os.scandir(model) as entries:
            for entry in entries:
                if entry.name.endswith((".safetensors", ".bin", ".gguf", ".pt")):
                    total += entry.stat().st_size
    except OSError:
        return 0
    return total


def secret_key(service: str) -> str:
    """Return the API key that the service was started with, from its own secret config file, or ""."""
    path = os.path.join(places.ETC, places.safe_name(service), "secrets.yaml")
    for line in procs.read(path).splitlines():
        name, mark, value = line.partition(":")
        if mark and name.strip().strip("\"'") == "api-key":
            return value.strip().strip("\"'")
    return ""


def _run(args: dict[str, Any], session: Any) -> dict[str, Any]:
    """Watch, write down what became of the launch, and freeze the evidence of a failure at once."""
    if args.get("lock"):
        apply.hold(args["service"], args["lock"])
    if not args.get("key"):
        args["key"] = secret_key(args["service"])
    if args.get("boot_id") and args["boot_id"] != records.boot_id():
        return _rebooted(args)
    result = Watch(args, session).run()
    host_ends = result["asked_stop"] and unit.going_down()
    if host_ends:
        result.update(error="host-rebooted", asked_stop=False)
    launch = args.get("launch_id")
    if launch and result["state"] != "interrupted":
        records.update_launch(args["service"], launch, _outcome(result))
    if result["state"] in ("failed-start", "crash-loop", "hung", "timed-out"):
        session.emit(
            {"event": "step", "do": "freeze-evidence", "state": "issued", "target": args["unit"]}
        )
        result["bundle"] = spool.freeze(
            args["service"], args["unit"], args["invocation_id"],
            asked=result["asked_stop"], hung=_hangs(result), host_down=host_ends,
        )  # fmt: skip
    apply.let_go()
    return result


def _hangs(result: dict[str, Any]) -> bool:
    """Return whether it stood still; one that a person gave too little time did not."""
    return bool(result["state"] == "hung" or result["error"] == "phase-timeout")


def _rebooted(args: dict[str, Any]) -> dict[str, Any]:
    """The host went down while nobody was connected: what it ran is gone, its journal may not be."""
    service, name, invocation = args["service"], args["unit"], args["invocation_id"]
    with_host = host_down.took(invocation)
    kept = host_down.keep if with_host else spool.freeze
    bundle = kept(service, name, invocation)
    apply.let_go()
    return {
        "state": "failed-start",
        "error": "host-rebooted" if with_host else "crashed",
        "phase": (args.get("resume") or {}).get("phase") or "unknown",
        "seconds": (args.get("resume") or {}).get("seconds", 0.0),
        "ready_seconds": None,
        "asked_stop": False,
        "bundle": bundle,
    }


def _outcome(result: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {"outcome": result["state"], "phase": result["phase"]}
    if result["ready_seconds"] is not None:
        changes["ready_seconds"] = round(result["ready_seconds"], 3)
        changes["ready_at"] = records.now()
    if result["state"] not in ("ready", "ready-wrong-config"):
        changes["ended_at"] = records.now()
    return changes


VERBS = {"run": _run}
