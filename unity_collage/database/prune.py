"""Finds and removes the rows of a database that are not needed any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, or_, select, union

from . import schema
from .costs import CostDatabase
from .location import lock_rows
from .rows import without_target

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Doomed:
    """The rows that a prune removes."""

    costs: tuple[Row, ...]
    quarantine: tuple[Row, ...]
    facts: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Prune:
    """What to remove: every row that one of these fields selects."""

    before: float | None = None
    """All rows that are older, in seconds since the epoch."""
    fingerprints: Set[str] = frozenset()
    """Costs and facts with these digests of fingerprints."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Quarantine entries of these backends with another version than this."""
    kinds: Set[str] = frozenset()
    """Quarantine entries of these kinds; the kernels are measured again then."""


def doomed(database: CostDatabase, prune: Prune) -> Doomed:
    """The rows that ``prune`` selects in ``database``."""

    def goes(row: Row) -> bool:
        return _is_old(row, prune) or row["fingerprint"] in prune.fingerprints

    def is_free(row: Row) -> bool:
        version = without_target(row["version"])
        return (
            _is_old(row, prune)
            or row["kind"] in prune.kinds
            or prune.versions.get(row["backend"], version) != version
        )

    return Doomed(
        tuple(filter(goes, database.rows(schema.COSTS))),
        tuple(filter(is_free, database.rows(schema.QUARANTINE))),
        tuple(filter(goes, database.rows(schema.FACTS))),
    )


def remove(database: CostDatabase, rows: Doomed) -> None:
    """Remove ``rows``, unless they were replaced meanwhile, and all texts that no other row refers to."""
    with database.writing() as connection:
        lock_rows(connection)
        _delete(connection, schema.COSTS, rows.costs)
        _delete(connection, schema.QUARANTINE, rows.quarantine)
        _delete(connection, schema.FACTS, rows.facts)
        named = union(select(schema.COSTS.c.fingerprint), select(schema.FACTS.c.fingerprint))
        texts = schema.FINGERPRINTS
        connection.execute(delete(texts).where(texts.c.digest.not_in(named)))
        texts = schema.WORKLOADS
        connection.execute(delete(texts).where(texts.c.digest.not_in(select(schema.COSTS.c.workload))))


def _is_old(row: Row, prune: Prune) -> bool:
    return prune.before is not None and row["created"] < prune.before


def _delete(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    names = [*(column.name for column in table.primary_key), "created"]
    for some in _chunks(rows):
        same = (and_(*(table.c[name] == row[name] for name in names)) for row in some)
        connection.execute(delete(table).where(or_(*same)))


def _chunks(rows: Sequence[Row], size: int = 100) -> Iterable[Sequence[Row]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
