"""Exceptions in our own code: the kernel is made without the code that failed, and the log has the reason."""

from __future__ import annotations

import logging

from ..errors import first_line

LOGGER = logging.getLogger("unity_collage.schedule")
"""It logs faults at level ERROR; if level DEBUG is enabled, they include the traceback."""

FAULT = "a fault: "
"""Prefix of the reason of a kernel on which our own code failed."""


def logged(what: str, error: Exception) -> str:
    """Log ``what`` and ``error``; returns the reason, which begins with ``FAULT``."""
    reason = f"{FAULT}{type(error).__name__}: {first_line(error)}"
    LOGGER.error("%s: %s", what, reason, exc_info=error if LOGGER.isEnabledFor(logging.DEBUG) else None)
    return reason
