"""``compile``: import, the passes of ``passes.collage``, ``relax.build``, a second look."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from . import runtime
from .annotations import PLAN
from .backends.registry import select
from .cost.model import CostModel, Progress
from .database.costs import CostDatabase
from .errors import CollageError, ModelError
from .feedback import Refinement, refined
from .feedback.pricing import EstimateCostsOfEntrants
from .feedback.recheck import in_time
from .feedback.settings import Tell
from .frontend.models import Model, import_model
from .lowering.build import build
from .measure.inputs import random_inputs
from .measure.measured import MeasuredCost
from .passes.annotate_candidates import WINOGRAD
from .passes.schedule_branches import ScheduleBranches
from .passes.search_partition import SearchPartition
from .pipeline import FLOAT32, annotating, collage, pricing
from .plan.explanation import encode
from .plan.plan import EMPTY_PLAN
from .program import Program
from .report.writing import explanations
from .rules.base import why_not_static
from .specs import PartitionSpec
from .target import host_target

NARROW_TOLERANCE = 5e-2
"""How far outputs of whole programs may differ, over their range, where one of them rounds to 8 bits."""


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
    """The fastest program for ``model`` that the ``backends`` make together, by measured cost.

    * ``target``: the host by default, or the machine that the ``estimator`` has prices of.
    * ``backends``: names in preference order, by default all that are available; without ``"tvm"`` among them
      TVM gets only what no other takes.
    * ``database``: where prices are kept, a path or a ``postgresql://`` URL, by default in the user's cache
      directory. When it is ``locked`` nothing is measured or written, and a missing price is an error.
    * ``progress`` is told what is being measured, ``tell`` what else is being done.
    * ``budget_seconds`` bounds the time that measuring takes, what matters most first; the plan is the best one
      known by then.
    * ``explain`` makes ``program.explanation``: of every candidate, why it was chosen or not.
    * ``specs``: partition rules of your own.
    * ``allow_winograd``: convolutions may be computed by Winograd's algorithm, which rounds differently.
    * ``search_layouts``: the search also chooses the layout of each image between two kernels, channels last or first;
      with twice the kernels to measure. Channels last has been the best for nearly all of them.
    * ``tune_trials``: so many schedules MetaSchedule tries for each kernel of TVM that could still win.
    * ``refine``: whole programs compete, ours with what each backend alone, a greedy partitioner and TVM alone make;
      the fastest is the result, and the plan of ``main`` has the report as ``refinement``.
    * ``precision``: ``"bf16"`` lets convolutions and products read bfloat16, and stores in it what lies between them;
      inputs, outputs and all other arithmetic stay float32.
    * ``estimator``: where prices come from, such as :class:`unity_collage.measure.remote.RemoteCost`; it has its own
      database, progress and budget, and those given here are not used.
    """
    backends = (backends,) if isinstance(backends, str) else backends
    costs = estimator or cost_model(database, progress, locked, budget_seconds)
    target = target or (costs.target() if isinstance(costs, Elsewhere) else None)
    without = () if allow_winograd else WINOGRAD
    on_budget = _budget_of(costs) is not None and not tune_trials
    if refine is None:
        passes = partial(
            collage,
            backends,
            costs,
            explain=explain,
            specs=specs,
            without=without,
            lazy=on_budget,
            tune_trials=tune_trials,
            precision=precision,
            layouts=search_layouts,
        )
        imported, names, scope = _checked(model, target, keep_names=explain)
        final, executable, seconds = in_time(passes, imported, scope, costs)
        remarks = {} if seconds is None else {"measured_seconds": seconds}
        return _program(executable, names, imported, final, remarks)
    if isinstance(costs, Elsewhere):
        raise CollageError("whole programs run on this machine, so prices of another one cannot be refined")
    if precision != FLOAT32:
        refine = replace(refine, tolerance=max(refine.tolerance, NARROW_TOLERANCE))
    imported, names, scope = _checked(model, target, keep_names=explain)
    inputs = refinement_inputs(imported["main"])  # before anything is measured: it may not be possible
    with scope:
        priority = [backend.name for backend in select(backends, scope)]
        priced_by = [EstimateCostsOfEntrants(costs, priority)] if on_budget else pricing(costs, tune_trials)
        passes = tvm.transform.Sequential(
            [*annotating(backends, specs, without, precision, search_layouts), *priced_by]
        )
        priced = passes(imported)
        searched = SearchPartition(explain=True)(priced) if explain else None
        best = refined(priced, imported, inputs, priority, scope, refine, tell, **_kept_by(costs))
        final = ScheduleBranches(costs)(best.mod)
        is_staged = "branches" in plans(final).get("main", {})
        executable = build(final, scope) if is_staged else best.executable
    program = _program(executable, names, imported, final, {"refinement": best.report})
    if searched is not None:
        program.explanation = explained(searched)
    return program


@runtime_checkable
class Elsewhere(Protocol):
    """A cost model with the prices of another machine."""

    def target(self) -> Target:
        """What programs for that machine are compiled for."""
        ...


def _budget_of(costs: CostModel) -> float | None:
    return costs.budget_seconds if isinstance(costs, MeasuredCost) else None


def _kept_by(costs: CostModel) -> dict[str, Any]:
    """Where races are kept, and until when anything is measured."""
    if not isinstance(costs, MeasuredCost):
        return {}
    return {
        "database": costs.database,
        "locked": costs.locked,
        "is_budget_spent": costs.is_budget_spent,
    }


def compile_with(
    passes: tvm.transform.Pass, model: Model, target: Target | None = None, keep_names: bool = False
) -> Program:
    """:func:`compile` with other ``passes`` in place of ours: a cost model, a backend or a pass of your own.

    ``keep_names``: variables of ``main`` are called as an ONNX model calls its values, for reports.
    """
    imported, names, scope = _checked(model, target, keep_names)
    with scope:
        partitioned = passes(imported)
    return _program(build(partitioned, scope), names, imported, partitioned)


def _checked(
    model: Model, target: Target | None, keep_names: bool = False
) -> tuple[IRModule, tuple[str, ...] | None, Target]:
    """The module, the names of its inputs and the target, if a program can be made of them."""
    imported, names = import_model(model, keep_names)
    if not any(gvar.name_hint == "main" for gvar in imported.get_global_vars()):
        raise ModelError("the module has no function named main")
    scope = target or host_target()
    if scope.kind.name != "llvm":
        raise CollageError(f"the target is {scope.kind.name}; programs are made for CPUs (llvm) only")
    conflict = runtime.why_pools_conflict()
    if conflict is not None:
        warnings.warn(conflict, stacklevel=4)
    return imported, names, scope


def _program(
    executable: relax.VMExecutable,
    names: Sequence[str] | None,
    imported: IRModule,
    final: IRModule,
    remarks: Mapping[str, object] | None = None,
) -> Program:
    input_names = names or [param.name for param in imported["main"].params]
    found = plans(final)
    if remarks:
        found["main"] = {**found.get("main", EMPTY_PLAN), **remarks}
    return Program(executable, input_names, final, found, explained(final))


def explained(mod: IRModule) -> dict[str, Any] | None:
    """The explanations in ``mod`` as plain data, by function; None if there are none."""
    return {name: encode(found) for name, found in explanations(mod).items()} or None


def refinement_inputs(main: relax.Function) -> list[np.ndarray]:
    """Random inputs to run a whole model on; raises CollageError where shapes are not known."""
    for param in main.params:
        reason = why_not_static(param)
        if reason is not None:
            raise CollageError(f"the program cannot be timed as a whole: {reason}")
    return random_inputs(main)


def plans(mod: IRModule) -> dict[str, dict[str, object]]:
    """The plan of each partitioned function, as plain data."""
    return {
        gvar.name_hint: PLAN.read(func)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and PLAN.on(func)
    }


def open_database(where: str | Path | None = None, locked: bool = False) -> CostDatabase:
    """The prices in a file or on a server, by default in the user's cache; ``locked`` ones are only read."""
    return CostDatabase(where, read_only=locked)


def cost_model(
    database: CostDatabase | str | Path | None,
    progress: Progress | None = None,
    locked: bool = False,
    budget_seconds: float | None = None,
) -> CostModel:
    """Measured prices, kept in ``database``; ``progress`` is told what is being measured."""
    opened = database if isinstance(database, CostDatabase) else open_database(database, locked)
    told = {} if progress is None else {"progress": progress}
    return MeasuredCost(opened, locked=locked, budget_seconds=budget_seconds, **told)
