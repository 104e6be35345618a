"""Faults of our own, which users find in the log: here they are collected, so that a test fails by them."""

from __future__ import annotations

import logging
import sys
import traceback


class Faults(logging.Handler):
    """Keeps what this package logs at level ERROR, from :meth:`watch` on; children's records come here too."""

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
        """What was logged since the last call: message and traceback of each."""
        found, self._found = self._found, []
        return found
