"""Collects faults of this package from the log, so that a test can fail because of them."""

from __future__ import annotations

import logging
import sys
import traceback


class Faults(logging.Handler):
    """Collects what this package logs at level ERROR after :meth:`watch`, including records of child processes."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def watch(self) -> Faults:
        """Start to collect."""
        logging.getLogger("unity_collage").addHandler(self)
        return self

    def emit(self, record: logging.LogRecord) -> None:
        trace = traceback.format_exc() if sys.exc_info()[0] is not None else ""
        self._found.append(f"{record.getMessage()}\n{trace}".strip())

    def take(self) -> list[str]:
        """Message and traceback of each record since the last call."""
        found, self._found = self._found, []
        return found
