"""Errors that a child process logs. Its parent logs them again, since the child's standard error is not shown."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_PACKAGE = "unity_collage"

_LOGGER = "log"
"""The field of a message with the name of the logger; only log records have it."""


class _Sender(logging.Handler):
    """Sends records of level ERROR, with the traceback of the exception that is being handled."""

    def __init__(self, say: Callable[[dict[str, Any]], None]):
        super().__init__(logging.ERROR)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        trace = traceback.format_exc() if sys.exc_info()[0] is not None else ""
        message = {_LOGGER: record.name, "message": record.getMessage(), "traceback": trace}
        with suppress(OSError):  # the parent has ended, which the next reply finds out
            self._say(message)


def send_errors(say: Callable[[dict[str, Any]], None]) -> None:
    """Send the errors that this package logs to the parent with ``say``."""
    logging.getLogger(_PACKAGE).addHandler(_Sender(say))


def logged_again(message: Mapping[str, Any]) -> bool:
    """Log ``message`` if it is a log record of a child, its traceback at level DEBUG; whether it is one."""
    if _LOGGER not in message:
        return False
    logger = logging.getLogger(message[_LOGGER])
    logger.error("%s", message["message"])
    if message["traceback"]:
        logger.debug("%s", message["traceback"])
    return True
