"""The tables of a cost database.

Names start with ``collage_``, since a team's PostgreSQL may hold other tables too. Long texts that many rows share
(fingerprints, functions) are rows of their own under their digest, written once and never changed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

SCHEMA_VERSION = 3
"""Part of the name of the user's default file, and the row of ``collage_schema``."""

METADATA = MetaData()


def _text(name: str, primary_key: bool = False) -> Column[Any]:
    return Column(name, String if primary_key else Text, primary_key=primary_key, nullable=False)


def _number(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, Double, nullable=nullable)


def _flag(name: str) -> Column[Any]:
    return Column(name, Boolean, nullable=False)


SCHEMA = Table(
    "collage_schema", METADATA, Column[Any]("version", Integer, primary_key=True, autoincrement=False)
)

FINGERPRINTS = Table("collage_fingerprints", METADATA, _text("digest", True), _text("text"))

WORKLOADS = Table("collage_workloads", METADATA, _text("digest", True), _text("text"))

COSTS = Table(
    "collage_costs",
    METADATA,
    _text("key", True),
    _text("fingerprint", True),
    _text("label"),
    _text("backend"),
    _number("seconds", nullable=True),
    _number("low"),
    _number("high"),
    Column[Any]("runs", Integer, nullable=False),
    _text("reason"),
    _flag("lasting"),
    _text("workload"),
    _flag("doubtful"),
    _number("created"),
)

QUARANTINE = Table(
    "collage_quarantine",
    METADATA,
    _text("key", True),
    _text("version", True),
    _text("label"),
    _text("backend"),
    _text("kind"),
    _text("reason"),
    _number("created"),
)

FACTS = Table(
    "collage_facts",
    METADATA,
    _text("name", True),
    _text("fingerprint", True),
    _text("value"),
    _flag("doubtful"),
    _number("created"),
)

CONTENT = {
    table.name.removeprefix("collage_"): table
    for table in (COSTS, QUARANTINE, FACTS, FINGERPRINTS, WORKLOADS)
}
"""The tables that are exported and merged. Rows come before the texts that they refer to, so that no text is missing
when other processes write in between."""

_FIRST_VERSION = "costs"
"""The only table of schema 1, which had no version row."""


def why_not_ours(connection: Connection) -> str | None:
    """Why costs cannot be stored in this database, or None; an empty database is fine."""
    tables = inspect(connection).get_table_names()
    if SCHEMA.name in tables:
        version = connection.execute(select(SCHEMA.c.version)).scalar()
        return None if version == SCHEMA_VERSION else _another(version)
    if connection.dialect.name == "sqlite" and tables:
        return (
            _another(1) if tables == [_FIRST_VERSION] else f"it holds something else: {', '.join(tables[:3])}"
        )
    return None


def is_empty(connection: Connection) -> bool:
    """Whether our tables do not exist yet."""
    return not inspect(connection).has_table(SCHEMA.name)


def create(connection: Connection) -> None:
    """Create our tables unless another process has done so; the caller's transaction holds a lock."""
    if is_empty(connection):
        METADATA.create_all(connection)
        connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))


def _another(version: object) -> str:
    return (
        f"it was written with schema {version}, and this version of unity_collage has schema {SCHEMA_VERSION}"
    )
