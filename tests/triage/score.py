"""Score triage against labelled logs; printed as a table by ``python -m tests.triage.score``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.model.triage import Triage
from fleetctl.triage import triage_path

ROOT = Path(__file__).parent.parent
SETS = {
    "open": ROOT / "corpus/open",
    "recorded": ROOT / "corpus/recorded",
    "held-out": ROOT / "triage/heldout",
}
# The groups of corpus/open/TAXONOMY.md, for the table.
GROUPS = {
    "GPU memory": "cuda-oom-weights kv-pool-too-small cuda-oom-graph-capture cuda-oom-serving capacity-exhausted"
    " kv-leak-check gpu-memory-occupied host-oom-killed host-mem-insufficient",
    "CUDA run time": "cublas-capture cublas-runtime capture-illegal-op illegal-memory-access device-side-assert"
    " cuda-launch-error no-kernel-image kernel-unsupported gpu-hw-fault cuda-init-fabric driver-mismatch"
    " cuda-device-config",
    "Communication": "nccl-init nccl-nvls nccl-shm nccl-timeout peer-lost dist-rendezvous custom-allreduce"
    " deepep-nvshmem kv-transfer",
    "Build and environment": "jit-toolchain jit-compile import-abi import-missing fs-path port-in-use",
    "Model and arguments": "weights-missing weights-mismatch hub-access model-unsupported tokenizer"
    " quant-unsupported args-invalid parallel-size warmup-failed",
    "Process": "spec-decode code-bug native-crash hang-watchdog hang-healthcheck root-not-in-log",
    "Not a crash": "healthy-startup benign-warning request-error graceful-shutdown external-kill",
}
LABELS = {label: group for group, names in GROUPS.items() for label in names.split()}


@dataclass(slots=True)
class Case:
    """One labelled log."""

    path: Path
    want: dict[str, Any]

    @property
    def labels(self) -> set[str]:
        """The labels that are not wrong."""
        return {self.want["label"], *self.want.get("also_acceptable", ())}

    @property
    def message(self) -> str | None:
        """What the root's message must hold: the failure's, or what the answer rests on."""
        if self.want["label"] == "root-not-in-log":
            return None
        return self.want.get("root_message_contains") or None


@dataclass(slots=True)
class Score:
    """How many of how many were right, and what was wrong."""

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    by_group: dict[str, list[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def share(self, what: str) -> float:
        """Return the share that was right, from 0 to 1."""
        return self.right[what] / self.asked[what] if self.asked[what] else 1.0


def cases(folder: Path) -> Iterator[Case]:
    """Yield the labelled logs of a folder."""
    for line in (folder / "labels.jsonl").read_text("utf-8").splitlines():
        want = json.loads(line)
        yield Case(folder / want["file"], want)


def judge(case: Case, found: Triage) -> dict[str, bool]:
    """Return what was right; keys that the label says nothing of are left out."""
    result = {
        "label": found.label in case.labels,
        "crash": found.crash == case.want["crash"],
        "state": found.state == case.want["state"],
    }
    if "phase" in case.want:
        result["phase"] = found.phase == case.want["phase"]
    if case.message is not None:
        result["root message"] = found.root is not None and case.message in found.root.message
    if case.want["label"] == "root-not-in-log":
        result["no root"] = found.root is None
    if case.want["crash"] and case.want.get("root_ranks") is not None and case.message is not None:
        ranks = set(found.root.ranks) if found.root is not None else set()
        result["root ranks"] = ranks == set(case.want["root_ranks"])
    return result


def score(folder: Path) -> Score:
    """Return the score of one set."""
    total = Score()
    for case in cases(folder):
        found = triage_path(case.path)
        marks = judge(case, found)
        total.asked.update(marks.keys())
        total.right.update(k for k, ok in marks.items() if ok)
        group = total.by_group.setdefault(LABELS[case.want["label"]], [0, 0])
        group[0] += marks["label"]
        group[1] += 1
        bad = [k for k, ok in marks.items() if not ok]
        if bad:
            total.wrong.append(
                f"{case.path.name}: {', '.join(bad)} (says {found.label}, {found.phase})"
            )
    return total


def table(name: str, total: Score) -> str:
    """Return the score as text."""
    lines = [f"{name}: {total.asked['label']} logs"]
    lines += [
        f"  {what:<14}{total.right[what]:>4} of {total.asked[what]:<4}{total.share(what):7.1%}"
        for what in total.asked
    ]
    lines += [
        f"    label, {group:<24}{right:>4} of {asked}"
        for group, (right, asked) in sorted(total.by_group.items())
    ]
    return "\n".join([*lines, *(f"  wrong: {w}" for w in total.wrong)])


def main() -> None:
    """Print the tables of the sets named, or of all."""
    for name in sys.argv[1:] or SETS:
        print(table(name, score(SETS[name])))


if __name__ == "__main__":
    main()
