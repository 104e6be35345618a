"""Plans by another percentile than the median: what their costs are, and which of them rest on too few runs."""

from __future__ import annotations

from tvm.ir import IRModule

from ..annotations import COSTS, PLAN
from ..cost.method import MEDIAN, Method
from ..cost.model import CostModel
from ..measure.kernel_costs import KernelCosts


def percentile_of(model: CostModel) -> float:
    """The percentile that the costs of ``model`` are; the median if the model does not declare one."""
    return model.method.percentile if isinstance(model, KernelCosts) else MEDIAN


def too_few_runs(costed: IRModule, final: IRModule, percentile: float) -> tuple[str, ...]:
    """A remark about kernels of the plans in ``final`` with fewer runs than a percentile other than the median needs.

    ``costed``: the module with costs.
    """
    if percentile == MEDIAN:
        return ()
    least, costs = Method.of(percentile).min_runs, COSTS.by_function(costed)
    thin = [
        kernel
        for name, plan in PLAN.by_function(final).items()
        if name in costs
        for kernel in plan.kernels
        if kernel.candidate in costs[name].keys and 0 < costs[name].of(kernel.candidate).runs < least
    ]
    if not thin:
        return ()
    return (
        f"{len(thin)} kernels ran fewer than {least} times, so their percentile {percentile:g} is hardly more than the "
        "slowest of their runs",
    )
