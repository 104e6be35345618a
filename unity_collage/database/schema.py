"""The tables, and what makes a database one of ours.

Names start with ``collage_``, since a team's PostgreSQL may hold other tables too. Long texts that many rows
share (fingerprints, functions) are rows of their own, named by their digest: written once, never changed.
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

SCHEMA_VERSION = 2
"""Part of the name of the user's own file, and a row of ``collage_schema``."""

METADATA = MetaData()


def _text(name: str, primary_key: bool = False) -> Column[Any]:
    return Column(name, String if primary_key else Text, primary_key=primary_key, nullable=False)


def _number(name: str, nullable: bool = False) -> Column[Any]:
    return Column(name, Double, nullable=nullable)


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
    Column[Any]("lasting", Boolean, nullable=False),
    _text("workload"),
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
    _number("created"),
)

CONTENT = {
    table.name.removeprefix("collage_"): table
    for table in (COSTS, QUARANTINE, FACTS, FINGERPRINTS, WORKLOADS)
}
"""What is exported, merged and counted. Rows are read and written before the texts that they name: a text is
then never missing, whatever other processes do in between."""

_FIRST_VERSION = "costs"
"""The only table of schema 1, which had no version row."""


def why_not_ours(connection: Connection) -> str | None:
    """Why costs cannot be kept beside the tables that are here, or None; an empty database is fine."""
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
    """Whether our tables have not been made here."""
    return not inspect(connection).has_table(SCHEMA.name)


def create(connection: Connection) -> None:
    """Make our tables, unless another process has been faster; the caller's transaction holds a lock."""
    if is_empty(connection):
        METADATA.create_all(connection)
        connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))


def _another(version: object) -> str:
    return (
        f"it was written with schema {version}, and this version of unity_collage has schema {SCHEMA_VERSION}"
    )
