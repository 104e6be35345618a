"""Columns and cells of the tables for a terminal: durations, counts, titles."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

from rich.table import Column


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, to three digits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        value = seconds * factor
        if value >= 1:
            return f"{_fixed(value, 2 if value < 10 else 1 if value < 100 else 0)} {unit}"
    return f"{_fixed(seconds * 1e9, 0)} ns"


def size(nbytes: int) -> str:
    """Bytes in the decimal unit that suits them, to three digits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        value = nbytes / factor
        if value >= 1:
            return f"{_fixed(value, 2 if value < 10 else 1 if value < 100 else 0)} {unit}"
    return f"{nbytes} bytes"


def _fixed(value: float, digits: int) -> str:
    """A number with ``digits`` behind the point. Ties are rounded up, as ``toFixed`` of the report's page does."""
    if not math.isfinite(value):
        return str(value)
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def plus_minus(seconds: float, low: float, high: float) -> str:
    """A cost with half the width of its interval: ``41.2 us +- 0.9 us``."""
    half = (high - low) / 2 if low <= seconds <= high else 0.0
    return f"{duration(seconds)} +- {duration(half)}" if half else duration(seconds)


def signed(seconds: float) -> str:
    """A difference: ``+41.2 us``, ``-3.00 ms``, or ``0`` where there is none."""
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}" if seconds else "0"


def counted(number: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def left(title: str) -> Column:
    """A column of texts."""
    return Column(title, no_wrap=True)


def right(title: str) -> Column:
    """A column of numbers."""
    return Column(title, justify="right", no_wrap=True)


def additive_text(error: float, predicted: float) -> str:
    """``additive error: 90 us more than all kernels together (+1.8%)``; ``predicted`` is not 0."""
    how = "more" if error >= 0 else "less"
    return (
        f"additive error: {duration(abs(error))} {how} than all kernels together ({error / predicted:+.1%})"
    )
