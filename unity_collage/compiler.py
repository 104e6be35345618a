"""``compile``: import, the passes of ``passes.collage``, ``relax.build``; nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tvm import relax
from tvm.ir import IRModule
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
    imported, names = import_model(model)
    if not any(gvar.name_hint == "main" for gvar in imported.get_global_vars()):
        raise ModelError("the module has no function named main")
    with target or host_target() as scope:
        partitioned = collage(backends, _cost_model(database, progress))(imported)
        program = build(partitioned, scope)
        input_names = names or [param.name for param in imported["main"].params]
    return Program(program, input_names, partitioned, plans(partitioned))


def build(mod: IRModule, target: Target) -> relax.VMExecutable:
    """``relax.build`` for a module that the passes have made ready.

    Bytecode, since compiled VM functions look libraries up in the wrong module: TVM links ``external_mods`` beside
    the generated code, which searches only what is linked below itself.
    """
    return relax.build(mod, target)


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
