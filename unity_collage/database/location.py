"""The location of a cost database: a SQLite file by path, or a PostgreSQL server by URL."""

from __future__ import annotations

import os
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path
from sqlalchemy import URL, Connection, Engine, QueuePool, StaticPool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from ..errors import DatabaseError
from .schema import SCHEMA_VERSION

BUSY_SECONDS = 30.0
"""How long to wait for a process that writes, or for a server to answer."""

WRITES = "collage_writes"
"""Execution option of connections with a transaction that will write."""

_LOCK = 0x636F6C6C616765
"""The advisory lock that one process holds while it creates the tables: the bytes of "collage"."""


def default_path() -> Path:
    """``costs-v<schema>.sqlite`` in the user's cache directory."""
    return user_cache_path("unity_collage") / f"costs-v{SCHEMA_VERSION}.sqlite"


def is_url(where: str | Path) -> bool:
    """Whether this names a server rather than a file."""
    return "://" in str(where)


def shown(where: str | Path) -> str:
    """``where`` for messages: without a password, and without options, which may contain one."""
    if not is_url(where):
        return str(where)
    try:
        return make_url(str(where)).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return str(where).partition("://")[0] + "://..."


def file_engine(path: Path, read_only: bool, create: bool) -> Engine:
    """SQLite in a file, with a write-ahead log, so that readers and one writer do not wait for each other."""
    if (reason := _why_no_file(path, create)) is not None:
        raise DatabaseError(reason)
    mode = _reading(path) if read_only else "mode=rwc" if create else "mode=rw"
    connect = partial(
        sqlite3.connect,
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # begin transactions only where we do so
        check_same_thread=False,
    )
    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "begin", _begin)
    if not read_only:
        event.listen(engine, "connect", _prepare)
    return engine


def memory_engine() -> Engine:
    """SQLite in the memory of this process, for all its threads."""
    return create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})


def server_engine(where: str, read_only: bool) -> Engine:
    """PostgreSQL through psycopg; a connection that was lost between two costs is opened again."""
    url = _postgresql(where)
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"connect_timeout": int(BUSY_SECONDS / 3), "application_name": "unity_collage"},
            execution_options={"postgresql_readonly": True} if read_only else {},
        )
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"PostgreSQL needs the package {error.name}: pip install 'unity_collage[postgresql]'"
        ) from error


def lock_tables(connection: Connection) -> None:
    """Let no other process create tables until the transaction ends; SQLite's own lock does that already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})


def lock_rows(connection: Connection) -> None:
    """Let no other process add rows until the transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE collage_costs, collage_facts IN SHARE ROW EXCLUSIVE MODE"))


def _postgresql(where: str) -> URL:
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        raise DatabaseError("this is not a database URL: write postgresql://user@host/name") from error
    if url.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise DatabaseError(
            f"{url.drivername} is not supported: a file is SQLite, a URL starts with postgresql://"
        )
    return url.set(drivername="postgresql+psycopg")


def _why_no_file(path: Path, create: bool) -> str | None:
    if path.is_dir():
        return "it is a folder"
    if not create and not path.exists():
        return "there is no such file"
    if create and not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    return None if path.parent.is_dir() else f"{path.parent} is not a folder"


def _reading(path: Path) -> str:
    """The mode to read a file. SQLite writes next to it even then, unless the file is declared immutable."""
    alone = not path.with_name(f"{path.name}-wal").exists()
    return "mode=ro&immutable=1" if alone and not os.access(path.parent, os.W_OK) else "mode=ro"


def _prepare(connection: sqlite3.Connection, _record: Any) -> None:
    _log_ahead(connection)
    # A killed process loses nothing that was committed; only a power cut may lose the last costs.
    connection.execute("PRAGMA synchronous=NORMAL")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on; the file stores that it is on.

    For that SQLite turns its shared lock into an exclusive one. Of two connections that do so at once, one gets the
    error "locked" immediately, whatever its timeout: it has released its lock then and may try again.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    """Let a transaction that writes take its lock first: two readers that both become writers would deadlock."""
    if connection.get_execution_options().get(WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
