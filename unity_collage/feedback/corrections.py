"""Replaces costs that do not hold in the running program, if the new plan is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import COSTS, PLAN
from ..errors import CollageError
from ..plan.costs import Cost
from ..plan.plan import Plan
from ..profile.inputs import dummy_inputs
from ..profile.kernels import KernelProfiler
from ..profile.programs import ProgramWorker
from .loop import FeedbackLoop
from .observed import Observation, far_costs, with_costs

_LATE = 1.3
_NOTABLE_SECONDS = 50e-6
"""A program is late if it takes ``_LATE`` times the cost of its kernels, and ``_NOTABLE_SECONDS`` more than that cost.

Smaller differences may be calls, which take microseconds, or a shared machine that is slower for a while.
"""

_GAIN = 0.02
"""The part of the first program's time that the last program must save; otherwise no cost changes."""


def is_late(seconds: float, final: IRModule) -> bool:
    """Whether a program takes so much longer than its plan costs that some cost must be wrong."""
    main = final["main"]
    if not PLAN.on(main):
        return False
    predicted = PLAN.read(main).seconds
    return seconds > max(_LATE * predicted, predicted + _NOTABLE_SECONDS)


def corrected_costs(
    costed: IRModule, finish: Callable[[IRModule], IRModule], target: Target, programs: int
) -> dict[str, Cost]:
    """Costs by key that replace wrong ones and lead to a faster program; empty if the program does not get faster.

    ``finish`` makes the final module of the cheapest plan for given costs. At most ``programs`` programs are built.
    Raises CollageError if one of them cannot be built or run: the next compile may succeed.
    """
    learned: dict[str, Cost] = {}
    plans: list[Plan] = []

    def plan(mod: IRModule) -> tuple[str, IRModule] | None:
        final = finish(mod)
        found = PLAN.read(final["main"])
        if any(_chosen(found) == _chosen(known) for known in plans):
            return None
        plans.append(found)
        return f"program {len(plans)}", final

    def correct(observations: Sequence[Observation]) -> IRModule | None:
        more = far_costs(observations[-1], COSTS.read(with_costs(costed, learned)["main"]))
        learned.update(more)
        return with_costs(costed, learned) if more else None

    def failed(name: str, reason: str) -> None:
        raise CollageError(f"{name}: {reason}")

    with (
        ProgramWorker([dummy_inputs(costed)], runtime.num_threads(), model=costed) as worker,
        FeedbackLoop(KernelProfiler(worker, target), failed) as loop,
    ):
        first = plan(costed)
        assert first is not None
        loop.observe([first])
        loop.run(plan, correct, programs - 1)
        observed = list(loop.observations.values())
    return learned if _has_gained(observed) else {}


def _chosen(plan: Plan) -> list[tuple[int, tuple[str, ...]]]:
    return [(kernel.candidate, kernel.bindings) for kernel in plan.kernels]


def _has_gained(observed: Sequence[Observation]) -> bool:
    """Whether the last program is faster than the first one."""
    if len(observed) < 2:
        return False
    pairs = zip(observed[0].seconds_by_turn, observed[-1].seconds_by_turn, strict=True)
    return median(last / first for first, last in pairs) <= 1 - _GAIN
