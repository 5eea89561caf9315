"""What every store keeps: the contract suite."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fleetctl.errors import ConfigError, UsageError
from fleetctl.incidents.store import Store, open_store
from fleetctl.model.incident import Event, EventKind, Status
from tests.incidents.samples import crash, launch


def test_an_occurrence_comes_back_as_it_was_written(store: Store) -> None:
    one = crash("a" * 32, changed_since_ready=("+ep-size=8",))
    assert store.record_occurrence(one)
    assert store.occurrences() == [one]


def test_recording_the_same_invocation_again_changes_nothing(store: Store) -> None:
    assert store.record_occurrence(crash("a" * 32))
    assert not store.record_occurrence(crash("a" * 32))
    assert len(store.occurrences()) == 1


def test_a_group_counts_its_occurrences_and_hosts(store: Store) -> None:
    for invocation, host in (("a", "b300-01"), ("b", "b300-02"), ("c", "b300-02")):
        store.record_occurrence(crash(invocation, host=host))
    store.record_occurrence(crash("d", key="v1:bb"))
    groups = store.groups()
    assert groups["v1:aa"].count == 3
    assert groups["v1:aa"].hosts == ("b300-01", "b300-02")
    assert groups["v1:bb"].count == 1


def test_an_incident_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    one = crash("a")
    store.record_occurrence(one)
    assert store.occurrence(one.id[:6]) == one


@pytest.mark.parametrize(
    ("asked", "reference"),
    [("i-nothing", "unknown-incident"), ("i-", "ambiguous-incident"), ("%", "unknown-incident")],
)
def test_an_id_that_picks_none_or_several_is_refused(
    store: Store, asked: str, reference: str
) -> None:
    store.record_occurrence(crash("a"))
    store.record_occurrence(crash("b"))
    with pytest.raises(UsageError) as caught:
        store.occurrence(asked)
    assert caught.value.reference == reference


def test_a_launch_is_replaced_by_its_end(store: Store) -> None:
    store.record_launch(launch("l-1", outcome="starting"))
    store.record_launch(launch("l-1", outcome="failed-start"))
    assert [r.outcome for r in store.launches()] == ["failed-start"]


def test_the_last_ready_launch_is_the_newest_that_became_ready(store: Store) -> None:
    store.record_launch(launch("l-1", at="2026-11-29T01:00:00Z"))
    store.record_launch(launch("l-2", at="2026-11-29T02:00:00Z"))
    store.record_launch(launch("l-3", at="2026-11-29T03:00:00Z", outcome="failed-start"))
    last = store.last_ready("b300-01", "main")
    assert last is not None
    assert last.id == "l-2"
    assert store.last_ready("b300-01", "other") is None


def test_a_launch_comes_back_equal(store: Store) -> None:
    one = launch("l-1", flags={"tp-size": 8, "cuda-graph-bs": [1, 2]})
    store.record_launch(one)
    assert store.launch("l-1") == one
    assert store.launch("l-9") is None


def test_what_was_said_of_a_group_is_folded_into_it(store: Store) -> None:
    store.record_occurrence(crash("a"))
    for kind, text in (
        (EventKind.ASSIGNED, "ana"),
        (EventKind.COMMENTED, "seen before"),
        (EventKind.LINKED, "https://example.org/1"),
    ):
        store.add_event(Event("v1:aa", kind, "2026-11-29T04:00:00Z", "ben", text))
    group = store.group("v1:aa")
    assert (group.owner, group.links, group.status) == (
        "ana",
        ("https://example.org/1",),
        Status.ACKED,
    )
    assert group.comments[0].text == "seen before"


def test_many_shells_write_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "incidents.db"
    open_store(path).close()

    def write(number: int) -> None:
        own = open_store(path)
        for k in range(10):
            own.record_occurrence(crash(f"{number}-{k}"))
        own.close()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(open_store(path).occurrences()) == 40


def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "incidents.db"
    open_store(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("update meta set value = '99'")
    raw.close()
    with pytest.raises(ConfigError) as caught:
        open_store(path)
    assert caught.value.reference == "incident-log-version"


def test_a_file_that_is_no_database_is_a_fault_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "incidents.db"
    path.write_text("this is not a database, it is a text of some length" * 40)
    with pytest.raises(ConfigError) as caught:
        open_store(path)
    assert caught.value.reference == "incident-log"
    assert str(path) in caught.value.where


def test_a_folder_that_cannot_be_made_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        open_store(tmp_path / "file" / "incidents.db")


def test_the_log_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    open_store(tmp_path / "incidents.db").close()
    assert (tmp_path / "incidents.db").stat().st_mode & 0o077 == 0
