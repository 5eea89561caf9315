"""What stands on a terminal while several hosts start, as a terminal would show it."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

from fleetctl.cli.deploy_view import View


class Terminal(io.StringIO):
    """Understands what is needed here: return, newline, one line up, the rest of a line gone."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines, row, column = [""], 0, 0
        for piece in re.findall(r"\x1b\[A|\x1b\[K|.|\n", self.getvalue(), re.DOTALL):
            if piece == "\x1b[A":
                row -= 1
                assert row >= 0, "above the first line"
            elif piece == "\x1b[K":
                lines[row] = lines[row][:column]
            elif piece == "\r":
                column = 0
            elif piece == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            else:
                lines[row] = lines[row][:column].ljust(column) + piece + lines[row][column + 1 :]
                column += 1
        return [line for line in lines if line]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    here = SimpleNamespace(
        stderr=found, stdout=io.StringIO()
    )  # pytest puts its own in place in sys
    monkeypatch.setattr("fleetctl.cli.deploy_view.sys", here)
    monkeypatch.setattr("fleetctl.cli.show.sys", here)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "10")
    return found


def shards(host: str, done: int, phase: str = "weight-load") -> dict[str, Any]:
    return {
        "event": "phase", "host": host, "service": "main", "phase": phase, "seconds": 1.0 * done,
        "progress": {"of": "shards", "done": done, "total": 9, "eta": None},
    }  # fmt: skip


def test_each_host_has_a_live_line_of_its_own(terminal: Terminal) -> None:
    view = View(as_json=False)
    for done in range(3):
        view.tell(shards("n1", done))
        view.tell(shards("n2", done + 3))
    assert terminal.screen()[-2:] == [
        "n1/main:     2.0 s  weight-load, 2/9 shards",
        "n2/main:     5.0 s  weight-load, 5/9 shards",
    ]
    assert len(terminal.screen()) == 4, "the begin of each phase stays"


def test_other_lines_stand_above_the_live_ones(terminal: Terminal) -> None:
    view = View(as_json=False)
    for _ in range(2):
        view.tell(shards("n1", 1))
        view.tell(shards("n2", 2))
    view.tell({"event": "warning", "host": "n1", "service": "main", "message": "look"})
    assert [line.split()[0] for line in terminal.screen()[-3:]] == [
        "n1/main:",
        "n1/main:",
        "n2/main:",
    ]
    assert "warning: look" in terminal.screen()[-3]


def test_a_host_that_is_done_has_no_live_line_any_more(terminal: Terminal) -> None:
    from fleetctl.apply.outcome import Outcome, State

    view = View(as_json=False)
    for _ in range(2):
        view.tell(shards("n1", 1))
        view.tell(shards("n2", 2))
    view.done(Outcome("n1", "main", State.READY))
    assert terminal.screen()[-1].startswith("n2/main:")
    view.done(Outcome("n2", "main", State.READY))
    assert len(terminal.screen()) == 2, "nothing but the begin of each phase"


def test_more_hosts_than_lines_are_counted(terminal: Terminal) -> None:
    view = View(as_json=False)
    for _ in range(2):
        for number in range(20):
            view.tell(shards(f"n{number}", 1))
    assert terminal.screen()[-1] == "… and 13 more"
