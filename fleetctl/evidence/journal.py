"""Read ``journalctl -o json``, ``json-pretty``, ``json-seq`` and ``export``, and other JSON logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fleetctl.evidence.lines import physical
from fleetctl.evidence.record import APP, KERNEL, SYSTEMD, Evidence, Record

# Where programs other than journald put the text of a JSON line.
_MESSAGE_KEYS = ("MESSAGE", "log", "message", "msg", "line", "text", "body", "textPayload", "event")
# Where a logger puts what was raised, beside the message; and what holds all fields one level down.
_TRACE_KEYS = (
    "exc_info", "exception", "exc_text", "traceback", "stack_trace", "stacktrace", "stack",
    "error.stack_trace", "error",
)  # fmt: skip
_WITHIN = ("fields", "jsonPayload", "log", "record", "attributes", "error", "exception")
_TIME_KEYS = ("time", "timestamp", "ts", "@timestamp", "asctime")
_DROPPED = "a596d6fe7bfa4994828e72309e95d61e"  # journald: messages of a unit were suppressed
_SUPPRESSED = re.compile(r"Suppressed (\d{1,12}) messages")
_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}\Z")
_SEQUENCE = re.compile(r"s=([0-9a-f]{1,64});i=([0-9a-f]{1,16})")
Fields = dict[str, Any]


def json_entries(data: bytes, first: int = 1) -> Iterator[tuple[int, Fields | None]]:
    """Yield each JSON object with its record number; None stands for a line that is no object."""
    number = first - 1
    pending: list[bytes] = []
    for _, raw in physical(data):
        line = raw.strip(b"\x1e\r ")
        if not line:
            continue
        if pending or line == b"{":
            pending.append(line)
            if line not in (b"}", b"},"):
                continue
            line, pending = b"\n".join(pending).rstrip(b","), []
        number += 1
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            yield number, None
            continue
        yield number, value if isinstance(value, dict) else None


def export_entries(data: bytes) -> Iterator[tuple[int, Fields | None]]:
    """Yield each entry of journald's export format with its number; None where it is broken off."""
    number, at, size = 0, 0, len(data)
    fields: Fields = {}
    while at < size:
        end = data.find(b"\n", at)
        end = size if end < 0 else end
        line = data[at:end]
        at = end + 1
        if not line:
            if fields:
                number += 1
                yield number, fields
                fields = {}
            continue
        name, equals, value = line.partition(b"=")
        if equals:
            fields[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
        elif _NAME.match(name) and at + 8 <= size:
            length = int.from_bytes(data[at : at + 8], "little")
            body = data[at + 8 : at + 8 + length]
            fields[name.decode("ascii")] = body.decode("utf-8", "replace")
            at += 8 + length + 1
    if fields:
        yield number + 1, fields


def is_json(data: bytes) -> bool:
    """Return whether the first lines are JSON objects."""
    head = data[:65536].lstrip(b"\xef\xbb\xbf\x1e \r\n")
    if head.startswith((b"{\n", b"{\r\n")):
        return b'"MESSAGE"' in head or b'"__CURSOR"' in head
    if not head.startswith(b"{"):
        return False
    line = head.split(b"\n", 1)[0]
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith((b'{"__CURSOR"', b'{"_', b'{"MESSAGE"')) and b'":' in line
    return isinstance(value, dict) and ("__CURSOR" in value or _text(value) is not None)


def is_export(data: bytes) -> bool:
    """Return whether the text is journald's export format."""
    head = data[:4096].lstrip(b"\n")
    return head.startswith((b"__CURSOR=", b"__REALTIME_TIMESTAMP=")) or (
        b"\n__CURSOR=" in head and b"\nMESSAGE=" in head
    )


def as_text(value: Any) -> str | None:
    """Return a field's text: a string, an array of bytes, or the first of several values."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if value and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            return bytes(value).decode("utf-8", "replace")
        return "\n".join(t for t in map(as_text, value) if t is not None)
    return None if value is None else str(value)


def records(entries: Iterator[tuple[int, Fields | None]], evidence: Evidence) -> Iterator[Record]:
    """Yield the records of journal or JSON entries, ordered by cursor, cut lines joined."""
    rows = [(number, fields) for number, fields in entries]
    evidence.lines = rows[-1][0] if rows else 0
    evidence.truncated += sum(fields is None for _, fields in rows)
    whole = [(number, fields) for number, fields in rows if fields is not None]
    _by_cursor(whole)
    # Docker ends each whole line with a newline; collectors that read its files take it away.
    ends = any(str(fields.get("log", "")).endswith("\n") for _, fields in whole)
    open_by: dict[str, Record] = {}
    for number, fields in whole:
        yield from _records(number, fields, evidence, open_by, ends=ends)
    yield from open_by.values()


def _by_cursor(rows: list[tuple[int, Fields]]) -> None:
    keys = [_SEQUENCE.match(str(fields.get("__CURSOR", ""))) for _, fields in rows]
    if not keys or not all(keys):
        return
    if len({k.group(1) for k in keys if k}) == 1:
        order = {
            number: int(k.group(2), 16) for (number, _), k in zip(rows, keys, strict=True) if k
        }
        rows.sort(key=lambda row: order[row[0]])
    else:
        rows.sort(key=lambda row: _number(row[1].get("__REALTIME_TIMESTAMP")) or 0.0)


def _records(
    number: int, fields: Fields, evidence: Evidence, open_by: dict[str, Record], *, ends: bool
) -> Iterator[Record]:
    record = _record(number, fields, evidence)
    if record is None:
        return
    key = f"{record.stream}#{fields.get('_STREAM_ID', fields.get('stream', ''))}"
    held = open_by.pop(key, None)
    if held is not None:
        held.text += record.text
        record = held
    if _goes_on(fields, record, ends=ends):
        open_by[key] = record
        return
    yield record


def _goes_on(fields: Fields, record: Record, *, ends: bool) -> bool:
    if len(record.text) > 262_144:
        return False
    if "MESSAGE" in fields:
        return fields.get("_LINE_BREAK") == "line-max"
    log = fields.get("log")
    return ends and isinstance(log, str) and "stream" in fields and not log.endswith("\n")


def _record(number: int, fields: Fields, evidence: Evidence) -> Record | None:
    text = _text(fields)
    if fields.get("MESSAGE_ID") == _DROPPED or (text and "Suppressed " in text):
        match = _SUPPRESSED.search(text or "")
        evidence.suppressed += int(fields.get("N_DROPPED") or (match.group(1) if match else 0))
        return None
    if text is None:
        evidence.truncated += 1  # journalctl writes null for a field it found too long
        return None
    pid = as_text(fields.get("_PID") or fields.get("SYSLOG_PID")) or ""
    if str(fields.get("level", "")).lower() in ("fatal", "panic"):
        text = f"level=fatal {text}"
    record = Record(number, text, pid=pid)
    ident = as_text(fields.get("SYSLOG_IDENTIFIER") or fields.get("_COMM")) or ""
    if fields.get("_TRANSPORT") == "kernel" or ident == "kernel":
        record.origin = KERNEL
    elif pid == "1" or (ident.startswith("systemd") and "__CURSOR" in fields):
        record.origin = SYSTEMD
    _time(record, fields)
    if record.origin == APP:
        container = as_text(fields.get("CONTAINER_NAME") or fields.get("container_name")) or ""
        record.stream = f"{as_text(fields.get('_HOSTNAME')) or ''}:{pid}{container}"
    return record


def _text(fields: Fields) -> str | None:
    """Return the message, and below it what a logger kept apart of an exception."""
    if "MESSAGE" in fields or "__CURSOR" in fields:
        return as_text(fields.get("MESSAGE"))
    within = [fields, *(v for k in _WITHIN if isinstance(v := fields.get(k), dict))]
    text = next(
        (t for f in within for k in _MESSAGE_KEYS if (t := _plain(f.get(k))) is not None), None
    )
    if text is None:
        return None
    traces = (t for f in within for k in _TRACE_KEYS if (t := _plain(f.get(k))))
    more = next((t for t in traces if t not in text), "")
    if not more:
        return text
    return f"{text}\n{more}" if "\n" in more else f"{text}: {more}"


def _plain(value: Any) -> str | None:
    return None if isinstance(value, dict) else as_text(value)


def _time(record: Record, fields: Fields) -> None:
    realtime = _number(fields.get("__REALTIME_TIMESTAMP"))
    if realtime is not None:
        record.seconds = realtime / 1e6
        record.when = as_text(fields["__REALTIME_TIMESTAMP"]) or ""
        return
    for key in _TIME_KEYS:
        value = as_text(fields.get(key))
        if value:
            record.when = value
            return


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
