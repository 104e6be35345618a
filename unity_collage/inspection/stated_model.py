"""What a model states, for the checker of plans: its functions with the candidates that a compile finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm
from tvm import relax
from tvm.target import Target

from ..frontend.models import Model
from ..frontend.sizes import Shapes
from ..making import imported_for
from ..passes.split_sizes import PARTS, whole_of
from ..pipeline import Pipeline
from ..placing import placed
from ..plan.plan import Plan
from .statement import Statement


def of_model(
    model: Model,
    where: str,
    pipeline: Pipeline,
    plans: Mapping[str, Plan],
    *,
    has_costs: bool = False,
    target: Target | str | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
) -> Statement:
    """What ``model`` states: the candidates that a compile with the ``pipeline`` finds.

    With ``has_costs`` also their costs, from the cost model of the pipeline. ``plans``: those to be checked. If one of
    them needed no costs, functions without a choice have none. Raises CollageError.
    """
    model, scope = placed(model, target or pipeline.model.target(), False)
    _, imported = imported_for(model, pipeline, scope, shapes, dims)
    needless = any(plan.kernels and not plan.has_costs for plan in plans.values())
    pipeline = replace(pipeline, only_choices=needless)
    with scope:
        passes = pipeline.until_costs() if has_costs else pipeline.until_candidates()
        mod = tvm.transform.Sequential(passes, name="collage.statement")(imported)
    functions = {g.name_hint: func for g, func in mod.functions_items() if isinstance(func, relax.Function)}
    if not has_costs and (whole := whole_of(mod)) is not None:
        for name in (name for name in PARTS if name in plans):  # SplitSizes makes them from costs
            functions.setdefault(name, functions[whole])
    return Statement(functions, where, has_costs)
