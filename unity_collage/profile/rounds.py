"""Rounds in which programs run in turns, so that drift of the machine hits all alike, and what they say."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Timed = Callable[[float], list[float]]
"""Runs a program for about so many seconds and returns the seconds of each run."""


def in_turns(
    programs: Mapping[str, Timed],
    rounds: int,
    round_seconds: float,
    pause_seconds: float,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """The median seconds of a run of each program, by round. The order rotates from round to round.

    Between two programs lie ``pause_seconds``, so that caches, clock and spinning threads settle. ``before_round`` is
    called before each round: it may look at the machine.
    """
    names = list(programs)
    medians: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        before_round()
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            time.sleep(pause_seconds)
            medians[name].append(statistics.median(programs[name](round_seconds)))
    return medians


def speedup(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How many times faster ``ours`` is: the median over rounds of the ratio within a round."""
    return statistics.median(t / o for o, t in zip(ours, theirs, strict=True))
