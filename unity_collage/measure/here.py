"""The cost model of this machine: of its processor, or of its GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tvm.target import Target

from ..cost.method import MEDIAN, Method
from ..cost.model import Progress
from ..database.costs import CostDatabase
from ..defaults import BUDGET_SECONDS
from ..errors import CollageError
from ..machine.environment import why_too_many_threads
from ..target import is_cuda
from .cuda.cost import CudaCost
from .kernel_costs import KernelCosts
from .measured import MeasuredCost
from .runnable import why_not_measured


def cost_model(
    database: CostDatabase | str | Path | None,
    progress: Progress | None = None,
    locked: bool = False,
    budget_seconds: float | None = BUDGET_SECONDS,
    remeasure: bool = False,
    packs: bool = True,
    target: Target | None = None,
    percentile: float = MEDIAN,
) -> KernelCosts:
    """Costs measured on this machine, in ``database``; ``progress`` is called with what is being measured.

    For a CUDA ``target`` they are measured on the device. A cost is this ``percentile`` of the runs of a kernel. Raises
    CollageError where this process has more threads than it may use processors.
    """
    is_for_gpu = target is not None and is_cuda(target)
    measures = not locked and not is_for_gpu and (target is None or why_not_measured(target) is None)
    if measures and (reason := why_too_many_threads()) is not None:
        raise CollageError(reason)
    method = Method.of(percentile)
    opened = (
        database
        if isinstance(database, CostDatabase)
        else CostDatabase(database, read_only=locked, goes_on=True)
    )
    model = replace(
        costs_for(target),
        database=opened,
        locked=locked,
        budget_seconds=budget_seconds,
        remeasure=remeasure,
        method=method,
    )
    if isinstance(model, MeasuredCost):
        model = replace(model, packs=packs)
    return model if progress is None else replace(model, progress=progress)


def costs_for(target: Target | None) -> KernelCosts:
    """Costs measured where kernels for ``target`` run, in the database of the user; None: for this processor."""
    return CudaCost() if target is not None and is_cuda(target) else MeasuredCost()
