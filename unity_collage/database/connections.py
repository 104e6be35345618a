"""Connections to a database: every error is a DatabaseError of one line."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ..errors import DatabaseError, first_line, is_of_user
from . import schema
from .location import WRITES, file_engine, is_url, lock_tables, memory_engine, server_engine, shown


class Connections:
    """A pool of connections to one database; its tables are created first."""

    def __init__(self, where: str | Path | None, read_only: bool, create: bool):
        """``where`` is None for a database in the memory of this process.

        Its one connection is for one thread at a time. The end of a query would roll back what another thread has not
        committed yet.
        """
        self.name = "memory" if where is None else shown(where)
        self._alone: AbstractContextManager[Any] = threading.RLock() if where is None else nullcontext()
        self._verb = "read from" if read_only else "kept in"
        with self._explained():
            self._engine = _engine(where, read_only, create and not read_only)
            self._check(read_only)

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A connection for queries."""
        with self._alone, self._explained(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """A connection inside one transaction, which is rolled back when an error ends it."""
        with self._alone, self._explained(), self._engine.connect() as connection:
            connection = connection.execution_options(**{WRITES: True})
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        self._engine.dispose()

    def _check(self, read_only: bool) -> None:
        with self._engine.connect() as connection:
            reason = schema.why_not_ours(connection)
            empty = reason is None and schema.is_empty(connection)
        if reason is None and empty and read_only:
            reason = "it holds no costs yet"
        if reason is not None:
            raise DatabaseError(reason)
        if empty:
            with self.writing() as connection:
                lock_tables(connection)
                schema.create(connection)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except DatabaseError as error:
            if error.args[0].startswith("costs cannot"):
                raise
            raise DatabaseError(f"costs cannot be {self._verb} {self.name}: {error}") from error
        except (SQLAlchemyError, OSError) as error:
            if is_of_user(error):
                raise
            raise DatabaseError(f"costs cannot be {self._verb} {self.name}: {_reason(error)}") from error


def _engine(where: str | Path | None, read_only: bool, create: bool) -> Engine:
    if where is None:
        return memory_engine()
    if is_url(where):
        return server_engine(str(where), read_only)
    return file_engine(Path(where), read_only, create)


def _reason(error: BaseException) -> str:
    """The driver's message without the SQL and the connection string around it."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    line = first_line(cause)
    if isinstance(error, OSError):
        return error.strerror or line
    if line.startswith("connection"):
        # psycopg: connection failed: connection to server at "host", port 5432 failed: FATAL:  what matters
        return line.rpartition(" failed: ")[2].removeprefix("FATAL:").strip()
    return line
