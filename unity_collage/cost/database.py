"""CostDatabase: prices and refusals, kept between runs in one SQLite file.

A row's key holds everything that can change the answer: the computation with its shapes and dtypes, the
backend, and a fingerprint of machine, library versions, threads and measuring method.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from platformdirs import user_cache_path

from ..annotations import Cost

SCHEMA_VERSION = 1
"""Part of the file's name: another schema is another file."""

_TABLE = """
CREATE TABLE IF NOT EXISTS costs (
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    label TEXT NOT NULL,
    seconds REAL,
    low REAL NOT NULL,
    high REAL NOT NULL,
    runs INTEGER NOT NULL,
    reason TEXT NOT NULL,
    created REAL NOT NULL,
    PRIMARY KEY (key, fingerprint)
)
"""


def default_path() -> Path:
    """``costs-v1.sqlite`` in the user's cache directory."""
    return user_cache_path("unity_collage") / f"costs-v{SCHEMA_VERSION}.sqlite"


class CostDatabase:
    """Costs by workload key and fingerprint. Each price is committed as soon as it is known."""

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path) if path is not None else default_path()
        self._lock = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(self.path, timeout=30.0, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(_TABLE)
        self._connection.commit()

    def get(self, keys: Iterable[str], fingerprint: str) -> dict[str, Cost]:
        """The known costs among ``keys``."""
        found: dict[str, Cost] = {}
        with self._lock:
            for key in keys:
                row = self._connection.execute(
                    "SELECT seconds, low, high, runs, reason FROM costs WHERE key = ? AND fingerprint = ?",
                    (key, fingerprint),
                ).fetchone()
                if row is not None:
                    seconds, low, high, runs, reason = row
                    found[key] = Cost(seconds, low, high, runs, "database", reason)
        return found

    def put(self, key: str, fingerprint: str, label: str, cost: Cost) -> None:
        """Keep ``cost``, in place of an earlier one of the same key."""
        row = (
            key,
            fingerprint,
            label,
            cost.seconds,
            cost.low,
            cost.high,
            cost.runs,
            cost.reason,
            time.time(),
        )
        with self._lock:
            self._connection.execute("INSERT OR REPLACE INTO costs VALUES (?,?,?,?,?,?,?,?,?)", row)
            self._connection.commit()

    def __len__(self) -> int:
        with self._lock:
            return int(self._connection.execute("SELECT COUNT(*) FROM costs").fetchone()[0])

    def close(self) -> None:
        """Close the file; the database is not used afterwards."""
        with self._lock:
            self._connection.close()
