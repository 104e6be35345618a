"""How long the machine takes to measure a kernel, by the times at which its costs were stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from .rows import CostRow

SECONDS_PER_KERNEL = 0.2
"""The assumed time for a kernel: on two cores of a shared machine 1,500 costs took 0.15 s each."""

_PAUSE = 5.0
"""Seconds. Between costs that are further apart something else was done, such as building a program."""
_LEAST = 20
"""With fewer costs the time is assumed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for building, checking and timing one kernel."""

    seconds: float = SECONDS_PER_KERNEL
    kernels: int = 0
    """How many costs it follows from; 0: it is assumed."""


def pace(rows: Iterable[CostRow], fingerprints: Iterable[str], longer: float = 0.0) -> Pace:
    """The mean time between two costs or refusals with these ``fingerprints`` (digests), without pauses.

    ``longer``: the most seconds by which a kernel is timed longer than usual; the assumed pace includes them.
    """
    here = frozenset(fingerprints)
    times = sorted(row.created for row in rows if row.fingerprint in here)
    between = [later - earlier for earlier, later in pairwise(times) if later - earlier < _PAUSE]
    if len(between) < _LEAST or not sum(between):
        return Pace(SECONDS_PER_KERNEL + longer)
    return Pace(sum(between) / len(between), len(between))
