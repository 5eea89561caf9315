"""What a step found: checks, numbers, notes; the report of all steps of all runs so far."""

from __future__ import annotations

import json
import statistics
import tarfile
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Check:
    """One expectation."""

    what: str
    right: bool
    seen: Any = None


@dataclass
class Record:
    """One step on one host."""

    step: str
    host: str
    why: str = ""
    state: str = "running"  # right | wrong | broken | no time
    seconds: float = 0.0
    checks: list[Check] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    fault: str = ""
    at: float = field(default_factory=time.time)

    def check(self, what: str, right: object, seen: Any = None) -> bool:
        """Note an expectation and whether it was met."""
        self.checks.append(Check(what, bool(right), seen))
        return bool(right)

    def settle(self) -> None:
        """Say whether all was right."""
        if self.state == "running":
            self.state = "right" if self.checks and all(c.right for c in self.checks) else "wrong"


class Report:
    """All records by step; written after each."""

    def __init__(self, kept: Path, out: Path) -> None:
        self.kept = kept
        self.out = out
        self.path = kept / "report.json"
        self._lock = threading.Lock()
        before = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.facts: dict[str, Any] = before.get("facts", {})
        self.records: dict[str, dict[str, Any]] = before.get("steps", {})

    def add(self, record: Record) -> None:
        """Put a record in the place of an earlier one of that step, and write the report."""
        with self._lock:
            self.records[record.step] = asdict(record)
            self.write()

    def write(self) -> None:
        """Write report.json and report.md here and beside the results."""
        for folder in (self.kept, self.out):
            folder.mkdir(parents=True, exist_ok=True)
            body = {"facts": self.facts, "steps": self.records, "summary": self.summary()}
            (folder / "report.json").write_text(json.dumps(body, indent=1, default=str) + "\n")
            (folder / "report.md").write_text("\n".join(self.lines()) + "\n")

    def pack(self, *folders: Path) -> None:
        """Write everything that was kept as one archive."""
        with tarfile.open(self.out / "results.tar.gz", "w:gz") as tar:
            for folder in folders:
                if folder.exists():
                    tar.add(folder, folder.name)

    def numbers(self, name: str) -> list[float]:
        """Return one number of all steps that have it."""
        found = []
        for record in self.records.values():
            value = record["numbers"].get(name)
            found += value if isinstance(value, list) else [value] if value is not None else []
        return found

    def summary(self) -> dict[str, Any]:
        """Return counts and the medians of what has a goal."""
        states = [r["state"] for r in self.records.values()]
        found: dict[str, Any] = {state: states.count(state) for state in sorted(set(states))}
        for name in (
            "deploy overhead",
            "crash line to provisional verdict",
            "crash line to verdict",
        ):
            values = self.numbers(name)
            if values:
                found[name] = {
                    "median": round(statistics.median(values), 3), "max": round(max(values), 3),
                    "n": len(values),
                }  # fmt: skip
        return found

    def lines(self) -> Iterable[str]:
        """Return the report for people."""
        yield "# fleetctl and the real SGLang on a GPU"
        yield ""
        for name, value in self.facts.items():
            yield f"- {name}: {value}"
        yield f"- summary: {json.dumps(self.summary())}"
        yield ""
        yield "| step | host | state | seconds | numbers |"
        yield "| --- | --- | --- | --- | --- |"
        for record in self.records.values():
            numbers = "; ".join(f"{k} {v}" for k, v in record["numbers"].items())
            yield (
                f"| {record['step']} | {record['host']} | {record['state']} | "
                f"{record['seconds']:.1f} | {numbers[:600]} |"
            )
        for record in self.records.values():
            yield ""
            yield f"## {record['step']}: {record['state']}"
            yield ""
            yield record["why"]
            yield ""
            for check in record["checks"]:
                mark = "right" if check["right"] else "WRONG"
                yield f"- {mark}: {check['what']}" + (
                    f" — saw `{check['seen']}`" if check["seen"] is not None else ""
                )
            for incident in record["incidents"]:
                yield f"- incident: `{json.dumps(incident)[:900]}`"
            if record["fault"]:
                yield f"\n```\n{record['fault']}\n```"
