"""Answers: what a compile has read from a database of costs and written to it, so that a later one can repeat the
queries.

The result of a compile holds as long as the same queries have the same answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Table

from . import schema
from .rows import digest

Row: TypeAlias = "Mapping[str, Any]"

HINT = "program "
"""Prefix of the names of facts that only name earlier comparisons of programs or kernels: where a new one may start,
or which a locked compile takes. A change of these makes no answer wrong."""

_CONTENT = {
    schema.COSTS.name: ("seconds", "low", "high", "runs", "reason", "lasting", "doubtful"),
    schema.FACTS.name: ("value", "doubtful"),
    schema.QUARANTINE.name: ("kind", "reason"),
}
"""The columns that are answers, by table. The day of a measurement is left out: the same cost may be imported later."""

_OTHER_KEY = {
    schema.COSTS.name: ("key", "fingerprint"),
    schema.FACTS.name: ("name", "fingerprint"),
    schema.QUARANTINE.name: ("key", "version"),
}
"""The column by which rows of a table are queried, and the one that has to match."""


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of a table: those with some value in a column, and these values in others."""

    table: str
    column: str
    matching: tuple[tuple[str, str], ...]


class Askable(Protocol):
    """A database that can be queried."""

    def found(
        self, table: Table, column: str, values: Iterable[str], matching: Mapping[str, str]
    ) -> Iterable[Row]:
        """Rows whose ``column`` is among ``values`` and whose other columns are as in ``matching``."""
        ...


@dataclass
class Answers:
    """The queries of a compile with the last answers that it read or stored, each as a digest."""

    _known: dict[Question, dict[str, str]] = field(default_factory=dict[Question, dict[str, str]])
    _doubtful: set[tuple[Question, str]] = field(default_factory=set[tuple[Question, str]])

    def read(
        self,
        table: Table,
        column: str,
        values: Sequence[str],
        matching: Mapping[str, str],
        rows: Sequence[Row],
    ) -> None:
        """Note what was found for these ``values``."""
        if table.name not in _CONTENT:
            return
        question = Question(table.name, column, tuple(sorted(matching.items())))
        by_value = _by_value(column, rows)
        for value in values:
            self._note(question, value, by_value.get(value, []))

    def wrote(self, table: Table, row: Row) -> None:
        """Note a row that was stored, as the answer to the query for it."""
        if table.name in _CONTENT:
            column, other = _OTHER_KEY[table.name]
            self._note(Question(table.name, column, ((other, row[other]),)), row[column], [row])

    @property
    def are_sure(self) -> bool:
        """Whether no answer is doubtful, so that the next compile measures none of them again."""
        return not self._doubtful

    @property
    def digest(self) -> str:
        """A digest of all answers, as :func:`digest_now` computes it."""
        return _digest(self._known)

    def questions(self) -> list[list[Any]]:
        """The queries as JSON data, for :func:`digest_now`."""
        return [[q.table, q.column, dict(q.matching), list(known)] for q, known in self._known.items()]

    def _note(self, question: Question, value: str, rows: Sequence[Row]) -> None:
        if question.table == schema.FACTS.name and value.startswith(HINT):
            return
        self._known.setdefault(question, {})[value] = _digest_of_rows(question.table, rows)
        if any(row.get("doubtful") and row.get("seconds", 0.0) is not None for row in rows):
            self._doubtful.add((question, value))
        else:
            self._doubtful.discard((question, value))


def digest_now(database: Askable, questions: Iterable[Sequence[Any]]) -> str:
    """The digest of the current answers of ``database``; ``questions``: as :meth:`Answers.questions` returned them."""
    tables = {table.name: table for table in schema.CONTENT.values()}
    known: dict[Question, dict[str, str]] = {}
    for table, column, matching, values in questions:
        question = Question(table, column, tuple(sorted(matching.items())))
        by_value = _by_value(column, database.found(tables[table], column, values, matching))
        known[question] = {value: _digest_of_rows(table, by_value.get(value, [])) for value in values}
    return _digest(known)


def _by_value(column: str, rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def _digest_of_rows(table: str, rows: Sequence[Row]) -> str:
    return digest("\n".join(sorted(repr([_plain(row[name]) for name in _CONTENT[table]]) for row in rows)))


def _plain(value: Any) -> Any:
    """A value as the database returns it: whole numbers are stored as such, or as floating point numbers."""
    return float(value) if isinstance(value, (int, float)) else value


def _digest(known: Mapping[Question, Mapping[str, str]]) -> str:
    lines = sorted(repr((q, value, rows)) for q, answers in known.items() for value, rows in answers.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
