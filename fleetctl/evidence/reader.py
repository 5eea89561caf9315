"""From the bytes of a log in any form to records in the order of time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fleetctl.evidence import carrier, journal, layout, lines, order, prefix, source
from fleetctl.evidence.record import APP, KERNEL, SYSTEMD, UNIT, Evidence, Record
from fleetctl.remote.redact import may_hold, redact

_FILE_HEADER = re.compile(r"==> (.{1,400}) <==\Z")
_NOISE = re.compile(
    r"-- (?:Logs begin|Journal begins|Boot [0-9a-f]{32}|No entries|Reboot) ?.{0,300}--\Z"
)
_SUPPRESSED = re.compile(r"Suppressed (\d{1,12}) messages from")
_KERNEL = re.compile(
    r"(?:<\d>)?\[ *(?:\d{1,10}\.\d{6}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] "
)
_MAIN_PID = re.compile(r"(?:Exec)?MainPID=([1-9]\d{0,9})\Z")
_KERNEL_WORDS = (
    "NVRM:",
    "amdgpu",
    "oom",
    "Out of memory",
    "Killed process",
    "nvidia",
    "AER:",
    "mlx5",
    "usb",
    "SXid",
    "EDAC",
    "traps:",
    "segfault",
)


DIGITS = str.maketrans("123456789", "000000000")  # lines of one shape differ in digits alone


def from_bytes(data: bytes, first_line: int = 1) -> Evidence:
    """Return the evidence of a log that is wholly in memory.

    Args:
        data: decompressed bytes in any of the forms of docs/howto/triage.md.
        first_line: number of the first line, when ``data`` is a window of a longer text.
    """
    evidence = Evidence([])
    if journal.is_export(data):
        evidence.sources.append("journal-export")
        raw = list(journal.records(journal.export_entries(data), evidence))
    elif journal.is_json(data):
        evidence.sources.append("journal-json" if b'"__CURSOR"' in data[:65536] else "json-lines")
        raw = list(journal.records(journal.json_entries(data), evidence))
    else:
        evidence.sources.append("text")
        raw = _text_records(_utf16(data), first_line, evidence)
    records = _split(raw, evidence)
    if prefix.looks_like_srun([r.text for r in records[:200]]):
        for record in records:
            prefix.srun(record)
    for record in records:
        prefix.peel(record)
        if record.origin != KERNEL and _is_kernel(record):
            record.origin = KERNEL
    prefix.unwrap(records)
    evidence.records = _redacted(
        order.oldest_first([r for r in records if not _counted(r, evidence)])
    )
    return evidence


def from_bundle(folder: Path) -> Evidence:
    """Return the joined evidence of a bundle: journal, kernel log and unit state, oldest first.

    Raises:
        source.UnreadableError: the folder is no bundle, or holds nothing that can be read.
    """
    manifest = _json(folder / "manifest.json")
    whole = Evidence([])
    whole.asked_stop = (
        manifest["asked_stop"] if isinstance(manifest.get("asked_stop"), bool) else None
    )
    whole.hung = manifest.get("hung") is True
    whole.host_down = manifest.get("host_down") is True
    whole.versions = {
        k: str(v)
        for k, v in _json(folder / "versions.json").items()
        if isinstance(v, str | int | float)
    }
    whole.patches = _patches(_json(folder / "patches.json"))
    for name in ("journal.jsonl", "journal.txt", "service.log", "kernel.jsonl", "dmesg.txt"):
        path = _first(folder, name)
        if path is None:
            continue
        data, cut = source.read(path)
        part = from_bytes(data)
        if name.startswith(("kernel", "dmesg")):
            _as_kernel(part)
        _join(whole, part, path.name, cut)
    unit = _first(folder, "unit.txt")
    if unit is not None:
        data, _ = source.read(unit)
        text = data.decode("utf-8", "replace")
        whole.records += [
            Record(n, redact(t), origin=UNIT, stream=unit.name)
            for n, t in enumerate(text.splitlines(), 1)
        ]
        whole.sources.append(unit.name)
    if not whole.sources:
        raise source.UnreadableError("is a folder without manifest.json or journal.jsonl")
    _own_processes(whole)
    return whole


def _own_processes(whole: Evidence) -> None:
    """Note the pids that wrote to the invocation's journal, and its main one from the unit's state."""
    spoke = [r for r in whole.records if r.origin in (APP, SYSTEMD)]
    main = (_MAIN_PID.match(r.text) for r in whole.records if r.origin == UNIT)
    whole.pids = frozenset(r.pid for r in spoke if r.origin == APP and r.pid) | {
        m.group(1) for m in main if m
    }
    whole.began = min((r.seconds for r in spoke if r.seconds is not None), default=None)


def is_bundle(folder: Path) -> bool:
    """Return whether a folder looks like an evidence bundle."""
    return any(
        _first(folder, n) is not None for n in ("manifest.json", "journal.jsonl", "journal.txt")
    )


def _first(folder: Path, name: str) -> Path | None:
    candidates = (folder / name, *(folder / f"{name}.{end}" for end in ("zst", "gz", "xz")))
    return next((p for p in candidates if p.is_file()), None)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(source.read(path, 1 << 20)[0])
    except (ValueError, RecursionError, source.UnreadableError):
        return {}
    return value if isinstance(value, dict) else {}


def _patches(said: dict[str, Any]) -> dict[str, Any]:
    """Return patches.json without what is not of its form: a bundle may be anybody's."""
    rows = [
        p | {"files": [f for f in _list(p.get("files")) if isinstance(f, dict)]}
        for p in _list(said.get("patches"))
        if isinstance(p, dict) and isinstance(p.get("name"), str)
    ]
    files = said.get("files")
    entries = files.items() if isinstance(files, dict) else ()
    kept = {k: e for k, e in entries if isinstance(e, dict) and _are_maps(e.get("line_maps"))}
    return said | {"patches": rows, "files": kept}


def _are_maps(value: Any) -> bool:
    """Return whether a value is a list of line maps: lists of pairs of numbers."""
    rows = [row for one in _list(value) for row in (one if isinstance(one, list) else [None])]
    return all(isinstance(row, list) and list(map(type, row)) == [int, int] for row in rows)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_kernel(part: Evidence) -> None:
    for record in part.records:
        record.origin = KERNEL


def _join(whole: Evidence, part: Evidence, name: str, cut: bool) -> None:
    whole.records += part.records
    whole.lines = (whole.lines or 0) + (part.lines or 0)
    whole.suppressed += part.suppressed
    whole.truncated += part.truncated + cut
    whole.sources.append(name)


def _text_records(data: bytes, first_line: int, evidence: Evidence) -> list[Record]:
    stream = ""
    rows: list[tuple[int, str, str]] = []
    number = first_line - 1
    for number, raw in lines.physical(data, first_line):
        text, cut = lines.clean(raw)
        evidence.truncated += cut
        header = _FILE_HEADER.match(text) if text.startswith("==> ") else None
        if header is not None:
            stream = header.group(1)
        elif not (text.startswith("-- ") and _NOISE.match(text)):
            rows.append((number, text.rstrip("\r"), stream))
    evidence.lines = number
    return _joined(_laid_out(rows))


def _laid_out(rows: list[tuple[int, str, str]]) -> list[Record]:
    """Return records without the margin and the breaks that a viewer or a terminal added."""
    if layout.double_spaced([text for _, text, _ in rows]):
        above = ["", *(text for _, text, _ in rows)]
        rows = [
            row
            for row, before in zip(rows, above, strict=False)
            if row[1].strip() or not before.strip()
        ]
    mark = layout.margin([text for _, text, _ in rows])
    texts = [layout.without(text, mark) for _, text, _ in rows] if mark else [t for _, t, _ in rows]
    texts = carrier.without_carrier(carrier.without_markup(texts))
    limit = layout.width(texts)
    found: list[Record] = []
    before = ""
    for (number, _, stream), text in zip(rows, texts, strict=True):
        if limit and found and layout.goes_on(before, text, limit):
            found[-1].text += text
        else:
            found.append(Record(number, text, stream=stream))
        before = text
    return found


def _joined(records: list[Record]) -> list[Record]:
    """Join the parts into which a CRI runtime cut long lines."""
    found: list[Record] = []
    held: Record | None = None
    for record in records:
        part = prefix.cri_part(record.text) if record.text[:2] == "20" else None
        if part is not None and held is not None:
            held.text += part[0]
            held = held if part[1] and len(held.text) < 262_144 else None
            continue
        found.append(record)
        held = record if part is not None and part[1] else None
    return found


def _split(raw: list[Record], evidence: Evidence) -> list[Record]:
    """Cut records that hold several lines: carriage returns, and messages with newlines inside."""
    found: list[Record] = []
    for record in raw:
        text = lines.unescaped(record.text.rstrip("\n"))
        if (
            "\n" not in text
            and "\r" not in text
            and len(text) <= lines.LINE_LIMIT
            and "\x1b" not in text
        ):
            record.text = text
            found.append(record)
            continue
        for line in text.split("\n"):
            cleaned, cut = lines.clean(line.encode("utf-8", "surrogatepass"))
            evidence.truncated += cut
            found += [
                Record(
                    record.line,
                    p,
                    pid=record.pid,
                    stream=record.stream,
                    origin=record.origin,
                    when=record.when,
                    seconds=record.seconds,
                )
                for p in lines.parts(cleaned.rstrip("\r"))
            ]
    return found


def _redacted(records: list[Record]) -> list[Record]:
    """Take secrets out of the texts. Lines that differ in digits alone are asked about once."""
    known: dict[str, bool] = {}
    doubtful: list[Record] = []
    for record in records:
        shape = record.text.translate(DIGITS)
        if shape not in known:
            known[shape] = may_hold(record.text)
        if known[shape]:
            doubtful.append(record)
    if not doubtful:
        return records
    joined = "\n".join(r.text for r in doubtful)
    if "PRIVATE KEY-----" in joined:
        return _redacted_by_line(records)
    pieces = redact(joined).split("\n")
    if len(pieces) != len(doubtful):
        return _redacted_by_line(records)
    for record, text in zip(doubtful, pieces, strict=True):
        record.text = text
    return records


def _redacted_by_line(records: list[Record]) -> list[Record]:
    inside = False
    for record in records:
        if "PRIVATE KEY-----" in record.text:
            inside = "-----BEGIN" in record.text
            record.text = "<redacted:private-key>"
        elif inside and re.match(r"[A-Za-z0-9+/=\s]{1,200}\Z", record.text):
            record.text = "<redacted:private-key>"
        else:
            inside = False
            record.text = redact(record.text)
    return records


def _counted(record: Record, evidence: Evidence) -> bool:
    match = _SUPPRESSED.search(record.text) if "Suppressed " in record.text else None
    if match is not None:
        evidence.suppressed += int(match.group(1))
    return match is not None


def _is_kernel(record: Record) -> bool:
    match = _KERNEL.match(record.text)
    if match is None:
        return False
    rest = record.text[match.end() :]
    if not any(word in rest for word in _KERNEL_WORDS):
        return False
    record.when = record.when or match.group(0)
    record.text = rest
    return True


def _utf16(data: bytes) -> bytes:
    """Turn UTF-16 text, which some log viewers export, into UTF-8."""
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if marked and data[:512].count(0) > len(data[:512]) // 4:
        return data.decode("utf-16", "replace").encode("utf-8", "replace")
    return data
