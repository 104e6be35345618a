"""``compile``: import, the passes of the pipeline, ``relax.build``, and a recheck of the program against its costs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from . import runtime
from .annotations import EXPLANATION, PLAN
from .backends.registry import select
from .cost.model import Capability, CostModel, Progress
from .database.costs import CostDatabase
from .errors import CollageError, ModelError
from .feedback.builder import built_by_tvm
from .feedback.comparison import STOCK
from .feedback.recheck import in_time
from .feedback.refine import refined
from .feedback.settings import Refinement, Tell
from .frontend.models import Model, import_model
from .lowering.build import build
from .measure.inputs import random_inputs
from .measure.measured import MeasuredCost
from .passes.annotate_candidates import WINOGRAD
from .passes.schedule_branches import ScheduleBranches
from .passes.search_partition import SearchPartition
from .pipeline import FLOAT32, Pipeline
from .plan.explanation import Explanation
from .program import Program
from .rules.base import why_not_static
from .specs import PartitionSpec
from .target import host_target

_NARROW_TOLERANCE = 5e-2
"""How far outputs of whole programs may differ, over their range, if one of them computes with 8 bits of precision."""


def compile(
    model: Model,
    target: Target | None = None,
    backends: str | Sequence[str] | None = None,
    database: CostDatabase | str | Path | None = None,
    *,
    progress: Progress | None = None,
    locked: bool = False,
    budget_seconds: float | None = None,
    explain: bool = False,
    specs: Sequence[PartitionSpec] = (),
    allow_winograd: bool = True,
    search_layouts: bool = False,
    tune_trials: int = 0,
    refine: Refinement | None = None,
    tell: Tell = lambda _: None,
    precision: str = FLOAT32,
    estimator: CostModel | None = None,
) -> Program:
    """Compile ``model`` to the fastest program that the ``backends`` make together, by measured cost.

    * ``target``: the processor to compile for. By default the host, or the machine of the ``estimator``.
    * ``backends``: names in preference order; by default all that are available. Without ``"tvm"`` among them TVM gets
      only what no other backend takes.
    * ``database``: the database of costs, a path or a ``postgresql://`` URL; by default a file in the user's cache
      directory. When it is ``locked`` nothing is measured or written, and a missing cost is an error.
    * ``progress`` is called with what is being measured, ``tell`` with what else is being done.
    * ``budget_seconds``: the limit for measuring. What matters most is measured first, and the plan is the best one
      that is known by then.
    * ``explain``: fill ``program.explanation``, which says for every candidate why it was chosen or not.
    * ``specs``: partition rules of your own.
    * ``allow_winograd``: let convolutions use Winograd's algorithm, which rounds differently.
    * ``search_layouts``: let the search choose the layout of each image between two kernels, channels last or first.
      Twice as many kernels are measured. Channels last is the best layout for nearly all images.
    * ``tune_trials``: how many schedules MetaSchedule tries for each TVM kernel that could still be in the plan.
    * ``refine``: compare candidate programs: ours, those of each backend alone, of a greedy partitioner, and of TVM
      alone. The fastest is the result, and the plan of ``main`` has the ``comparison``.
    * ``precision``: with ``"bf16"`` convolutions and products read bfloat16, and values between them are stored in it.
      Inputs, outputs and all other arithmetic stay float32.
    * ``estimator``: the source of costs, such as :class:`unity_collage.measure.remote.RemoteCost`. It has its own
      database, progress and budget; those given here are not used.
    """
    costs = estimator or cost_model(database, progress, locked, budget_seconds)
    pipeline = Pipeline(
        backends=_names(backends),
        model=costs,
        specs=tuple(specs),
        without=() if allow_winograd else WINOGRAD,
        precision=precision,
        layouts=search_layouts,
        tune_trials=tune_trials,
        lazy=costs.has_budget and not tune_trials,
        explain=explain,
    )
    imported, names, scope = _checked(model, target or costs.target(), keep_names=explain)
    if refine is not None:
        return _refined(pipeline, imported, names, scope, refine, tell)
    checked = in_time(
        lambda **changes: tvm.transform.Sequential(replace(pipeline, **changes).passes(), name="collage"),
        imported,
        scope,
        costs,
    )
    program = _program(checked.executable, names, imported, checked.mod, partial(build, checked.mod, scope))
    program.add_to_plan("main", measured_seconds=checked.seconds, remarks=checked.remarks)
    return program


def _refined(
    pipeline: Pipeline,
    imported: IRModule,
    names: Sequence[str] | None,
    target: Target,
    settings: Refinement,
    tell: Tell,
) -> Program:
    """The fastest of several candidate programs."""
    costs = pipeline.model
    if reason := costs.why_not(Capability.RUN_PROGRAMS):
        raise CollageError(f"candidate programs cannot be compared: {reason}")
    if pipeline.precision != FLOAT32:
        settings = replace(settings, tolerance=max(settings.tolerance, _NARROW_TOLERANCE))
    inputs = _refinement_inputs(imported["main"])  # fails before anything is measured
    database, locked = costs.database_and_lock()
    with target:
        priority = tuple(backend.name for backend in select(pipeline.backends, target))
        pipeline = replace(pipeline, programs=priority)
        costed = tvm.transform.Sequential(pipeline.until_costs())(imported)
        best = refined(
            costed,
            imported,
            inputs,
            priority,
            target,
            settings,
            tell,
            database,
            locked,
            costs.is_budget_spent,
        )
        final = ScheduleBranches(costs)(best.mod)
        executable = build(final, target) if _has_branches(final) else best.executable
        searched = SearchPartition(explain=True)(costed) if pipeline.explain else None
    program = _program(
        executable,
        names,
        imported,
        final,
        partial(built_by_tvm, imported, target)
        if best.report.winner == STOCK
        else partial(build, final, target),
    )
    program.add_to_plan("main", comparison=best.report)
    if searched is not None:
        program.explanation = EXPLANATION.by_function(searched)
    return program


def _has_branches(mod: IRModule) -> bool:
    """Whether ScheduleBranches has put branches side by side."""
    found = PLAN.by_function(mod).get("main")
    return found is not None and found.branches is not None


def _names(backends: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if backends is None:
        return None
    return (backends,) if isinstance(backends, str) else tuple(backends)


def explain(model: Model, pipeline: Pipeline, target: Target | None = None) -> dict[str, Explanation]:
    """Why each candidate of each function was chosen or not; nothing is built.

    The names of variables are those of the values in the ONNX model.
    """
    imported, _, scope = _checked(model, target or pipeline.model.target(), keep_names=True)
    asked = replace(pipeline, explain=True)
    with scope:
        searched = tvm.transform.Sequential([*asked.until_costs(), asked.search()])(imported)
    return EXPLANATION.by_function(searched)


def compile_with(
    passes: tvm.transform.Pass, model: Model, target: Target | None = None, keep_names: bool = False
) -> Program:
    """:func:`compile` with other ``passes`` than ours: with a cost model, a backend or a pass of your own.

    ``keep_names``: give the variables of ``main`` the names of the values in the ONNX model, for reports.
    """
    imported, names, scope = _checked(model, target, keep_names)
    with scope:
        partitioned = passes(imported)
    return _program(
        build(partitioned, scope), names, imported, partitioned, partial(build, partitioned, scope)
    )


def _checked(
    model: Model, target: Target | None, keep_names: bool = False
) -> tuple[IRModule, tuple[str, ...] | None, Target]:
    """The module, the names of its inputs, and the target; raises CollageError where no program can be made of them."""
    imported, names = import_model(model, keep_names)
    if not any(gvar.name_hint == "main" for gvar in imported.get_global_vars()):
        raise ModelError("the module has no function named main")
    scope = target or host_target()
    if scope.kind.name != "llvm":
        raise CollageError(f"the target is {scope.kind.name}, but programs are compiled for CPUs (llvm) only")
    conflict = runtime.why_pools_conflict()
    if conflict is not None:
        warnings.warn(conflict, stacklevel=4)
    return imported, names, scope


def _program(
    executable: relax.VMExecutable,
    names: Sequence[str] | None,
    imported: IRModule,
    final: IRModule,
    relink: Callable[[], relax.VMExecutable],
) -> Program:
    input_names = names or [param.name for param in imported["main"].params]
    return Program(
        executable,
        input_names,
        final,
        PLAN.by_function(final),
        EXPLANATION.by_function(final) or None,
        relink,
    )


def _refinement_inputs(main: relax.Function) -> list[np.ndarray]:
    """Random inputs for a whole model; raises CollageError where shapes are not known."""
    for param in main.params:
        reason = why_not_static(param)
        if reason is not None:
            raise CollageError(f"the program cannot be timed as a whole: {reason}")
    return random_inputs(main)


def cost_model(
    database: CostDatabase | str | Path | None,
    progress: Progress | None = None,
    locked: bool = False,
    budget_seconds: float | None = None,
) -> CostModel:
    """Costs measured on this machine, in ``database``; ``progress`` is called with what is being measured."""
    opened = database if isinstance(database, CostDatabase) else CostDatabase(database, read_only=locked)
    model = MeasuredCost(opened, locked=locked, budget_seconds=budget_seconds)
    return model if progress is None else replace(model, progress=progress)
