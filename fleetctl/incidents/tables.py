"""The tables of the incident log, for SQLite and PostgreSQL alike."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, MetaData, String, Table, Text

VERSION = 1

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String(32), primary_key=True), Column("value", Text))

# ``body`` is the whole stored object as JSON; the other columns exist to be searched.
launches = Table(
    "launches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("service", String(64), nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Index("launches_by_service", "host", "service", "started_at"),
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("fingerprint", String(80), nullable=False),
    Column("host", String(255), nullable=False),
    Column("service", String(64), nullable=False),
    Column("observed_at", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Index("occurrences_by_group", "fingerprint", "observed_at"),
)

events = Table(
    "events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("fingerprint", String(80), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", String(32), nullable=False),
    Column("by", String(128), nullable=False),
    Column("text", Text, nullable=False),
    Index("events_by_group", "fingerprint"),
)
