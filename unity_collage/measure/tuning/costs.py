"""Tuning: the cost of a TVM kernel with the best schedule that MetaSchedule finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import cast

from tvm import relax
from tvm.target import Target

from ...annotations import COMPILED_AS, SCHEDULES
from ...cost.model import Progress, TunedCost, Workload
from ...database.costs import CostDatabase, default_path
from ...database.rows import digest
from ...errors import MissingCost
from ...plan.costs import Cost
from ..kernels import NoKernel, unscheduled_kernel
from .records import Tuned
from .tuner import Tuner

Compared = Callable[[Sequence[Workload]], dict[str, Cost]]
"""Costs by key of kernels for one computation, timed in turns."""


class Tuning:
    """Tuned costs, one kernel at a time. Use as a context manager, which ends the process of MetaSchedule."""

    def __init__(
        self,
        tuner: Tuner,
        target: Target,
        compared: Compared,
        locked: bool,
        is_budget_spent: Callable[[], bool],
        progress: Progress,
    ):
        self._tuner = tuner
        self._is_budget_spent = is_budget_spent
        self._progress = progress
        self._target = target
        self._compare = compared
        self._locked = locked

    def tuned(self, workload: Workload) -> TunedCost | None:
        """The cost with the best schedule; None where ours is as fast, there is no schedule, or no time is left.

        There is none where MetaSchedule fails.
        """
        if self._is_budget_spent() or COMPILED_AS in (
            workload.func.attrs or {}
        ):  # schedules are for static sizes
            return None
        try:
            kernel = unscheduled_kernel(workload.func, self._target)
        except NoKernel:
            return None
        tuned = self._tuner.known(kernel, self._target) if self._locked else None
        if self._locked and tuned is None:
            raise MissingCost(f"{workload.label} has not been tuned, and the database is locked")
        self._progress(0, 1, f"tuning {workload.label}")
        tuned = tuned or self._tuner.tuned(kernel, self._target)
        return self._compared(workload, tuned) if tuned is not None and tuned.trace else None

    def _compared(self, workload: Workload, tuned: Tuned) -> TunedCost | None:
        variant = with_schedule(workload, tuned.kernel, tuned.trace)
        costs = self._compare([workload, variant])
        ours, theirs = costs[workload.key].seconds, costs[variant.key].seconds
        if theirs is None or (ours is not None and ours <= theirs):
            return None
        return TunedCost(variant, costs[variant.key], tuned.kernel, tuned.trace)

    def __enter__(self) -> Tuning:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tuner.close()


def with_schedule(workload: Workload, kernel: str, trace: str) -> Workload:
    """The workload with another schedule, which its function carries."""
    func = cast(relax.Function, workload.func.with_attr(SCHEDULES, {kernel: trace}))
    return replace(workload, func=func, schedule=digest(trace))


def tuning_folder(database: CostDatabase) -> Path:
    """The folder of tuning records next to the file of costs; for a server, next to the user's default file."""
    path = database.path or default_path()
    return path.with_name(f"{path.stem}-tuning")
