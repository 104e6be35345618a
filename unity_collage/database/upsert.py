"""Inserts a row or replaces an earlier one, in both dialects: the last writer wins, unless it is less sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Table, and_, not_, or_
from sqlalchemy.dialects import postgresql, sqlite

from . import schema

Row = Mapping[str, Any]


def put_row(connection: Connection, table: Table, row: Row) -> None:
    """Store ``row``; it replaces a row with the same primary key."""
    connection.execute(_upsert(connection, table, only_newer=False), row)


def put_newer(connection: Connection, table: Table, rows: Sequence[Row]) -> int:
    """Store those of ``rows`` that are new or newer; the result is how many were stored."""
    if not rows:
        return 0
    counted = connection.execution_options(preserve_rowcount=True)
    return counted.execute(_upsert(connection, table, only_newer=True), list(rows)).rowcount


def _upsert(connection: Connection, table: Table, only_newer: bool) -> Insert:
    keys = [column.name for column in table.primary_key]
    insert = sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)
    if table in (schema.FINGERPRINTS, schema.WORKLOADS):
        return insert.on_conflict_do_nothing(index_elements=keys)
    new = insert.excluded
    conditions: list[ColumnElement[bool]] = [new.created > table.c.created] if only_newer else []
    if table is schema.COSTS:
        # A refusal that the load of the machine may have caused never replaces a cost.
        conditions.append(or_(new.lasting, table.c.seconds.is_(None)))
    if table in (schema.COSTS, schema.FACTS):
        conditions.append(or_(not_(new.doubtful), table.c.doubtful))
    others = {column.name: new[column.name] for column in table.columns if not column.primary_key}
    return insert.on_conflict_do_update(
        index_elements=keys, set_=others, where=and_(*conditions) if conditions else None
    )
