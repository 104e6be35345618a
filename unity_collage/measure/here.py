"""The cost model of what runs here: of this processor, or of its GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tvm.target import Target

from ..calling.processor import instruction_sets, processor_of, why_not_here
from ..cost.method import MEDIAN, Method
from ..cost.model import Progress
from ..database.costs import CostDatabase
from ..defaults import BUDGET_SECONDS
from ..runtime import cuda
from ..target import is_cuda
from .cuda.cost import CudaCost
from .kernel_costs import KernelCosts
from .measured import MeasuredCost


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

    For a CUDA ``target`` they are measured on the device. A cost is this ``percentile`` of the runs of a kernel.
    """
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


def why_not_measured(target: Target) -> str | None:
    """Why kernels for ``target`` cannot be measured on this machine, or None: they run here to be measured."""
    if is_cuda(target):
        return None if (reason := cuda.why_unavailable()) is None else f"kernels for a GPU run there: {reason}"
    needed, here = processor_of(target), os.uname().machine
    reason = f"it is for {needed}, and this processor is {here}" if needed != here else why_not_here(instruction_sets(target))
    named = target.attrs.get("mcpu") or target.kind.name
    return None if reason is None else f"kernels for {named} cannot be measured here: {reason}"
