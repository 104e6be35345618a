"""Exports databases as JSON lines, imports them, and merges them into another database.

The first line of a file is a header. Each other line is a row, ``{"table": "costs", "key": ..., ...}``, ordered by key,
so that two exports can be compared line by line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Column, Table, func, select

from ..errors import DatabaseError
from . import schema
from .costs import CostDatabase
from .rows import FailureKind
from .upsert import put_newer

Contents = Mapping[str, list[dict[str, Any]]]
"""All rows of a database, by the name of their table in ``schema.CONTENT``."""

_HEADER = {"unity_collage": "costs", "schema": schema.SCHEMA_VERSION}


_INTEGERS = 1 << 31
"""The first number that an integer of PostgreSQL cannot hold."""


@dataclass(frozen=True, slots=True)
class Merged:
    """How many rows of one table were offered, added and replaced."""

    content: str
    offered: int
    added: int
    replaced: int

    @property
    def kept(self) -> int:
        """How many rows were there already with the same or a later time."""
        return self.offered - self.added - self.replaced


def contents(database: CostDatabase) -> Contents:
    """All rows of ``database``."""
    return {name: database.rows(table) for name, table in schema.CONTENT.items()}


def to_lines(rows: Contents) -> Iterator[str]:
    """``rows`` as JSON lines, without line ends."""
    yield json.dumps(_HEADER)
    for name, of_table in rows.items():
        for row in of_table:
            yield json.dumps({"table": name, **row}, ensure_ascii=False, allow_nan=False)


def from_lines(lines: Iterable[str], name: str) -> Contents:
    """The rows in JSON lines; raises DatabaseError with the line of the file ``name`` that is wrong, and why."""
    rows: dict[str, list[dict[str, Any]]] = {content: [] for content in schema.CONTENT}
    number = 0
    for number, line in enumerate(lines, 1):
        data = _parsed(line)
        reason = _why_no_header(data) if number == 1 else _why_no_row(data)
        if data is None or reason is not None:
            raise DatabaseError(f"{name}, line {number}: {reason}")
        if number > 1:
            rows[data.pop("table")].append(data)
    if number == 0:
        raise DatabaseError(f"{name} is empty")
    return rows


def merge(into: CostDatabase, rows: Contents) -> list[Merged]:
    """Store the ``rows`` that are new or newer; after an error none of them."""
    with into.writing() as connection:
        done: list[Merged] = []
        for name, of_table in rows.items():
            table = schema.CONTENT[name]
            count = select(func.count()).select_from(table)
            before = connection.execute(count).scalar_one()
            taken = put_newer(connection, table, of_table)
            added = connection.execute(count).scalar_one() - before
            done.append(Merged(name, len(of_table), added, taken - added))
    return done


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return cast(dict[str, Any], data) if isinstance(data, dict) else None


def _why_no_header(data: dict[str, Any] | None) -> str | None:
    if data is None or data.get("unity_collage") != "costs":
        return "this is not an export of a cost database, as db export writes it"
    if data != _HEADER:
        return f"it has schema {data.get('schema')}, and this version of unity_collage has {schema.SCHEMA_VERSION}"
    return None


def _why_no_row(data: dict[str, Any] | None) -> str | None:
    if data is None:
        return "it is not a JSON object"
    table = schema.CONTENT.get(str(data.get("table")))
    if table is None:
        return f"there is no table {data.get('table')!r}"
    if set(data) != {"table", *table.columns.keys()}:
        return f"a row of {data['table']} has the fields {', '.join(table.columns.keys())}"
    wrong = (column.name for column in table.columns if not _fits(column, data[column.name]))
    if (name := next(wrong, None)) is not None:
        return f"{name} cannot be {data[name]!r}"
    return _why_not_whole(table, data)


def _fits(column: Column[Any], value: object) -> bool:
    """Whether ``value`` has the column's type; numbers must be finite and not negative."""
    if value is None:
        return bool(column.nullable)
    kind = column.type.python_type
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value) is kind
    return (kind is float or isinstance(value, kind)) and 0 <= value < (
        _INTEGERS if kind is int else math.inf
    )


def _why_not_whole(table: Table, data: Mapping[str, Any]) -> str | None:
    if table is schema.QUARANTINE and data["kind"] not in {kind.value for kind in FailureKind}:
        return f"kind cannot be {data['kind']!r}"
    if table is schema.COSTS and data["seconds"] is None and not data["reason"]:
        return "there is neither a cost nor a reason"
    return None
