"""``profile_saved``: the kernels of a saved program, timed in a twin that is built from its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import CANDIDATES, PLAN
from ..calling.describe import signature_of
from ..database.costs import CostDatabase
from ..errors import CollageError
from ..frontend.models import Model
from ..frontend.sizes import Shapes
from ..graph import DataflowGraph
from ..lowering import library_file
from ..lowering.apply import applied
from ..lowering.fuse import fused
from ..lowering.offload import offloaded_module
from ..lowering.outline import NameSupply
from ..lowering.seal import facts_in
from ..making import imported_for
from ..pipeline import Pipeline
from ..placing import placed
from ..plan.candidate import VIEW
from ..plan.plan import Plan
from ..profile.agreement import drawn_inputs
from ..profile.in_place import profile
from ..profile.result import Profile
from ..program.facts import Facts, plans_in
from ..program.loading import load
from .bisection.partial import annotated_with, candidates_of_plan


def profile_saved(
    path: str | Path,
    model: Model,
    pipeline: Pipeline | None = None,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    seconds: float = 1.0,
    target: Target | str | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    database: CostDatabase | None = None,
) -> Profile:
    """The profile of the program in the file ``path``, which was compiled from ``model``.

    The file has the plan of the program, but its code has no timing points. So the kernels of that plan are built once
    more from the model, with timing points. This twin runs in turns with the program of the file. Branches that run
    side by side in the file run one after the other in the twin.

    ``pipeline``, ``target``, ``shapes`` and ``dims`` are those of the compile. ``database``: has the peaks of this
    machine, if they are known. Raises CollageError where the plan is not one of this model with these options.
    """
    program = load(path)
    with library_file.opened(path) as file:
        facts: Facts = facts_in(file)
    model, scope = placed(model, target, False)
    pipeline = pipeline or Pipeline()
    source, imported = imported_for(model, pipeline, scope, shapes, dims)
    taken = signature_of(source.mod, imported, source.inputs, source.outputs)
    if program.input_names != source.inputs:
        raise CollageError(f"{path} takes and returns {program.signature}, but the model {taken}")
    annotated = annotated_with(pipeline.until_candidates(), imported, scope)
    try:
        mod = module_of_plans(annotated, plans_in(facts), scope)
    except CollageError as error:
        raise CollageError(f"{error}: give the options that {path} was compiled with") from error
    given = dict(inputs or drawn_inputs(program))
    return profile(program, (), given, seconds, scope, database, mod=mod)


def module_of_plans(prepared: IRModule, plans: Mapping[str, Plan], target: Target) -> IRModule:
    """The final module of given plans, with these as its own; ``prepared`` has the candidates of its model.

    Raises CollageError where a kernel is not one of its candidates, and where there is no plan.
    """
    functions: dict[Any, Any] = dict(prepared.functions_items())
    named, names = {gvar.name_hint: gvar for gvar in functions}, NameSupply(prepared)
    with_kernels = {name: plan for name, plan in plans.items() if plan.kernels}
    if not with_kernels:
        raise CollageError("the file has no plan with kernels: profile the model that it was compiled from")
    for name, plan in with_kernels.items():
        func = functions.get(named.get(name))
        if not isinstance(func, relax.Function) or not CANDIDATES.on(func):
            raise CollageError(f"the program has kernels in {name}, and the model has no such function")
        graph = DataflowGraph(func, prepared)
        chosen = candidates_of_plan(graph, plan)
        result, groups, outlined = applied(graph, chosen, names)
        made = [group.name for group, each in zip(groups, chosen, strict=True) if each.backend != VIEW]
        kernels = tuple(
            replace(kernel, function=function) for kernel, function in zip(plan.kernels, made, strict=True)
        )
        functions |= {named[name]: PLAN.write(result, replace(plan, kernels=kernels)), **outlined}
    joined = IRModule(functions, attrs=prepared.attrs, global_infos=prepared.global_infos)
    with target:
        return fused(offloaded_module(relax.transform.Normalize()(joined)), target)
