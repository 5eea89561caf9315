"""What one attempt to run the server came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.evidence.exceptions import Raised
from fleetctl.model.triage import Phase, State, Verdict
from fleetctl.triage.candidate import Board, Candidate
from fleetctl.triage.story import Story


@dataclass(slots=True)
class Answer:
    """What one attempt came to, with everything that was weighed."""

    crash: bool
    state: State
    label: str
    phase: Phase
    verdict: Verdict
    root: Candidate | None = None
    seen: Candidate | None = None  # without a crash: the record on which the answer rests
    candidates: list[Candidate] = field(default_factory=list)
    known: Board = field(default_factory=Board)
    story: Story = field(default_factory=Story)
    chains: dict[int, list[Raised]] = field(default_factory=dict)
    why: str = ""
