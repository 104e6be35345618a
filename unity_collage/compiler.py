"""``compile``: import, the passes of ``passes.collage``, ``relax.build``; nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.backend.cpu_generic import pipeline as cpu_pipeline
from tvm.target import Target

from .annotations import PLAN
from .cost.database import CostDatabase
from .cost.measured import MeasuredCost
from .cost.workload import CostModel, Progress
from .errors import ModelError
from .frontend import Model, import_model
from .passes.pipeline import collage
from .program import Program
from .target import host_target


def compile(
    model: Model,
    target: Target | None = None,
    backends: Sequence[str] | None = None,
    database: CostDatabase | str | Path | None = None,
    progress: Progress | None = None,
) -> Program:
    """The fastest program for ``model`` that the ``backends`` make together, by measured cost.

    ``target`` defaults to the host. ``backends`` are names in preference order, by default all that are
    available; without ``"tvm"`` among them TVM gets only what no other takes. Prices are kept in
    ``database``, by default in the user's cache directory.
    """
    return compile_with(collage(backends, _cost_model(database, progress)), model, target)


def compile_with(passes: tvm.transform.Pass, model: Model, target: Target | None = None) -> Program:
    """:func:`compile` with other ``passes`` in place of ours: a cost model, a backend or a pass of your own."""
    imported, names = import_model(model)
    if not any(gvar.name_hint == "main" for gvar in imported.get_global_vars()):
        raise ModelError("the module has no function named main")
    with target or host_target() as scope:
        partitioned = passes(imported)
        executable = build(partitioned, scope)
    input_names = names or [param.name for param in imported["main"].params]
    return Program(executable, input_names, partitioned, plans(partitioned))


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build`` for a module that the passes have made ready.

    Bytecode, since compiled VM functions look libraries up in the wrong module: TVM links ``external_mods`` beside
    the generated code, which searches only what is linked below itself.
    """
    return relax.build(mod, target, relax_pipeline=_branching_pipeline() if _branches(mod) else "default")


def _branches(mod: IRModule) -> bool:
    """Whether any function chooses between two computations as it runs."""
    found: list[relax.Expr] = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, found.append)
    return any(isinstance(expr, relax.If) for expr in found)


def _branching_pipeline() -> tvm.transform.Sequential:
    """TVM's pipeline for CPUs without its memory planner, by which the one branch of an ``If`` uses storage that only
    the other allocates."""
    steps = [
        *cpu_pipeline.library_dispatch_passes(None),
        *cpu_pipeline.legalize_passes(None),
        *cpu_pipeline.dataflow_lower_passes(None),
        *cpu_pipeline.finalize_passes(None),
    ]
    return tvm.transform.Sequential([step for step in steps if step.info.name != "StaticPlanBlockMemory"])


def plans(mod: IRModule) -> dict[str, object]:
    """The plan of each partitioned function, as plain data."""
    return {
        gvar.name_hint: PLAN.read(func)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and PLAN.on(func)
    }


def _cost_model(database: CostDatabase | str | Path | None, progress: Progress | None) -> CostModel:
    opened = CostDatabase(database) if isinstance(database, (str, Path)) else database
    return MeasuredCost(opened) if progress is None else MeasuredCost(opened, progress=progress)
