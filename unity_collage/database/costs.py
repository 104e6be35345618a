"""CostDatabase: reads and stores costs, refusals and facts about the machine.

The key of a row covers everything that can change its cost: the computation with its shapes and dtypes, the backend,
and a fingerprint of machine, library versions, threads and measuring method. The text of the fingerprint is stored too.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, select

from ..errors import DatabaseError
from ..plan.costs import Cost
from . import schema
from .answers import Answers
from .connections import Connections
from .location import default_path, is_url
from .rows import CostRow, FailureKind, Quarantined, digest
from .upsert import put_row

__all__ = ["CostDatabase", "CostRow", "FailureKind", "Quarantined", "default_path"]

_LOG = logging.getLogger(__name__)
_PAUSES = (0.1, 0.5, 2.0)
"""Seconds between attempts to reach a server."""
_AT_ONCE = 500
"""How many keys go into one query; SQLite's limit is 32,766."""


class CostDatabase:
    """Costs by workload key and fingerprint. Each cost is committed as soon as it is known.

    ``where`` is a path (SQLite; None: a file in the user's cache directory) or a ``postgresql://`` URL. A file that
    does not exist is created unless ``create`` is false; with ``read_only`` nothing is written. Errors are
    DatabaseError, one line each. Several processes and threads may use one database at once.

    With ``goes_on`` an error while a cost is stored does not lose it: it is kept in memory, and so are all later
    ones. Then ``why_not_kept`` has the reason, and ``not_kept`` the number of rows. A database that can only be read
    is opened like this from the start.
    """

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        read_only: bool = False,
        create: bool = True,
        goes_on: bool = False,
    ):
        where = default_path() if where is None else where
        self.path = None if is_url(where) else Path(where)
        """The file; None for a server."""
        self.read_only = read_only
        """Whether nothing is written to the database."""
        self.why_not_kept: str | None = None
        """Why costs are in memory only; None as long as all of them are stored."""
        self.not_kept = 0
        """How many rows are in memory only."""
        self._goes_on = goes_on and not read_only
        self._memory: Connections | None = None
        self._is_lost = False
        self._falling = threading.Lock()
        self._noting: list[Answers] = []
        try:
            self._connections = Connections(where, read_only, create)
        except DatabaseError as error:
            if not self._goes_on:
                raise
            self._connections = _only_read(where, error)
            self._fall_back(error)

    @property
    def name(self) -> str:
        """The file or server for messages, without a password."""
        return self._connections.name

    def get(self, keys: Iterable[str], fingerprint: str) -> dict[str, Cost]:
        """The known costs of ``keys`` with this ``fingerprint`` (its text)."""
        matching = {"fingerprint": digest(fingerprint)}
        return {row["key"]: CostRow(**row).cost for row in self.found(schema.COSTS, "key", keys, matching)}

    def put(
        self,
        key: str,
        fingerprint: str,
        label: str,
        cost: Cost,
        *,
        backend: str = "",
        workload: str = "",
        lasting: bool = True,
    ) -> None:
        """Store ``cost``; it replaces an earlier one with the same key and ``fingerprint`` (its text).

        ``workload`` is the text of the function that was measured, so that it can be measured again. A refusal
        that is not ``lasting``, such as a timeout, never replaces a cost, and a doubtful cost never a sure one.
        """
        row = CostRow(
            key=key,
            fingerprint=digest(fingerprint),
            label=label,
            backend=backend,
            seconds=cost.seconds,
            low=cost.low,
            high=cost.high,
            runs=cost.runs,
            reason=cost.reason,
            lasting=lasting or cost.seconds is not None,
            workload=digest(workload) if workload else "",
            doubtful=cost.is_doubtful,
            created=time.time(),
        )
        texts = ((schema.FINGERPRINTS, fingerprint), (schema.WORKLOADS, workload))
        self._keep(schema.COSTS, asdict(row), texts)

    def quarantined(self, keys: Iterable[str], version: str) -> dict[str, Quarantined]:
        """The quarantine entries of ``keys`` for this ``version`` of their backend."""
        rows = self.found(schema.QUARANTINE, "key", keys, {"version": version})
        return {row["key"]: _quarantined(row) for row in rows}

    def quarantine(self, entry: Quarantined) -> None:
        """Store how a kernel misbehaved; it replaces an earlier entry with the same key and version."""
        row = {**asdict(entry), "kind": FailureKind(entry.kind).value, "created": time.time()}
        self._keep(schema.QUARANTINE, row)

    def fact(self, name: str, fingerprint: str, sure: bool = False) -> Any | None:
        """The fact of this name about the machine, as plain data; None: not known yet.

        ``sure``: a doubtful fact is not known.
        """
        found = list(self.found(schema.FACTS, "name", [name], {"fingerprint": digest(fingerprint)}))
        if not found or (sure and found[-1]["doubtful"]):
            return None
        return json.loads(found[-1]["value"])

    def facts(self, fingerprint: str) -> dict[str, Any]:
        """All facts with this fingerprint, by name."""
        found = self.found(schema.FACTS, "fingerprint", [digest(fingerprint)], {})
        return {row["name"]: json.loads(row["value"]) for row in found}

    def keep_fact(self, name: str, fingerprint: str, value: Any, doubtful: bool = False) -> None:
        """Store a fact that is measured once per machine, such as launches, transitions or peaks, as JSON data.

        ``doubtful``: whether other work of the machine disturbed the measurement.
        """
        row = {"name": name, "fingerprint": digest(fingerprint), "value": json.dumps(value, allow_nan=False),
               "doubtful": doubtful}  # fmt: skip
        texts = ((schema.FINGERPRINTS, fingerprint),)
        self._keep(schema.FACTS, {**row, "created": time.time()}, texts)

    def costs(self) -> list[CostRow]:
        """All costs and refusals, by key."""
        return [CostRow(**row) for row in self.rows(schema.COSTS)]

    def quarantine_entries(self) -> list[Quarantined]:
        """All kernels that misbehaved, by key."""
        return [_quarantined(row) for row in self.rows(schema.QUARANTINE)]

    def fingerprints(self) -> dict[str, str]:
        """The texts of all fingerprints, by digest."""
        return {row["digest"]: row["text"] for row in self.rows(schema.FINGERPRINTS)}

    def workloads(self, digests: Iterable[str]) -> dict[str, str]:
        """The texts of these functions, by digest."""
        return {row["digest"]: row["text"] for row in self.found(schema.WORKLOADS, "digest", digests, {})}

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """All rows of ``table`` by primary key, in Python's order of texts rather than that of a locale."""
        with self.reading() as connection:
            found = [dict(row) for row in connection.execute(select(table)).mappings()]
        return sorted(found, key=lambda row: [row[column.name] for column in table.primary_key])

    def __len__(self) -> int:
        """The number of costs and refusals."""
        with self.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(schema.COSTS)).scalar_one())

    @contextmanager
    def noting(self) -> Generator[Answers]:
        """Records what any thread of this process reads and writes through this object inside the ``with`` block."""
        answers = Answers()
        self._noting.append(answers)
        try:
            yield answers
        finally:
            self._noting = [others for others in self._noting if others is not answers]

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection for other queries."""
        return self._connections.reading()

    def writing(self) -> AbstractContextManager[Connection]:
        """A connection inside one transaction, which is rolled back when an error ends it."""
        return self._connections.writing()

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        self._connections.close()

    def __enter__(self) -> CostDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def found(
        self, table: Table, column: str, values: Iterable[str], matching: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Rows whose ``column`` is among ``values`` and whose other columns are as in ``matching``.

        Those that are in memory only come last.
        """
        conditions = [table.c[name] == value for name, value in matching.items()]
        wanted = list(dict.fromkeys(values))
        rows = self._stored(table, column, wanted, conditions)
        if self._memory is not None:
            with self._memory.reading() as connection:
                rows += _rows(connection, table, column, wanted, conditions)
        for answers in self._noting:
            answers.read(table, column, wanted, matching, rows)
        return rows

    def _stored(
        self, table: Table, column: str, wanted: Sequence[str], conditions: Sequence[ColumnElement[bool]]
    ) -> list[dict[str, Any]]:
        pauses = self._pauses()
        while not self._is_lost:
            try:
                with self.reading() as connection:
                    return list(_rows(connection, table, column, wanted, conditions))
            except DatabaseError as error:
                if not self._goes_on:
                    raise
                if (pause := next(pauses, None)) is None:
                    self._is_lost = True  # each further query would wait for its timeout again
                    self._fall_back(error)
                else:
                    time.sleep(pause)
        return []

    def _keep(self, table: Table, row: dict[str, Any], texts: Sequence[tuple[Table, str]] = ()) -> None:
        """Store a row and the texts that it refers to."""
        for answers in self._noting:
            answers.wrote(table, row)
        pauses = self._pauses()
        while self._memory is None:
            try:
                with self.writing() as connection:
                    _put(connection, table, row, texts)
                return
            except DatabaseError as error:
                if not self._goes_on:
                    raise
                if (pause := next(pauses, None)) is None:
                    self._fall_back(error)
                else:
                    time.sleep(pause)
        with self._memory.writing() as connection:
            _put(connection, table, row, texts)
        self.not_kept += 1

    def _pauses(self) -> Iterator[float]:
        """Seconds to wait before each further attempt: a server may be back by then."""
        return iter(_PAUSES if self.path is None else ())

    def _fall_back(self, error: DatabaseError) -> None:
        with self._falling:
            if self._memory is None:
                _LOG.warning("costs are in memory only from now on: %s", error)
                self.why_not_kept, self._memory = str(error), Connections(None, False, True)


def _only_read(where: str | Path, error: DatabaseError) -> Connections:
    """Read-only connections to a database that cannot be written; raises ``error`` if there is no database."""
    try:
        return Connections(where, True, False)
    except DatabaseError:
        raise error from None


def _rows(
    connection: Connection,
    table: Table,
    column: str,
    wanted: Sequence[str],
    conditions: Sequence[ColumnElement[bool]],
) -> Iterator[dict[str, Any]]:
    for start in range(0, len(wanted), _AT_ONCE):
        among = table.c[column].in_(wanted[start : start + _AT_ONCE])
        yield from map(dict, connection.execute(select(table).where(among, *conditions)).mappings())


def _put(
    connection: Connection, table: Table, row: dict[str, Any], texts: Sequence[tuple[Table, str]]
) -> None:
    put_row(connection, table, row)
    for where, text in texts:
        _keep_text(connection, where, text)


def _keep_text(connection: Connection, table: Table, text: str) -> None:
    """Store a text that many rows share under its digest, unless it is empty."""
    if text:
        put_row(connection, table, {"digest": digest(text), "text": text})


def _quarantined(row: dict[str, Any]) -> Quarantined:
    row["kind"] = FailureKind(row["kind"])
    return Quarantined(**row)
