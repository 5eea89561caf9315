"""The incident log: SQLite by default, PostgreSQL for a team (``FLEETCTL_STORE=postgresql+psycopg://…``).

Writes are idempotent: ids are derived from content, so two people who fetch the same crash write one row.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, Select, Table, create_engine, event, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from fleetctl.errors import ConfigError, UsageError
from fleetctl.incidents import tables
from fleetctl.incidents.fold import fold
from fleetctl.model.incident import Event, EventKind, Group, Occurrence
from fleetctl.model.launch import LaunchConfig, LaunchRecord

T = TypeVar("T")


class Store:
    """Launches, occurrences and events of one log. Raises ConfigError[incident-log] when it cannot be used."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._place = place
        try:
            tables.metadata.create_all(engine)
            self._check_version()
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def record_launch(self, record: LaunchRecord) -> None:
        """Add a launch, or replace what is known of it (a launch is recorded at its start and at its end)."""
        body = json.dumps(record.to_json(), sort_keys=True)
        row = {
            "id": record.id, "host": record.host, "service": record.service,
            "started_at": record.started_at, "body": body,
        }  # fmt: skip
        if not self._add(tables.launches, row):
            change = (
                update(tables.launches).where(tables.launches.c.id == record.id).values(body=body)
            )
            with self._engine.begin() as connection:
                connection.execute(change)

    def launches(self, host: str | None = None, service: str | None = None) -> list[LaunchRecord]:
        """Return the launches, oldest first, of one host or service where given."""
        query = select(tables.launches.c.body).order_by(tables.launches.c.started_at)
        if host is not None:
            query = query.where(tables.launches.c.host == host)
        if service is not None:
            query = query.where(tables.launches.c.service == service)
        return [launch_from_json(body) for body in self._bodies(query)]

    def launch(self, launch_id: str) -> LaunchRecord | None:
        """Return one launch, or None."""
        query = select(tables.launches.c.body).where(tables.launches.c.id == launch_id)
        return next((launch_from_json(body) for body in self._bodies(query)), None)

    def last_ready(self, host: str, service: str) -> LaunchRecord | None:
        """Return the newest launch that became ready there, or None."""
        ready = [r for r in self.launches(host, service) if r.outcome == "ready"]
        return ready[-1] if ready else None

    def record_occurrence(self, occurrence: Occurrence) -> bool:
        """Add one failed invocation; return False when it was known already."""
        row = {
            "id": occurrence.id, "fingerprint": occurrence.fingerprint, "host": occurrence.host,
            "service": occurrence.service, "observed_at": occurrence.observed_at,
            "body": json.dumps(asdict(occurrence), sort_keys=True),
        }  # fmt: skip
        return self._add(tables.occurrences, row)

    def occurrences(self, fingerprint: str | None = None) -> list[Occurrence]:
        """Return the occurrences, oldest first, of one group where given."""
        query = select(tables.occurrences.c.body).order_by(
            tables.occurrences.c.observed_at, tables.occurrences.c.id
        )
        if fingerprint is not None:
            query = query.where(tables.occurrences.c.fingerprint == fingerprint)
        return [occurrence_from_json(body) for body in self._bodies(query)]

    def occurrence(self, id_or_prefix: str) -> Occurrence:
        """Return the occurrence of that id or unique beginning of one; UsageError otherwise."""
        column = tables.occurrences.c.id
        query = select(tables.occurrences.c.body).where(
            column.startswith(id_or_prefix, autoescape=True)
        )
        found = [occurrence_from_json(body) for body in self._bodies(query.limit(3))]
        exact = [o for o in found if o.id == id_or_prefix]
        if len(exact or found) != 1:
            raise UsageError(
                "unknown-incident" if not found else "ambiguous-incident",
                f"{len(found) or 'no'} incident{'s' if len(found) != 1 else ''} with id {id_or_prefix!r}",
                hint="fleetctl incidents list",
            )
        return (exact or found)[0]

    def add_event(self, said: Event) -> None:
        """Append what somebody said of a group."""
        with self._engine.begin() as connection:
            connection.execute(insert(tables.events).values(**asdict(said)))

    def events(self, fingerprint: str) -> list[Event]:
        """Return the events of one group in the order in which they were written."""
        return self._events([fingerprint])[fingerprint]

    def group(self, fingerprint: str) -> Group:
        """Return the fold of one group; ValueError when nothing of it was seen."""
        return fold(self.occurrences(fingerprint), self.events(fingerprint))

    def groups(self) -> dict[str, Group]:
        """Return every group by fingerprint."""
        by_key: dict[str, list[Occurrence]] = defaultdict(list)
        for occurrence in self.occurrences():
            by_key[occurrence.fingerprint].append(occurrence)
        said = self._events(by_key)
        return {key: fold(seen, said[key]) for key, seen in by_key.items()}

    def _events(self, fingerprints: Iterable[str]) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {key: [] for key in fingerprints}
        query = select(tables.events).order_by(tables.events.c.number)
        with self._engine.connect() as connection:
            for row in connection.execute(query):
                if row.fingerprint in found:
                    found[row.fingerprint].append(
                        Event(row.fingerprint, EventKind(row.kind), row.at, row.by, row.text)
                    )
        return found

    def _add(self, table: Table, row: dict[str, Any]) -> bool:
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(table).values(**row))
        except IntegrityError:
            return False
        except SQLAlchemyError as error:
            raise self._fault(error) from error
        return True

    def _bodies(self, query: Select[tuple[Any]]) -> list[str]:
        try:
            with self._engine.connect() as connection:
                return [str(body) for body in connection.execute(query).scalars()]
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    def _check_version(self) -> None:
        self._add(tables.meta, {"key": "version", "value": str(tables.VERSION)})
        found = self._bodies(select(tables.meta.c.value).where(tables.meta.c.key == "version"))
        if found != [str(tables.VERSION)]:
            raise ConfigError(
                "incident-log-version",
                f"the log has version {', '.join(found)}, this fleetctl writes {tables.VERSION}",
                where=self._place,
                hint="use the fleetctl that wrote it, or another FLEETCTL_HOME",
            )

    def _fault(self, error: SQLAlchemyError) -> ConfigError:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        return ConfigError(
            "incident-log", reason, where=self._place, hint="see FLEETCTL_HOME and FLEETCTL_STORE"
        )


def open_store(path: Path | None = None) -> Store:
    """Open the log: ``path`` (an SQLite file), else FLEETCTL_STORE (a URL), else the operator's own."""
    url = os.environ.get("FLEETCTL_STORE")
    if path is None and url:
        engine = create_engine(url)
        return Store(engine, engine.url.render_as_string(hide_password=True))
    if path is None:
        from fleetctl.config.places import home

        path = home() / "incidents.db"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError as error:
        raise ConfigError(
            "incident-log", error.strerror or str(error), where=str(path), hint="set FLEETCTL_HOME"
        ) from error
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 10})
    event.listen(engine, "connect", _sqlite_settings)
    return Store(engine, str(path))


def _sqlite_settings(connection: Any, _record: Any) -> None:
    """Let many shells of one bastion write at once, and lose nothing at a power cut."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def launch_from_json(text: str) -> LaunchRecord:
    """Return the record of a stored body; fields of a newer version are left out."""
    body = json.loads(text)
    config = _known(LaunchConfig, body["config"])
    fields = {k: body[k] for k in LaunchRecord.__dataclass_fields__ if k in body}
    fields |= {"config": config, "changed": tuple(body.get("changed", ()))}
    return LaunchRecord(**fields)


def occurrence_from_json(text: str) -> Occurrence:
    """Return the occurrence of a stored body; fields of a newer version are left out."""
    body = json.loads(text)
    body["changed_since_ready"] = tuple(body.get("changed_since_ready", ()))
    return _known(Occurrence, body)


def _known(kind: type[T], body: dict[str, Any]) -> T:
    names: Iterable[str] = kind.__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    return kind(**{k: body[k] for k in names if k in body})
