"""Times of kernels in the running program, for the report of ``compile``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CollageError
from . import progress

if TYPE_CHECKING:
    from ..cost.model import CostModel
    from ..plan.plan import Plan
    from ..program import Program

SECONDS = 1.0
"""How long the program runs for its report."""

SLOWEST_SECONDS = 0.1
"""A program that takes longer for a run is not timed for its report: that would take several seconds."""

_TIMED = (".html", ".json")
"""The suffixes of reports that have a place for times."""


def add_times(options: argparse.Namespace, program: Program, costs: CostModel | None) -> None:
    """Put the times of kernels into the plans of a program that was compiled by ``costs``, and keep them with it.

    Without them the report says how to get them. A run has one size, so of a program for several sizes one plan has
    times: that in which most of the predicted time is spent.
    """
    if why_not_timed(options, program, costs) is not None:
        return
    from ..profile.agreement import drawn_inputs
    from ..profile.planned_times import with_times
    from .kept import keep_times

    try:
        with progress(options, "timing the kernels in the running program"):
            sizes = costliest_sizes(program.plan or {})
            profile = program.profile(drawn_inputs(program, sizes=sizes), seconds=SECONDS)
    except CollageError:  # the report says that there are none
        return
    program.plan = with_times(program.plan or {}, profile)
    keep_times(options, program)


def why_not_timed(options: argparse.Namespace, program: Program, costs: CostModel | None) -> str | None:
    """Why the kernels of a program are not timed for its report, or None."""
    from ..cost.model import Capability

    if not options.report or Path(options.report).suffix not in _TIMED:
        return "there is no report with a place for times"
    if program.kept_since is not None:
        return "an earlier compile has made the program"
    if costs is None or costs.database_and_lock()[1] or costs.is_budget_spent():
        return "nothing may be measured, or no time is left for it"
    if any(_seconds(plan) > SLOWEST_SECONDS for plan in (program.plan or {}).values()):
        return "a run takes too long"
    return costs.why_not(Capability.RUN_PROGRAMS)


def _seconds(plan: Plan) -> float:
    return max(plan.seconds, plan.measured_seconds or 0.0)


def costliest_sizes(plans: Mapping[str, Plan]) -> Mapping[str, int]:
    """The sizes at which most of the predicted time is spent; empty where no sizes are known."""
    for plan in plans.values():
        samples = plan.at_samples if plan.range is None else plan.range.sizes
        if samples:
            return max(samples, key=lambda sample: sample.weight * sample.seconds).sizes
    return {}
