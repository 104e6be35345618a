"""Warnings, and what this package logs, as lines on standard error."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_PACKAGE = __name__.partition(".")[0]


class _OnStandardError(logging.Handler):
    """Prints each record to the current standard error, which a progress bar replaces for a while.

    A warning or an error begins with its level, other records with the module that they are of.
    """

    def emit(self, record: logging.LogRecord) -> None:
        before = record.levelname.lower() if record.levelno >= logging.WARNING else record.name
        print(f"{before}: {self.format(record)}", file=sys.stderr, flush=True)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """Show each text of a warning once inside, without the place in the code that gave it.

    Which warnings there are is up to the filters of Python (``-W``, ``PYTHONWARNINGS``).
    """
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in told:
            told.add(text)
            print(f"warning: {text}", file=sys.stderr, flush=True)

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def one_line(message: Warning | str) -> str:
    """The text of a warning, which may be of another package and have several lines."""
    return " ".join(str(message).split())


@contextmanager
def logs_shown(verbose: bool) -> Iterator[None]:
    """Show records of WARNING and above inside, with ``verbose`` also those of INFO."""
    logger, handler = (
        logging.getLogger(_PACKAGE),
        _OnStandardError(logging.INFO if verbose else logging.WARNING),
    )
    before = logger.level
    logger.addHandler(handler)
    if verbose:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
