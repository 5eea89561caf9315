"""What a line of SGLang's log says about the start: phase, progress, and the first sign of a crash.

Pure. Wordings move between releases, so the patterns are loose; 0.4.3 to 0.5.23 were read for them.
"""

from __future__ import annotations

import re
from typing import Any

ORDER = (
    "startup-args",
    "import",
    "dist-init",
    "weight-load",
    "kv-alloc",
    "graph-capture",
    "warmup",
    "serving",
    "shutdown",
)

_PHASES = tuple(
    (re.compile(pattern, re.IGNORECASE), phase)
    for pattern, phase in (
        (r"(?<!\w)server_args=", "import"),
        (r"init torch distributed (?:begin|ends)|nccl warm-?up|memory[ -]baseline", "dist-init"),
        (r"load weight begin|checkpoint shards:", "weight-load"),
        (r"load weight end", "kv-alloc"),
        (r"kv cache is allocated|memory pool end", "kv-alloc"),
        (
            (
                r"capture (?:\w+ ){0,3}(?:cuda|cpu|npu|xpu)? ?graph begin|capturing batches"
                r"|compiling num tokens|capture (?:piecewise )?cuda graph (?:bs|num tokens)"
            ),
            "graph-capture",
        ),
        (r"uvicorn running on|application startup complete", "warmup"),
        (r"fired up and ready to roll", "serving"),
        # The last word of a start on a node beyond the first: no more than that is said there.
        (r"dummy health check server started", "serving"),
        (r"sigterm received|gracefully exiting", "shutdown"),
    )
)
# Lines of the kinds above all hold one of these words: most lines are passed over by one search.
_MAYBE = re.compile(
    r"server_args|distributed|warm-?up|baseline|load weight|shards|kv cache|memory pool|captur|"
    r"compiling|uvicorn|startup complete|fired up|dummy health|sigterm|gracefully",
    re.IGNORECASE,
)
_PROGRESS = (
    (re.compile(r"checkpoint shards:.*?\|\s*(\d+)/(\d+)"), "shards"),
    (re.compile(r"(?:Capturing|Compiling)[^|]*\|[^|]*\|\s*(\d+)/(\d+)"), "captures"),
)
_READY = re.compile(r"(?:\[[^\]]*\] ?)?The server is fired up and ready to roll!")
_OWN_POLL = re.compile(
    r'"(?:GET|POST) /(?:health|health_generate|ready|model_info|get_model_info)(?:\?\S*)? HTTP'
)


def phase_of(text: str) -> str | None:
    """Return the phase that a line begins, or None."""
    if _MAYBE.search(text) is None:
        return None
    for pattern, phase in _PHASES:
        if pattern.search(text):
            return phase
    return None


def progress_of(text: str) -> dict[str, Any] | None:
    r"""Return ``{"of": "shards"|"captures", "done": i, "total": n}`` of the last bar in a line, or None.

    Bars are written with ``\r`` only and reach the journal as one long line at their end.
    """
    if "|" not in text:
        return None
    last = text.replace("\r", "\n").rstrip("\n").rsplit("\n", 1)[-1]
    for pattern, what in _PROGRESS:
        found = pattern.findall(last)
        if found:
            done, total = found[-1]
            return {"of": what, "done": int(done), "total": int(total)}
    return None


def is_ready_line(text: str) -> bool:
    """Return whether SGLang says that it is ready: a log record of its own, not one that quotes it."""
    return _READY.fullmatch(text.rstrip()) is not None


def is_own_poll(text: str) -> bool:
    """Return whether a line is the access log of a health poll: no sign of life."""
    return _OWN_POLL.search(text) is not None


class Phases:
    """The phase of a server from the lines of all its processes: the slowest rank decides."""

    def __init__(self) -> None:
        self._main = "startup-args"
        self._ranks: dict[Any, str] = {}

    def feed(self, text: str, process: Any = None) -> str | None:
        """Take one line; return the server's phase when it changed, else None."""
        before = self.phase
        found = phase_of(text)
        if found is None:
            return None
        if found in ("dist-init", "weight-load", "kv-alloc", "graph-capture"):
            self._ranks[process] = found
        else:
            self._main = found
        return self.phase if self.phase != before else None

    def resume(self, phase: str) -> None:
        """Go on from a phase that was seen before."""
        self._main, self._ranks = phase, {}

    @property
    def phase(self) -> str:
        """Return the phase now."""
        if self._main in ("warmup", "serving", "shutdown") or not self._ranks:
            return self._main
        return min(self._ranks.values(), key=ORDER.index)


# --- the first sign of a crash ---

_STAMP = r"^(?:\[\d{4}-\d\d-\d\d[^\]]*\]\s*)?"
# Each of these is printed by a server that is going down; none is ever the cause.
_DYING = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (
            r"(?i)received sigquit from a child|SIGQUIT received\. signum|kill_process_tree called",
            "sigquit",
        ),
        (
            r"Subprocess \S+ \(pid=\d+\) crashed with exit code -?\d+|scheduler died during init",
            "child-died",
        ),
        (r"Rank \d+ scheduler is dead", "child-died"),
        (r"Initialization failed\.", "initialisation"),
        (r"(?i)watchdog timeout \((?!.*soft=True)", "watchdog"),
        (
            r"^(?:usage: )?\S+(?: serve)?: error: (?:unrecognized|argument|the following|ambig)",
            "arguments",
        ),
        (
            r"^Fatal Python error: |^terminate called after throwing|^Segmentation fault",
            "native",
        ),
        (r"Process group watchdog thread terminated with exception", "nccl"),
    )
)
_DYING_MAYBE = re.compile(
    r"(?i)sigquit|kill_process_tree|crashed with|died|dead|failed\.|watchdog|error: |fatal"
    r"|terminate|segmentation"
)
_TRACE = re.compile(r"Traceback \(most recent call last\):\s*$")
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+), in (.+)$')
_EXCEPTION = re.compile(
    r"^(?:\w+\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure|Iteration)"
    r"(?::|$)|^(?:\w+\.)+[A-Z]\w+: "
)
_HIT = re.compile(r"(?:Scheduler|DetokenizerManager|TokenizerManager|\w+) hit an exception:")
_RANK = re.compile(r"^\[[^\]]*?((?:(?:DP|PP|TP|EP|CP|ATTN)\d+ ?)+)\]")
_LINKS = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)


class Trace:
    """A traceback while it is being printed by one process."""

    def __init__(self, at: float, fatal: bool, logged: bool, ranks: str) -> None:
        self.at = at
        self.fatal = fatal  # SGLang itself says that the scheduler is done
        self.logged = logged  # follows a log record at once: somebody caught it
        self.ranks = ranks
        self.frame: tuple[str, int, str] | None = None
        self.exception = ""
        self.seen = at

    def as_event(self) -> dict[str, Any]:
        """Return the fields of a provisional root."""
        kind, _, message = self.exception.partition(":")
        file, line, function = self.frame or (None, None, None)
        return {
            "kind": "exception",
            "exception_type": kind.strip() or None,
            "message": message.strip(),
            "line": self.exception,
            "file": file,
            "file_line": line,
            "function": function,
            "ranks": [self.ranks] if self.ranks else [],
        }


class CrashSigns:
    """Finds the first record that looks like a root. What it says is provisional; triage settles it."""

    QUIET = 0.35  # seconds without a further line that make a bare traceback look uncaught

    def __init__(self) -> None:
        self._open: dict[Any, Trace] = {}
        self._done: dict[Any, Trace] = {}  # the innermost of a chain, waiting to be confirmed
        self._last: dict[Any, tuple[float, bool]] = {}  # process → when, and was it a log record

    def feed(self, text: str, process: Any, at: float) -> dict[str, Any] | None:
        """Take one record; return a provisional root when it gives one away. ``at``: seconds."""
        found = None
        for line in text.splitlines() or [""]:
            found = self._line(line, process, at) or found
        return found

    def tick(self, now: float) -> dict[str, Any] | None:
        """Return a bare traceback that nothing followed, or None."""
        for process, trace in list(self._done.items()):
            if not trace.logged and now - trace.seen >= self.QUIET and process not in self._open:
                del self._done[process]
                return dict(trace.as_event(), sure=False)
        return None

    def waiting(self) -> bool:
        """Return whether ``tick`` should be asked again soon."""
        return any(not trace.logged for trace in self._done.values())

    def _line(self, line: str, process: Any, at: float) -> dict[str, Any] | None:
        found = None
        if _TRACE.search(line):
            self._begin(line, process, at)
        elif process in self._open:
            found = self._in_trace(self._open[process], line, process, at)
        elif not line.strip() or line.startswith(_LINKS):
            self._still(process, at)
        else:
            found = self._dying(line)
            self._done.pop(process, None)  # it goes on printing: the exception was survived
        self._last[process] = (at, line.startswith("["))
        return found

    def _still(self, process: Any, at: float) -> None:
        if process in self._done:
            self._done[process].seen = at

    def _begin(self, line: str, process: Any, at: float) -> None:
        last_at, last_logged = self._last.get(process, (-1.0, False))
        fatal = _HIT.search(line) is not None or "Capture cuda graph failed" in line
        bare = line.startswith("Traceback")
        logged = not fatal and (not bare or (last_logged and at - last_at < 0.003))
        rank = _RANK.match(line)
        self._still(process, at)
        self._open[process] = Trace(at, fatal, logged, rank.group(1).strip() if rank else "")

    def _in_trace(self, trace: Trace, line: str, process: Any, at: float) -> dict[str, Any] | None:
        trace.seen = at
        self._still(process, at)
        frame = _FRAME.match(line)
        if frame:
            trace.frame = (frame.group(1), int(frame.group(2)), frame.group(3))
            return None
        if line[:1] in (" ", "\t", ""):
            return None
        del self._open[process]
        if not _EXCEPTION.match(line):
            return None
        trace.exception = line.strip()
        if trace.fatal:
            return dict(trace.as_event(), sure=True)
        self._done.setdefault(process, trace)
        return None

    def _dying(self, line: str) -> dict[str, Any] | None:
        if _DYING_MAYBE.search(line) is None:
            return None
        for pattern, kind in _DYING:
            if pattern.search(line):
                return self._blame(line.strip(), kind)
        return None

    def _blame(self, line: str, kind: str) -> dict[str, Any]:
        """Return the traceback that was printed before the process went down, else the line itself."""
        for trace in self._done.values():
            if not trace.logged:
                return dict(trace.as_event(), sure=True)
        rank = _RANK.match(line)
        return {
            "kind": kind,
            "exception_type": None,
            "message": re.sub(_STAMP, "", line),
            "line": line,
            "file": None,
            "file_line": None,
            "function": None,
            "ranks": [rank.group(1).strip()] if rank else [],
            "sure": True,
        }
