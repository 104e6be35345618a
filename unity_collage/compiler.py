"""``compile``: import, the passes of ``passes.collage``, ``relax.build``; nothing else."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from . import runtime
from .annotations import PLAN
from .build import build
from .cost.database import CostDatabase, default_path
from .cost.measured import MeasuredCost
from .cost.workload import CostModel, Progress
from .errors import CollageError, ModelError, first_line
from .frontend import Model, import_model
from .passes.pipeline import collage
from .program import Program
from .target import host_target


def compile(
    model: Model,
    target: Target | None = None,
    backends: str | Sequence[str] | None = None,
    database: CostDatabase | str | Path | None = None,
    progress: Progress | None = None,
) -> Program:
    """The fastest program for ``model`` that the ``backends`` make together, by measured cost.

    ``target`` defaults to the host. ``backends`` are names in preference order, by default all that are
    available; without ``"tvm"`` among them TVM gets only what no other takes. Prices are kept in
    ``database``, by default in the user's cache directory. ``progress`` is told what is being measured.
    """
    backends = (backends,) if isinstance(backends, str) else backends
    return compile_with(collage(backends, _cost_model(database, progress)), model, target)


def compile_with(passes: tvm.transform.Pass, model: Model, target: Target | None = None) -> Program:
    """:func:`compile` with other ``passes`` in place of ours: a cost model, a backend or a pass of your own."""
    imported, names = import_model(model)
    if not any(gvar.name_hint == "main" for gvar in imported.get_global_vars()):
        raise ModelError("the module has no function named main")
    scope = target or host_target()
    if scope.kind.name != "llvm":
        raise CollageError(f"the target is {scope.kind.name}; programs are made for CPUs (llvm) only")
    conflict = runtime.why_pools_conflict()
    if conflict is not None:
        warnings.warn(conflict, stacklevel=3)
    with scope:
        partitioned = passes(imported)
        executable = build(partitioned, scope)
    input_names = names or [param.name for param in imported["main"].params]
    return Program(executable, input_names, partitioned, plans(partitioned))


def plans(mod: IRModule) -> dict[str, object]:
    """The plan of each partitioned function, as plain data."""
    return {
        gvar.name_hint: PLAN.read(func)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and PLAN.on(func)
    }


def open_database(path: str | Path | None = None) -> CostDatabase:
    """The prices in a file, by default in the user's cache; raises CollageError where there can be none."""
    try:
        return CostDatabase(path)
    except (OSError, sqlite3.Error) as error:
        raise CollageError(
            f"prices cannot be kept in {path or default_path()}: {first_line(error)}"
        ) from error


def _cost_model(database: CostDatabase | str | Path | None, progress: Progress | None) -> CostModel:
    opened = database if isinstance(database, CostDatabase) else open_database(database)
    return MeasuredCost(opened) if progress is None else MeasuredCost(opened, progress=progress)
