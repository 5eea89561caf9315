"""What a start has come to, as a step function over observations. Pure: the time comes in with them.

Every method takes one observation and returns the events that it gives rise to; ``result`` is set when
the watch is over.
"""

from __future__ import annotations

from typing import Any, Dict, List

from fleetctl.remote import markers, probes

Events = List[Dict[str, Any]]

STOPPING = "de5b426a63be47a7b6ac3eaac82e2f6f"  # systemd's MESSAGE_ID of "Stopping …"

RESTARTING = ("auto-restart", "auto-restart-queued")  # SubState between an end and the next start

LIMITS: dict[str, Any] = {
    "quiet": 180.0,  # no line, no CPU, no disk read, no GPU memory: it hangs
    "timeout": None,  # the whole wait, when somebody set one
    "after_crash": 15.0,  # from the first sign of a crash to the end of the unit
    "drain": 0.6,  # journald's own delay: lines that come after the unit's end
    "settle": 2.0,  # after the last request
    "hung_answers": 2,  # deep health checks in a row that a ready server does not answer
    # With CPU as the only sign of life, that long from the last real one, by phase.
    "phase": {
        "startup-args": 300.0,
        "import": 600.0,
        "dist-init": 900.0,
        "weight-load": 1800.0,
        "kv-alloc": 900.0,
        "graph-capture": 1800.0,
        "warmup": 900.0,
        "serving": 600.0,
    },
}
LIFE_EVERY = 5.0  # seconds between events that only say that it lives
DEEP_HANG = 15.0  # a deep check that fails after that long is a scheduler that does not answer


class WatchState:
    """One watched invocation."""

    def __init__(
        self,
        invocation: str,
        probe: probes.Probe,
        now: float,
        model: str = "",
        served_name: str | None = None,
        limits: dict[str, Any] | None = None,
        requests: int = 0,
        model_bytes: int = 0,
        attached: bool = False,
        signs_from: float = 0.0,
    ) -> None:
        self.invocation = invocation
        self.probe = probe
        self.model = model
        self.served_name = served_name
        self.limits: dict[str, Any] = dict(LIMITS, **(limits or {}))
        self.requests = requests
        self.model_bytes = model_bytes
        self.attached = attached  # it ran before we looked
        self.signs_from = signs_from  # older lines were survived
        self.began = now
        self.phases = markers.Phases()
        self.signs = markers.CrashSigns()
        self.result: dict[str, Any] | None = None
        self.crash: dict[str, Any] | None = None
        self.stop_asked = False
        self.ready_at: float | None = None
        self.ready_line = False
        self.said_ready = False  # … while we watched: an older line says nothing of now
        self.passed = 0  # probe paths that said 200
        self.answers: list[dict[str, Any]] = []
        self._phase_at = now
        self._strong = now
        self._weak = now
        self._crash_at = 0.0
        self._ended_at: float | None = None
        self._end_props: dict[str, str] = {}
        self._hung = 0
        self._life: dict[str, Any] = {}
        self._life_at = now
        self._told_at = now
        self._settle_at: float | None = None
        self._stranger = False
        self._last_line = ""

    # --- observations ---

    def line(
        self,
        text: str,
        process: Any,
        at: float,
        now: float,
        manager: bool = False,
        message_id: str = "",
    ) -> Events:
        """One record of the journal. ``at`` is when it was written, ``now`` when we saw it."""
        if self.result is not None:
            return []
        if manager:
            self.stop_asked = self.stop_asked or message_id == STOPPING
            return []
        events: Events = []
        if not markers.is_own_poll(text):
            self._strong = now
            self._last_line = text[:300]
        if markers.is_ready_line(text):
            self._said_ready(at)
        changed = self.phases.feed(text, process)
        if changed and self.ready_at is None:
            self._phase_at = now
            events.append(self._phase_event(now))
            self._unsure_is_over()
        progress = markers.progress_of(text)
        if progress and self.ready_at is None:
            events.append(self._phase_event(now, progress))
        if at < self.signs_from:
            return events
        return events + self._sign(self.signs.feed(text, process, at), now)

    def unit(self, props: dict[str, str], now: float) -> Events:
        """The unit's properties."""
        if self.result is not None or not props or self._ended_at is not None:
            return []
        if not ended(props, self.invocation):
            return []
        self._ended_at = now
        self._end_props = props
        return []

    def answered(self, status: int | None, seconds: float, ours: bool | None, now: float) -> Events:
        """The answer to the probe that is due; ``ours`` False: another process listens there."""
        if self.result is not None or self.ready_at is not None:
            return []
        if ours is False and status is not None:
            return self._stranger_answers(now)
        if status == 200:
            self._hung = 0
            self.passed += 1
            return []
        self.passed = 0
        if self.ready_line and (seconds >= DEEP_HANG):
            self._hung += 1
            if self._hung >= self.limits["hung_answers"] and not self.crash:
                return self._finish("hung", "health-hung", now)
        return []

    def identity(self, info: dict[str, Any] | None, now: float, ours: bool | None = None) -> Events:
        """Who the server says that it is; None when it would not say. ``ours`` as in ``answered``."""
        if self.result is not None or self.ready_at is not None:
            return []
        if ours is False:
            return self._stranger_answers(now)
        wrong = probes.wrong_model(info or {}, self.model, self.served_name)
        if wrong:
            return self._finish("ready-wrong-config", "wrong-model", now, message=wrong)
        self.ready_at = now
        self.crash = None
        self._strong = now
        events: Events = [{"event": "ready", "phase": "serving", "seconds": self._since(now)}]
        if not self.requests:
            events += self._finish("ready", None, now)
        return events

    def life(self, sample: dict[str, Any], now: float) -> Events:
        """What the processes of the unit used so far."""
        before, self._life = self._life, sample
        span = max(now - self._life_at, 0.001)
        self._life_at = now
        if self.result is not None or not before:
            return []
        read = sample["read_bytes"] - before["read_bytes"]
        busy = (sample["cpu_seconds"] - before["cpu_seconds"]) / span
        if read > 1 << 20 or abs(sample["gpu_bytes"] - before["gpu_bytes"]) > 1 << 20:
            self._strong = now
        if busy > 0.02:
            self._weak = now
        if self.ready_at is not None or now - self._told_at < LIFE_EVERY:
            return []
        rate = {"read_bytes_per_second": int(max(read, 0) / span), "cpu": round(busy, 2)}
        return [self._phase_event(now, life=dict(sample, **rate))]

    def answered_request(self, answer: dict[str, Any], now: float) -> Events:
        """One of the requests that are sent after ready came back, or failed."""
        self.answers.append(answer)
        self._strong = now
        if len(self.answers) >= self.requests:
            self._settle_at = now + self.limits["settle"]
        if self.result is not None:
            return []
        events = [dict({"event": "request"}, **answer)]
        if answer.get("error") == "timeout" and self.crash is None:
            events += self._finish("hung", "request-timeout", now)
        return events

    def tick(self, now: float) -> Events:
        """Time went by."""
        if self.result is not None:
            return []
        events = self._sign(self.signs.tick(now), now)
        if self._ended_at is not None:
            # What is left of the log is in the bundle anyway; here it only has to tell that it broke.
            told = self.crash is not None or now - self._ended_at >= self.limits["drain"]
            return events + (self._end(now) if told else [])
        if self.crash is not None and now - self._crash_at >= self.limits["after_crash"]:
            if self.crash["sure"]:
                return events + self._finish("failed-start", "crashed", now, still_running=True)
            self._unsure_is_over()
        if self._settle_at is not None and now >= self._settle_at and self.crash is None:
            return events + self._finish("ready", None, now)
        return events + self._late(now)

    def due(self) -> tuple[str, float] | None:
        """Return the path and timeout of the probe to send next, None while no answer would count."""
        if self.result is not None or self.ready_at is not None or self._ended_at is not None:
            return None
        if self.passed >= len(self._paths()) or (self.crash and self.crash["sure"]):
            return None
        return self._paths()[self.passed]

    def line_counts(self) -> bool:
        """Return whether SGLang said that it is ready, and that is a proof."""
        return self.said_ready and self.probe.after_line is not None

    def wants_identity(self) -> bool:
        """Return whether every probe said yes, so that only the identity is missing."""
        proved = self.passed >= len(self._paths())
        said = self.ready_line or not self.probe.ready_line or self.attached
        over = self.ready_at is not None or self.result is not None or self._ended_at is not None
        return proved and said and not over and not (self.crash and self.crash["sure"])

    def hurried(self) -> bool:
        """Return whether something is about to be settled within a fraction of a second."""
        return self._ended_at is not None or self.signs.waiting()

    def touch(self, now: float) -> None:
        """Count from now on: what was before the watch is no silence."""
        self._strong = self._weak = self._phase_at = self._told_at = now

    def was_ready(self, now: float) -> None:
        """Go on from a watch that had seen it ready: only what is left to send is waited for."""
        self.ready_at = now
        if not self.requests:
            self._settle_at = now + self.limits["settle"]

    # --- conclusions ---

    def interrupted(self, now: float) -> Events:
        """The person who waits went away."""
        return self._finish("interrupted", "interrupted", now)

    def _sign(self, found: dict[str, Any] | None, now: float) -> Events:
        if found is None or self.crash is not None or self.stop_asked:
            return []
        if self.phases.phase == "shutdown":
            return []
        self.crash = found
        self._crash_at = now
        return [dict({"event": "crash", "phase": self.phases.phase, "provisional": True}, **found)]

    def _paths(self) -> tuple[tuple[str, float], ...]:
        """Return what has to be asked: less once SGLang has said that its own request was answered."""
        return (self.probe.after_line or ()) if self.line_counts() else self.probe.paths

    def _said_ready(self, at: float) -> None:
        self.ready_line = True
        if at >= self.signs_from and not self.said_ready:
            self.said_ready = True
            self.passed = 0 if self.line_counts() else self.passed

    def _stranger_answers(self, now: float) -> Events:
        if self._stranger:
            return []
        self._stranger = True
        return [self._phase_event(now, note="another process answers on its port")]

    def _unsure_is_over(self) -> None:
        if self.crash is not None and not self.crash["sure"]:
            self.crash = None

    def _end(self, now: float) -> Events:
        props = self._end_props
        if self.stop_asked or props.get("asked"):
            return self._finish("failed-start", "stopped", now)
        replaced = props.get("InvocationID", self.invocation) != self.invocation
        restarts = int(props.get("NRestarts") or 0)
        if props.get("Result") == "start-limit-hit" or restarts >= 2:
            return self._finish("crash-loop", "crash-loop", now, restarts=restarts)
        if replaced and not restarts and self.crash is None:
            return self._finish("failed-start", "replaced", now)
        if self.crash is None and props.get("Result") == "success":
            return self._finish("failed-start", "ended", now)
        return self._finish("failed-start", "crashed", now, restarts=restarts)

    def _late(self, now: float) -> Events:
        limits = self.limits
        if limits["timeout"] is not None and now - self.began >= limits["timeout"]:
            return self._finish("timed-out", "timeout", now)
        if self.ready_at is not None and len(self.answers) < self.requests:
            return []  # each request has its own deadline
        strong = now - self._strong
        if min(strong, now - self._weak) >= limits["quiet"]:
            return self._finish("hung", "silent", now, silent_seconds=round(strong, 1))
        if strong >= limits["phase"].get(self.phases.phase, 1800.0):
            return self._finish("timed-out", "phase-timeout", now, silent_seconds=round(strong, 1))
        return []

    def _finish(self, state: str, error: str | None, now: float, **more: Any) -> Events:
        self.result = dict(
            {
                "state": state,
                "error": error,
                "phase": "serving" if self.ready_at is not None else self.phases.phase,
                "seconds": self._since(now),
                "ready_seconds": None if self.ready_at is None else self.ready_at - self.began,
                "crash": self.crash,
                "asked_stop": self.stop_asked or error == "stopped",
                "last_line": self._last_line,
                "requests": self.answers,
            },
            **more,
        )
        if state in ("ready", "interrupted"):
            return []
        message = more.get("message", "")
        return [{
            "event": "failed", "state": state, "error": error, "phase": self.result["phase"],
            "seconds": self._since(now), "message": message,
        }]  # fmt: skip

    # --- events ---

    def _since(self, now: float) -> float:
        return round(now - self.began, 3)

    def _phase_event(
        self, now: float, progress: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        self._told_at = now
        event = {
            "event": "phase",
            "phase": self.phases.phase,
            "seconds": self._since(now),
            "phase_seconds": round(now - self._phase_at, 3),
        }
        if progress:
            event["progress"] = dict(progress, eta=self._eta(progress, now))
        elif more.get("life") and self.phases.phase == "weight-load" and self.model_bytes:
            event["progress"] = self._bytes(more["life"])
        return dict(event, **more)

    def _eta(self, progress: dict[str, Any], now: float) -> float | None:
        if not progress["done"]:
            return None
        each: float = (now - self._phase_at) / progress["done"]
        left: int = progress["total"] - progress["done"]
        return round(each * left, 1)

    def _bytes(self, life: dict[str, Any]) -> dict[str, Any]:
        done, rate = life["read_bytes"], life["read_bytes_per_second"]
        left = max(self.model_bytes - done, 0)
        eta = round(left / rate, 1) if rate > 0 else None
        return {"of": "bytes", "done": done, "total": self.model_bytes, "eta": eta}


def ended(props: dict[str, str], invocation: str) -> bool:
    """Return whether the watched invocation runs no longer: dead, looping, or replaced."""
    if props.get("InvocationID", invocation) != invocation:
        return True
    if props.get("SubState") in RESTARTING:
        return True
    return props.get("ActiveState") in ("inactive", "failed")
