"""Take the wrappings off a line: journald, syslog, containers, Ray, loggers, ranks.

Wrappings nest (journald around docker around Ray around SGLang), so they are peeled one by one. No
pattern looks back or repeats inside a repeat: each is linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fleetctl.evidence.clocktext import seconds
from fleetctl.evidence.record import APP, KERNEL, SYSTEMD, Record

_RANKS = re.compile(r"\b(?:[A-Z][A-Z0-9]*_)*(?:TP|DP|PP|EP|CP|SP|DCP|PCP)\d+\b")
_NAMED_RANKS = re.compile(r"(?:^|[_ ])((?:TP|DP|PP|EP|CP|DCP|PCP)\d+|rank=\d+)(?=[_, ]|$)")
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

# ---- containers: who carried the line -------------------------------------------------------------
_ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?[+-]\d\d:?\d\d| [A-Z]{3,5}|Z)?"
_SYSLOG = re.compile(
    r"(?P<when>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|(?:[A-Z][a-z]{2} )?"
    + _ISO_TIME
    + r"|\d{10}\.\d{6}"
    r"|\[ *\d{1,10}\.\d{6}\]) (?P<host>[\w.:-]{1,255}) "
    r"(?:(?P<ident>[^\s:\[\]]{1,64})\[(?P<pid>\d{1,10})\]|(?P<bare>kernel|systemd)): ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_RFC5424 = re.compile(
    r"<\d{1,3}>1 (?P<when>\S{10,40}) (?P<host>\S{1,255}) (?P<ident>\S{1,64}) (?P<pid>\S{1,16}) \S{1,64} "
    r"(?:-|\[[^\]]{0,999}\]) ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_CRI = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d)) (?:stdout|stderr) "
    r"(?P<part>[FP])(?: (?P<rest>.*))?\Z",
    re.DOTALL,
)
_STAMPED = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:\d\d))[ \t]?(?P<rest>.*)\Z",
    re.DOTALL,
)
_BRACKET_TIME = re.compile(
    r"\[(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:[+-]\d\d:?\d\d|Z(?=\] [\w.-]* ?(?:>> )?\()))\] (?P<rest>.*)\Z",
    re.DOTALL,
)
_SHORT_TIME = re.compile(
    r"(?P<when>\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3,6})(?:\t| (?=\S))?(?P<rest>\D.*)\Z", re.DOTALL
)
_COMPOSE = re.compile(
    r"(?P<name>\[?[A-Za-z0-9][\w./-]{0,80}\]?) +(?:\||>>) ?(?P<rest>.*)\Z", re.DOTALL
)
_KUBECTL = re.compile(r"\[pod/(?P<name>[^\]\s]{1,200})\] ?(?P<rest>.*)\Z", re.DOTALL)
_GH = re.compile(
    r"[^\t]{1,120}\t[^\t]{1,120}\t(?P<when>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}Z) ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_RAY = re.compile(
    r"\((?P<name>[\w.:<>-]{1,80}(?:,? (?:rank=\d{1,5},?|[A-Z]{2,4}\d{1,4})){0,4}) pid=(?P<pid>\d{1,10})"
    r"(?:, ip=[\w.:]{1,60})?\) ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_RAY_REPEAT = re.compile(r" \[repeated \d+x across cluster\].{0,200}\Z")
_KIBANA = re.compile(
    r"(?P<when>[A-Z][a-z]{2} \d{1,2}, \d{4} @ \d\d:\d\d:\d\d\.\d{1,6})[ \t]{1,12}(?P<rest>.*)\Z",
    re.DOTALL,
)
_MPI = re.compile(r"\[\d+,(?P<rank>\d+)\]<(?:stdout|stderr)>: ?(?P<rest>.*)\Z", re.DOTALL)
_RANK = re.compile(r"\[(?P<rank>(?:rank|default|Rank |RANK )\d+)\]: ?(?P<rest>.*)\Z", re.DOTALL)

# ---- loggers: how the program marked it -----------------------------------------------------------
_SGLANG = re.compile(
    r"\[(?P<when>(?:\d{4}-\d\d-\d\d[ T]|\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?)"
    r"(?P<extra>(?: [^\]\[]{0,120})?)\] ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_RANK_ALONE = re.compile(
    r"\[(?P<rank>(?:[A-Z]{2,4}(?:_[A-Z]{2,4})?\d{1,4} ?){1,6})\] ?(?P<rest>.*)\Z", re.DOTALL
)
_GPU_ID = re.compile(r"\[(?P<rank>gpu(?:_id)?=\d+)\] ?(?P<rest>.*)\Z", re.DOTALL)
_VLLM = re.compile(
    r"(?P<level>" + _LEVELS + r") (?P<when>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) "
    r"\[?(?P<site>[\w./-]{1,120}:\d{1,6})\] ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_GLOG = re.compile(
    r"\[?(?P<letter>[IWEF])(?P<when>\d{3,8} \d\d:\d\d:\d\d\.\d{1,9}) +(?:\d{1,10} )?"
    r"(?P<site>[\w./-]{1,120}:\d{1,6})\] ?(?P<rest>.*)\Z",
    re.DOTALL,
)
_UVICORN = re.compile(r"(?P<level>" + _LEVELS + r"): {1,8}(?P<rest>.*)\Z", re.DOTALL)
_PYTHON = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{1,6}(?:Z|[+-]\d\d:?\d\d)?)(?: - | \| | )"
    r"(?:(?P<site>[\w.:<>-]{1,120})(?: - | ))?"
    r"\[?(?P<level>" + _LEVELS + r")\]?(?: - | +\| |: | )(?P<rest>.*)\Z",
    re.DOTALL,
)
_NCCL = re.compile(
    r"(?P<host>[\w.-]{1,120}):(?P<pid>\d{1,10}):\d{1,10} \[(?P<rank>\d{1,3})\] (?P<rest>.*)\Z",
    re.DOTALL,
)
# Rust's tracing, and servers that copy its form: the level in five columns, then who speaks.
_TRACING = re.compile(
    r"(?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?) {1,2}"
    r"(?P<level>" + _LEVELS + r"|TRACE) (?P<site>\w[\w.]{0,80}(?:::\w{1,60}){0,8}): "
    r"(?:[\w./-]{1,120}\.(?:rs|py):\d{1,6}: )?(?P<rest>.*)\Z",
    re.DOTALL,
)
_NAMED = re.compile(
    r"\[[A-Z][\w ()-]{1,40}\] (?P<when>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r" - (?P<level>" + _LEVELS + r") - (?P<rest>.*)\Z",
    re.DOTALL,
)
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
# A number of lines that look alike must agree before "3: text" is read as a rank of srun.
_SRUN = re.compile(r" {0,3}(?P<rank>\d{1,4}): (?P<rest>.*)\Z", re.DOTALL)


def peel(record: Record) -> Record:
    """Take all wrappings off ``record.text`` in place, filling the other fields, and return it."""
    for _ in range(8):
        text = record.text
        if not text or not any(step(record) for step in _steps(text[0])):
            break
    if record.seconds is None and record.when:
        record.seconds = seconds(record.when)
    return record


def _steps(first: str) -> tuple[Callable[[Record], bool], ...]:
    if first == "[":
        return _BRACKET
    if first == "(":
        return (_ray,)
    if first == "<":
        return (_rfc5424,)
    if first.isdigit():
        return _DIGIT
    return _LETTER if first.isalpha() else ()


def _syslog(record: Record) -> bool:
    match = _SYSLOG.match(record.text)
    if match is None:
        return False
    ident = match["ident"] or match["bare"]
    record.when = record.when or match["when"].strip("[] ")
    record.pid = match["pid"] or record.pid
    if ident == "kernel":
        record.origin = KERNEL
    elif ident == "systemd" or ident.startswith("systemd-"):
        record.origin = SYSTEMD
    if record.origin == APP and record.pid:
        record.stream = f"{record.stream}|{match['host']}:{record.pid}"
    record.text = match["rest"]
    return True


def _rfc5424(record: Record) -> bool:
    match = _RFC5424.match(record.text)
    if match is None:
        return False
    record.when = record.when or match["when"]
    record.origin = KERNEL if match["ident"] == "kernel" else record.origin
    record.stream = f"{record.stream}|{match['host']}:{match['pid']}"
    record.text = match["rest"]
    return True


def _carrier(pattern: re.Pattern[str]) -> Callable[[Record], bool]:
    def step(record: Record) -> bool:
        match = pattern.match(record.text)
        if match is None:
            return False
        groups = match.groupdict()
        record.when = record.when or groups.get("when") or ""
        if groups.get("name"):
            record.stream = f"{record.stream}|{groups['name']}"
        record.text = groups["rest"] or ""
        return True

    return step


def _ray(record: Record) -> bool:
    match = _RAY.match(record.text)
    if match is None:
        return False
    record.pid = match["pid"]
    record.stream = f"{record.stream}|{match['name']}:{record.pid}"
    ranks = _NAMED_RANKS.findall(match["name"])
    record.rank = record.rank or " ".join(ranks)
    record.text = _RAY_REPEAT.sub("", match["rest"])
    return True


def _ranked(pattern: re.Pattern[str], *, every_line: bool = True) -> Callable[[Record], bool]:
    """A prefix that names the rank; one that stands on every line also tells the streams apart."""

    def step(record: Record) -> bool:
        match = pattern.match(record.text)
        if match is None:
            return False
        record.rank = record.rank or match["rank"]
        if every_line:
            record.stream = f"{record.stream}|{match['rank']}"
        else:
            record.site = ""
        record.text = match["rest"]
        return True

    return step


def _sglang(record: Record) -> bool:
    match = _SGLANG.match(record.text)
    if match is None:
        return False
    record.when = record.when or match["when"]
    record.own = match["when"]
    ranks = _RANKS.findall(match["extra"])
    record.rank = " ".join(ranks) or record.rank
    record.site = ""
    record.text = match["rest"]
    return True


def _logger(pattern: re.Pattern[str]) -> Callable[[Record], bool]:
    def step(record: Record) -> bool:
        match = pattern.match(record.text)
        if match is None:
            return False
        groups = match.groupdict()
        record.when = record.when or groups.get("when") or ""
        record.level = groups.get("level") or _LETTERS[groups["letter"]]
        record.site = groups.get("site") or record.site or ""
        record.text = groups["rest"]
        return True

    return step


def _tracing(record: Record) -> bool:
    """A line of Rust's tracing; its path or its clock in UTC sets it apart from other loggers."""
    match = _TRACING.match(record.text)
    if match is None or not ("::" in match["site"] or match["when"].endswith("Z")):
        return False
    return _tracing_logger(record)


_tracing_logger = _logger(_TRACING)
WRAPPER = "log:"


def unwrap(records: list[Record]) -> None:
    """Take away the site of loggers that print other programs' lines, tracebacks line by line among them."""
    wrappers = {
        r.site
        for r in records
        if r.site and r.site.startswith(WRAPPER) and r.text.lstrip().startswith('File "')
    }
    for record in records:
        if record.site in wrappers:
            record.site = None


def _wrapped_logger(record: Record) -> bool:
    """A Python logger's line. INFO says nothing: starters log every line of the server with it."""
    if not _python_logger(record):
        return False
    record.level = "" if record.level in ("INFO", "DEBUG") else record.level
    record.site = f"{WRAPPER}{record.site or ''}"
    return True


_python_logger = _logger(_PYTHON)


def _nccl(record: Record) -> bool:
    match = _NCCL.match(record.text)
    if match is None:
        return False
    record.rank = match["rank"]
    record.pid = record.pid or match["pid"]
    record.site = "nccl"
    record.text = match["rest"]
    return True


_BRACKET = (
    _carrier(_BRACKET_TIME),
    _sglang,
    _logger(_NAMED),
    _syslog,
    _ranked(_RANK),
    _logger(_GLOG),
    _carrier(_KUBECTL),
    _ranked(_GPU_ID, every_line=False),
    _ranked(_RANK_ALONE, every_line=False),
    _ranked(_MPI),
    _carrier(_COMPOSE),
)
_DIGIT = (
    _syslog,
    _carrier(_CRI),
    _tracing,
    _carrier(_STAMPED),
    _carrier(_SHORT_TIME),
    _wrapped_logger,
    _nccl,
    _carrier(_COMPOSE),
)
_LETTER = (
    _syslog,
    _carrier(_KIBANA),
    _logger(_VLLM),
    _logger(_GLOG),
    _logger(_UVICORN),
    _nccl,
    _carrier(_COMPOSE),
    _carrier(_GH),
)


def cri_part(text: str) -> tuple[str, bool] | None:
    """Return the text and whether it goes on in the next line, when a CRI runtime wrote the line."""
    match = _CRI.match(text)
    return None if match is None else (match["rest"] or "", match["part"] == "P")


def looks_like_srun(texts: list[str]) -> bool:
    """Return whether nearly all lines start with a task number, as ``srun --label`` writes them."""
    told = [t for t in texts if not t.startswith(("srun: ", "slurmstepd: "))]
    return len(told) > 3 and sum(_SRUN.match(t) is not None for t in told) > 0.9 * len(told)


srun = _ranked(_SRUN)
