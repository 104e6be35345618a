"""Softmax, normalisation, reductions of rows: all stages of one row while it is in the cache.

    m = max(x); e = exp(x - m); s = sum(e); y = e / s      each over all rows
        ->   for each row, in parallel: m, e, s, y
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx.stmt import Stmt

from . import build, injective, lanes
from .machine import Machine
from .stage import Iter, Stage


def emit(stages: Sequence[Stage], machine: Machine, threads: bool) -> Stmt | str:
    """The stages row by row, or the reason why they have no rows in common."""
    axes = common_axes(stages)
    if isinstance(axes, str):
        return axes
    rows, of_stage = axes

    def row(values: dict[tirx.Var, Expr]) -> Stmt:
        return build.seq(*(_inner(stage, own, values, machine) for stage, own in zip(stages, of_stage, strict=True)))

    return build.parallel(rows, row, threads)


def _inner(stage: Stage, own: dict[tirx.Var, tirx.Var], values: dict[tirx.Var, Expr], machine: Machine) -> Stmt:
    """One stage inside a row: ``own`` says which of its iterators is which row axis."""
    rest = [it for it in stage.iters if it.var not in own]
    part = stage.substituted({mine: values[axis] for mine, axis in own.items()}, rest)
    if part.init is None:
        return injective.emit(part, machine, False)
    return build.nest(part.spatial, lambda inner: lanes.emit(part.substituted(inner, part.reduction), machine))


def common_axes(stages: Sequence[Stage]) -> tuple[list[Iter], list[dict[tirx.Var, tirx.Var]]] | str:
    """The axes of the last stage that every stage walks through independently, and their names in each."""
    last = stages[-1]
    owner = {store.buffer: i for i, stage in enumerate(stages) for store in stage.stores}
    axes: list[dict[tirx.Var, tirx.Var]] = [{} for _ in stages]
    axes[-1] = {it.var: it.var for it in last.spatial}
    lost: list[tirx.Var] = []
    for i in reversed(range(len(stages))):
        for load in stages[i].loads:
            j = owner.get(load.source, i)
            if j != i:
                lost += _unify(stages[j], axes[j], load.indices, axes[i], last.spatial)
    found = [it for it in last.spatial if it.var not in lost and all(it.var in own.values() for own in axes)]
    if not found:
        return "the stages have no axis in common"
    kept = {it.var for it in found}
    return found, [{mine: axis for mine, axis in own.items() if axis in kept} for own in axes]


def _unify(
    producer: Stage, own: dict[tirx.Var, tirx.Var], indices: Sequence[Expr], reader: dict[tirx.Var, tirx.Var],
    axes: Sequence[Iter],
) -> list[tirx.Var]:  # fmt: skip
    """Name the iterators of ``producer`` after the axes that read it; returns the axes that do not fit."""
    store = producer.store
    if store is None:
        return [it.var for it in axes]
    lost: list[tirx.Var] = []
    seen: list[tirx.Var] = []
    for written, read in zip(store.indices, indices, strict=True):
        axis = reader.get(read) if isinstance(read, tirx.Var) else None
        if axis is None or not isinstance(written, tirx.Var):
            lost += [own[written]] if isinstance(written, tirx.Var) and written in own else []
            continue
        if not own.setdefault(written, axis).same_as(axis):
            lost += [axis, own[written]]
        seen.append(axis)
    return lost + [axis for axis in own.values() if axis not in seen]
