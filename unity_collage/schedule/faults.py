"""What becomes of an exception in our own code: the kernel is made without it, and the log says so."""

from __future__ import annotations

import logging

from ..errors import first_line

LOGGER = logging.getLogger("unity_collage.schedule")
"""Faults are records of level ERROR; at level DEBUG they carry their traceback."""

_FAULT = "a fault: "


def logged(what: str, error: Exception) -> str:
    """Log that ``what`` has failed by ``error``; the reason to mark a kernel with, which :func:`is_fault` knows."""
    reason = f"{_FAULT}{type(error).__name__}: {first_line(error)}"
    LOGGER.error("%s: %s", what, reason, exc_info=error if LOGGER.isEnabledFor(logging.DEBUG) else None)
    return reason


def is_fault(reason: str) -> bool:
    """Whether ``reason`` tells of an exception in our own code, and not of a kernel that no family fits."""
    return reason.startswith(_FAULT)
