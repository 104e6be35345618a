"""Candidate programs: which of them take part in a comparison, if there is time to build them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from functools import partial

from ..errors import CollageError
from ..search.auto import solve
from .candidates import OURS, Choice, ids_of, problems_of
from .comparison import Comparison
from .corrections import is_late
from .room import OF_A_RUNTIME

LOGGER = logging.getLogger(__name__)

CORRECTED = f"{OURS}, corrected"
BEFORE = "the one of before"

_FIRST_ROUNDS = 3
"""How often our program runs alone, to see whether it takes far longer than its kernels cost."""


def add_entrants(
    comparison: Comparison,
    plans: Mapping[str, tuple[Choice, float]],
    before: Choice | None,
    corrects: bool = True,
) -> None:
    """Build and load the programs of all plans that may be the fastest, and the fastest program of ``before``.

    ``plans``: each with its seconds by the costs of its kernels. After ours those come first that are most likely to
    be faster. A program is left out if building it would exceed the time limit. Raises CollageError if ours does not
    end on the inputs, as a loop may not. ``corrects``: whether our program is
    planned again if it takes far longer than its kernels cost.
    """
    builder, settings = comparison.builder, comparison.settings
    ours, least = plans[OURS]
    begin = time.monotonic()
    runs = comparison.add_built(OURS, ours, lambda: builder.searched(builder.costed))
    if not runs and comparison.worker.was_silent:  # so would be the others
        raise CollageError(f"the program does not end on drawn inputs: {comparison.programs[OURS].reason}")
    clock = _Clock(settings.build_seconds, time.monotonic() - begin)
    if before is not None and before != ours:
        comparison.add(BEFORE, before)
    _add_whole_models(comparison)
    if corrects:
        _add_corrected(comparison, ours)
    for name, (choice, seconds) in sorted(plans.items(), key=lambda entry: entry[1][1]):
        if any(program.choice == choice for program in comparison.programs.values()):
            continue
        if seconds >= settings.hopeless * least:
            ratio = seconds / least if least else math.inf
            comparison.leave_out(name, choice, f"not built: its kernels cost {ratio:.3g} times as much")
        elif clock.is_over():
            comparison.leave_out(name, choice, clock.reason())
            comparison.left_out = True
        else:
            comparison.add(name, choice)
    if settings.stock:
        comparison.add_stock()


def _add_whole_models(comparison: Comparison) -> None:
    """Add the programs of other runtimes: the first one in any case, the others if there is time to build them."""
    builder, limit = comparison.builder, comparison.settings.build_seconds
    begin = time.monotonic()
    for number, name in enumerate(builder.whole_models):
        spent = time.monotonic() - begin
        if number and spent > limit:
            reason = (
                f"not built: the runtimes before took {spent:.0f} s, and all together may take {limit:g} s"
            )
            comparison.leave_out(name, None, reason)
            comparison.left_out = True
        else:
            comparison.add_built(name, None, partial(builder.whole, name), OF_A_RUNTIME)


class _Clock:
    """Whether one more program can be built within the limit, if it takes as long as the first did."""

    def __init__(self, limit: float, first: float) -> None:
        self._limit, self._first = limit, first
        self._begin = time.monotonic()

    def is_over(self) -> bool:
        return time.monotonic() - self._begin + self._first > self._limit

    def reason(self) -> str:
        return f"not built: ours took {self._first:.0f} s, and the others together may take {self._limit:g} s"


def _add_corrected(comparison: Comparison, choice: Choice) -> None:
    """Where our program takes far longer than its kernels cost, add the one of corrected costs."""
    ours = comparison.programs[OURS]
    seconds = min(comparison.timed([OURS], _FIRST_ROUNDS).get(OURS, [0.0]))
    if ours.built is None or not is_late(seconds, ours.built[0]):
        return
    builder = comparison.builder
    LOGGER.info("the program takes %.3g s, far more than its kernels cost: planned again", seconds)
    comparison.tell("timing the kernels of the running program")
    with builder.target:
        corrected = builder.correct(builder.costed)
    problems = problems_of(corrected)
    another = {function: ids_of(solve(problem)) for function, problem in problems.items()}
    if another != choice:
        comparison.add_built(CORRECTED, another, lambda: builder.searched(corrected))
