"""The state of a bisect: it survives being stored, corrected, undone and refined."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleetctl.bisect import verdict as verdicts
from fleetctl.bisect.model import Cause, Outcome, Purpose, Status, Verdict
from fleetctl.bisect.refine import refine
from fleetctl.bisect.space import Space, Switch
from fleetctl.bisect.state import Entry, Hunted, Stage, State
from fleetctl.errors import ConfigError, UsageError
from fleetctl.model.launch import Atom
from fleetctl.report import bisect as report
from fleetctl.report import bisect_page


def switch(name: str, *more: str) -> Switch:
    return Switch(name, tuple(Atom("flag", n, None, "1") for n in (more or (name,))))


def made() -> State:
    space = Space((switch("spec", "spec-a", "spec-b"), switch("ep"), switch("page")))
    state = State(
        "b1",
        "2026-01-01T00:00:00Z",
        "me@here",
        "main",
        ["h1"],
        "tp8",
        "bad",
        "0.5.12",
        [Stage(space)],
    )
    state.hunted = Hunted("v1:x", "boom", "code-bug", "graph-capture", "E|f|m")
    for on, outcome, purpose in (
        (("spec", "ep", "page"), Outcome.SAME, Purpose.CALIBRATE),
        ((), Outcome.PASS, Purpose.CALIBRATE),
        (("spec", "ep"), Outcome.SAME, Purpose.CONFIRM),
        (("ep",), Outcome.PASS, Purpose.SEARCH),
    ):
        state.add(
            Entry(
                0,
                0,
                on,
                purpose.value,
                outcome.value,
                seconds=60.0,
                command=" --".join(["run", *on]),
            )
        )
    return state


def test_the_stored_form_comes_back_whole_with_fields_of_a_newer_fleetctl() -> None:
    body = json.loads(json.dumps(made().to_json())) | {"colour": "blue"}
    again = State.from_json(body)
    assert again.history() == made().history()
    assert json.loads(json.dumps(again.to_json())) == body
    assert body["schema"] == "fleetctl.bisect/1"


@pytest.mark.parametrize(
    "spoil",
    [{"schema": "fleetctl.bisect/2"}, {"schema": None}, {"trials": [{"number": 1}]}, {"stages": 3}],
)
def test_a_state_that_cannot_be_read_is_a_fault_with_a_place(spoil: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as fault:
        State.from_json(made().to_json() | spoil, "/x/b1.json")
    assert fault.value.reference == "bad-bisect-state"
    assert fault.value.where == "/x/b1.json"


def test_a_mark_corrects_a_launch_and_remembers_what_it_was() -> None:
    state = made()
    state.verdict = {"status": "found"}
    entry = state.mark(4, "bad")
    assert (entry.outcome, entry.was, entry.signature) == ("same", "pass", "boom")
    assert state.mark(4, "skip").was == "pass"
    assert state.status == "stopped"
    assert not state.to_json()["verdict"]
    assert state.history()[3].outcome is Outcome.INVALID
    for number, word, reference in ((9, "good", "no-trial"), (1, "meh", "bad-mark")):
        with pytest.raises(UsageError) as fault:
            state.mark(number, word)
        assert fault.value.reference == reference


def test_undo_takes_the_last_launch_back_to_the_very_beginning() -> None:
    state = made()
    assert [state.undo().number for _ in range(4)] == [4, 3, 2, 1]
    assert state.hunted == Hunted()
    with pytest.raises(UsageError, match="no trial"):
        state.undo()


def found(state: State, flags: int, undetermined: int = 0) -> Verdict:
    del state
    return Verdict(
        Status.FOUND, (Cause(flags, undetermined, "early" if undetermined else None, True),), 4
    )


def test_a_guilty_group_is_taken_apart_with_the_rest_of_the_cause_kept_on() -> None:
    state = made()
    assert refine(state, found(state, 3))
    assert [s.name for s in state.space.switches] == ["spec-a", "spec-b"]
    assert [s.name for s in state.stage.base] == ["ep"]
    assert [(o.on, o.outcome, o.purpose) for o in state.history()] == [
        (3, Outcome.SAME, Purpose.CALIBRATE), (0, Outcome.PASS, Purpose.CALIBRATE),
    ]  # fmt: skip
    assert not refine(state, found(state, 3))
    said = verdicts.to_json(state, Verdict(Status.FOUND, (Cause(1, confirmed=True),), 2))
    assert said["causes"][0]["flags"] == ["spec-a", "ep"]
    assert said["innocent"] == ["page", "spec-b"]


@pytest.mark.parametrize(
    ("flags", "open_"), [(2, 0), (3, 4)], ids=["nothing to split", "open flags"]
)
def test_what_cannot_be_refined_stays_as_it_is(flags: int, open_: int) -> None:
    state = made()
    assert not refine(state, found(state, flags, open_))
    assert len(state.stages) == 1


def test_the_verdict_has_the_fields_of_the_contract_and_reads_as_a_sentence() -> None:
    state = made()
    said = verdicts.to_json(state, found(state, 1, 2))
    assert said["trials"] == 4
    assert said["outcomes"] == {"pass": 2, "same": 2, "other": 0, "invalid": 0, "infra": 0}
    (cause,) = said["causes"]
    assert cause == {
        "flags": ["spec"], "undetermined": ["ep"], "masked_by": "early", "signature": "boom",
        "label": "code-bug", "confirmed": True, "confirmed_without": [],
    }  # fmt: skip
    assert verdicts.sentence(said) == (
        "spec brings boom: it crashes with spec and ep alone, and serves once spec is back at its good value."
        " Undetermined: ep, hidden by another failure (early): fix or patch that one and run again.\n"
        "Innocent: page."
    )


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.FOUND])
def test_every_other_end_has_its_sentence(status: Status) -> None:
    state = made()
    said = verdicts.to_json(state, Verdict(status, reason="because", suspects=((3, 0.5),)))
    text = verdicts.sentence(said)
    assert "spec + ep (50%)" in text
    assert text[0].isupper() or text.startswith("bad ")


def test_the_page_stands_alone_and_escapes_what_hosts_said() -> None:
    state = made()
    state.hunted = Hunted("v1:x", "<script>alert(1)</script>", "code-bug", "graph-capture")
    state.verdict = verdicts.to_json(state, found(state, 3))
    page = bisect_page.html(state)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "src=" not in page
    assert page.count('class="cell') == 12
    assert page.count('class="band guilty"') == 2
    assert "<h1>spec + ep bring the crash of bad</h1>" in page
    assert "all but page" in report.text(state)


def test_a_row_says_what_is_off_where_that_is_shorter() -> None:
    names = ["a", "b", "c", "d"]
    assert report.said_set([], names) == "(the good end)"
    assert report.said_set(names, names) == "(the bad end)"
    assert report.said_set(["a", "b", "c"], names) == "all but d"
    assert report.said_set(["a"], names) == "a"
    assert report.said_set(["a", "b", "c"], []) == "a + b + c"


def test_an_end_that_is_skipped_is_launched_again_and_a_trial_between_is_not() -> None:
    state = made()
    assert state.mark(1, "skip").outcome == Outcome.INFRA
    assert state.mark(2, "skip").outcome == Outcome.INFRA
    assert state.mark(4, "skip").outcome == Outcome.INVALID


def test_the_page_says_what_to_do_and_marks_what_only_the_crashing_launch_has() -> None:
    state = made()
    state.add(Entry(0, 0, ("spec", "page"), "confirm", "pass", command="run --spec --page"))
    cause = Cause(2, undetermined=4, masked_by="the other one", confirmed=True)
    state.verdict = verdicts.to_json(state, Verdict(Status.FOUND, (cause,), 1))
    state.trials[2] = replace(state.trials[2], on=("ep", "page"), command="run --ep --page")
    page = bisect_page.html(state)
    assert "To serve with the rest of bad: leave ep out." in page
    assert "page cannot be judged: fix or patch “the other one”, then bisect again." in page
    assert 'run <span class="own">--ep</span> --page' in page
    assert "proved from both sides" in page
    assert "Innocent" not in page
    assert 'class="chip innocent" title="innocent">spec' in page


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.FOUND])
def test_a_page_without_a_cause_says_so_at_its_head(status: Status) -> None:
    state = made()
    state.verdict = verdicts.to_json(state, Verdict(status, reason="because", suspects=((3, 0.5),)))
    page = bisect_page.html(state)
    assert f"<h1>{bisect_page.HEADLINES[status].format(good='tp8', bad='bad')}</h1>" in page
    assert "spec + ep (50%)" in page
    state.verdict = None
    assert "Still looking for what makes bad crash" in bisect_page.html(state)
