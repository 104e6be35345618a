"""Runs programs in turns, so that drift of the machine affects all alike, and compares their times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Timed = Callable[[float], list[float]]
"""Runs a program for about the given seconds, and returns the seconds of each run."""


def in_turns(
    programs: Mapping[str, Timed],
    rounds: int,
    round_seconds: float,
    pause_seconds: float,
    before_round: Callable[[], None] = lambda: None,
    percentile: float = 50.0,
) -> dict[str, list[float]]:
    """The median seconds of a run of each program, by round. The order rotates from round to round.

    Another ``percentile`` takes the place of the median.
    ``pause_seconds``: how long to wait between two programs, until caches, clock and spinning threads settle.
    ``before_round`` is called before each round.
    """
    names = list(programs)
    medians: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        before_round()
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            time.sleep(pause_seconds)
            medians[name].append(quantile(programs[name](round_seconds), percentile))
    return medians


def quantile(seconds: Sequence[float], percentile: float) -> float:
    """The percentile of these times, interpolated between two of them."""
    if percentile == 50.0:
        return statistics.median(seconds)
    return float(np.percentile(seconds, percentile))


def speedup(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times faster ``ours`` is than ``theirs``: the median of the ratios within each round."""
    return statistics.median(t / o for o, t in zip(ours, theirs, strict=True))
