"""``--verbose``: what this package logs, on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PACKAGE = __name__.partition(".")[0]


class _OnStandardError(logging.Handler):
    """Prints each record to the current standard error, which a progress bar replaces for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


@contextmanager
def logs_shown() -> Iterator[None]:
    """Show records of INFO and above inside."""
    logger, handler = logging.getLogger(_PACKAGE), _OnStandardError()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
