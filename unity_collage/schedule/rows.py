"""Softmax, normalisation, reductions of rows: all stages of a row are computed while the row is in the cache.

    m = max(x); e = exp(x - m); s = sum(e); y = e / s      each over all rows
        ->   for each row, in parallel: m, e, s, y

If neighbouring rows are adjacent in memory (softmax over the channels of NCHW), some vectors of rows are computed
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import tvm_ffi
from tvm import sym, tirx
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, injective, lanes, vectors
from .axes import axis, split_groups
from .cpu import CpuTraits
from .stage import Buffer, Expr, Iter, Stage, Var, static, stride

_VECTORS_OF_ROWS = 4

Names = dict[Var, Var]
"""For each iterator of a stage its row axis; iterators inside a row have none."""


def emit(stages: Sequence[Stage], cpu: CpuTraits, threads: bool, later: Sequence[Stage] = ()) -> Stmt | str:
    """Loops that compute the stages row by row, or the reason why the stages have no rows in common.

    ``later``: the stages of the kernel behind these.
    """
    stages = (*stages[:-1], *split_groups(stages[-1:], stages[-1].spatial))
    found = common_axes(stages)
    if isinstance(found, str):
        return found
    rows, names = found
    for stage, own in zip(stages, names, strict=True):
        if stage.init is not None and any(it.var not in own and it.size != 1 for it in stage.spatial):
            return f"{stage.name} has many results in a row"
    along = _adjacent_axis(stages, rows, names)

    def each(values: Mapping[Var, Expr], lane: Iter | None) -> Stmt:
        return build.seq(
            *(_inside(stage, own, values, lane, cpu) for stage, own in zip(stages, names, strict=True))
        )

    if along is None:
        return build.parallel(rows, lambda values: each(values, None), threads)
    one = min(vectors.lanes(stage, cpu) for stage in stages)
    exact = stages[-1].once_only or any(_must_write_once(stage, later) for stage in stages)
    width = build.tile_size(along.size or 1, one * _VECTORS_OF_ROWS, exact)
    width = width if exact else build.power_of_two(width)
    turns, left = build.tiled(along.size or 1, width)
    turn, lane = axis(along.var, turns), axis(along.var, width)

    def some(values: Mapping[Var, Expr]) -> Stmt:
        return each({**values, along.var: left(values[turn.var]) + lane.var}, lane)

    return build.parallel([*(it for it in rows if it is not along), turn], some, threads)


def of_one_thread(stages: Sequence[Stage], later: Sequence[Stage]) -> list[Buffer]:
    """The temporaries that belong into the memory of a thread: no stage of ``later`` reads them, and a row has a known
    number of their elements.

    Memory for an unknown number is allocated for each row, which takes longer than to go through a large temporary.
    """
    found = common_axes(stages)
    names: Sequence[Names] = [] if isinstance(found, str) else found[1]
    own = [
        stage.stores
        for stage, inside in zip(stages, names, strict=False)
        if stage.temporary
        and all(it.var in inside or it.size is not None for it in stage.spatial)
        and not any(reader.reads(stage) for reader in later)
    ]
    return list(dict.fromkeys(store.buffer for stores in own for store in stores))


def _must_write_once(stage: Stage, later: Sequence[Stage]) -> bool:
    """Whether two threads must not write the same element.

    A temporary that no later stage reads is in the memory of one thread, and a reduction writes its first value there.
    """
    if stage.passed_on or (stage.temporary and any(reader.reads(stage) for reader in later)):
        return True
    return stage.updates_itself and (stage.init is None or not stage.temporary)


def _adjacent_axis(stages: Sequence[Stage], rows: Sequence[Iter], names: Sequence[Names]) -> Iter | None:
    """The row axis along which the result is contiguous and every tensor contiguous or constant, or None."""
    analyzer, store = sym.Analyzer(), stages[-1].store
    for row in rows:
        if store is None or row.size in (None, 1) or static(stride(store, row.var, analyzer)) != 1:
            continue
        for stage, own in zip(stages, names, strict=True):
            mine = [var for var, axis_of in own.items() if axis_of.same_as(row.var)]
            steps = [static(stride(access, mine[0], analyzer)) for access in (*stage.loads, *stage.stores)]
            if stage.store is None or any(step not in (0, 1) for step in steps):
                return None
        return row
    return None


def _inside(
    stage: Stage, own: Names, values: Mapping[Var, Expr], lane: Iter | None, cpu: CpuTraits
) -> Stmt:  # fmt: skip
    """One stage inside a row, or inside several adjacent rows, which are then the lanes."""
    rest = [it for it in stage.iters if it.var not in own]
    part = stage.substituted({mine: values[row] for mine, row in own.items()}, rest)
    if lane is not None:
        return _adjacent_rows(part, lane)
    if part.init is None:
        return injective.emit(part, cpu, False)
    return build.nest(part.spatial, lambda inner: lanes.emit(part.substituted(inner, part.reduction), cpu))


def _adjacent_rows(part: Stage, lane: Iter) -> Stmt:
    """A stage inside several adjacent rows: each statement is vectorised over the rows."""

    def step(statement: Stmt, inner: Mapping[Var, Expr]) -> Stmt:
        whole = Stage(part.name, (lane,), None, statement).substituted(inner, [lane])

        def at(i: Expr) -> Stmt:
            return whole.substituted({lane.var: i}, []).body

        return build.loop(lane.extent, at, lane.var, ForKind.VECTORIZED)

    def one(inner: Mapping[Var, Expr]) -> Stmt:
        def turn(k: Mapping[Var, Expr]) -> Stmt:
            return step(part.body, {**inner, **k})

        steps = build.nest(part.reduction, turn)
        return steps if part.init is None else build.seq(step(part.init, inner), steps)

    return build.nest(part.spatial, one)


def common_axes(stages: Sequence[Stage]) -> tuple[list[Iter], list[Names]] | str:
    """The axes of the last stage that all stages have in common, and their names in each stage.

    Going backwards, the iterators of each stage are unified with the axes by which its readers index its result. An
    axis is dropped if that fails for some stage. Or the reason why no axis is left.
    """
    last = stages[-1]
    owner = {store.buffer: i for i, stage in enumerate(stages) for store in stage.stores}
    names: list[Names] = [{} for _ in stages]
    names[-1] = {it.var: it.var for it in last.spatial}
    lost: list[Var] = []
    for i in reversed(range(len(stages))):
        for load in stages[i].loads:
            j = owner.get(load.source, i)
            if j != i:
                lost += _unify(stages[j], names[j], load.indices, names[i], last.spatial)
    for i, stage in enumerate(stages):
        for load in stage.loads:
            j = owner.get(load.source, i)
            if j != i:
                lost += _in_other_rows(stages[j], names[j], load.indices, names[i])
    extents = {it.var: it.extent for it in last.spatial}
    for stage, own in zip(stages, names, strict=True):
        lost += [row for row, count in Counter(own.values()).items() if count > 1]
        for it in stage.spatial:
            if it.var in own and not tvm_ffi.structural_equal(it.extent, extents[own[it.var]]):
                lost.append(own[it.var])
    rows = [it for it in last.spatial if it.var not in lost and all(it.var in own.values() for own in names)]
    if not rows:
        return "the stages have no axis in common"
    kept = {it.var for it in rows}
    return rows, [{mine: row for mine, row in own.items() if row in kept} for own in names]


def _in_other_rows(producer: Stage, own: Names, indices: Sequence[Expr], reader: Names) -> list[Var]:
    """The axes along which a reader takes elements of ``producer`` in other rows than its own."""
    if producer.store is None:
        return list(own.values())
    found: list[Var] = []
    for written, read in zip(producer.store.indices, indices, strict=True):
        row = own.get(written) if isinstance(written, tirx.Var) else None
        here = reader.get(read) if isinstance(read, tirx.Var) else None
        if row is not None and (here is None or not row.same_as(here)):
            found.append(row)
    return found


def _unify(
    producer: Stage, own: Names, indices: Sequence[Expr], reader: Names, axes: Sequence[Iter]
) -> list[Var]:
    """Name the iterators of ``producer`` after the axes that index its result; returns the axes that do not fit."""
    store = producer.store
    if store is None:
        return [it.var for it in axes]
    lost: list[Var] = []
    seen: list[Var] = []
    for written, read in zip(store.indices, indices, strict=True):
        row = reader.get(read) if isinstance(read, tirx.Var) else None
        if row is None or not isinstance(written, tirx.Var):
            lost += [own[written]] if isinstance(written, tirx.Var) and written in own else []
            continue
        if not own.setdefault(written, row).same_as(row):
            lost += [row, own[written]]
        seen.append(row)
    return lost + [row for row in own.values() if row not in seen]
