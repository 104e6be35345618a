"""Products, convolutions, pooling, reductions across memory: a register tile of results at a time.

    c[i, j] = sum(a[i, k] * b[k, j]);  d[i, j] = relu(c[i, j] + bias[j])
        ->  for each tile, in parallel:
                acc[r, l] = 0;  for k: acc[r, l] += a[i + r, k] * b[k, j + l];  d[i + r, j + l] = relu(acc[r, l] + ...)

``l`` runs over vector lanes and ``r`` is unrolled, so ``acc`` lives in registers. What reads the
result element by element (bias, residual, activation) is computed from the registers. An operand
that is larger than the inner caches is walked through once, columns outside of rows, and each tile
of columns is copied first: rows that lie a power of two apart fall on few cache lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, packing, panels, tiling
from .axes import axis, joined, split_groups
from .machine import Machine
from .stage import Access, Buffer, Expr, Iter, Stage, Var, expensive_calls, static
from .tiling import Tile

_TASKS_A_CORE = 8
_LEAST_TURNS = 4
"""Rows of tiles that must use a copy of columns for it to pay."""

Values = dict[Var, Expr]
Write = Callable[[Expr, Values], Stmt]
"""Writes the element at a place of the tile, given the values of the iterators."""


def emit(stage: Stage, epilogue: Stage | None, machine: Machine, threads: bool) -> Stmt | str:
    """The reduction and what follows it element by element, or the reason why it does not go by tiles."""
    merged = _merged(stage, epilogue)
    if isinstance(merged, str):
        return merged
    packed = packing.turned(*merged, machine, threads)
    if isinstance(packed, str):
        return packed
    (stage, copies, buffers), result = packed, merged[1]
    tile = tiling.choose(stage, result, machine)
    if isinstance(tile, str):
        return tile
    body = _Loops(stage, result, tile, machine).emit(threads)
    return build.with_buffers(buffers, build.seq(*copies, body), stage.name) if buffers else body


def _merged(stage: Stage, epilogue: Stage | None) -> tuple[Stage, Stage] | str:
    """The reduction and the stage that writes its result, over common axes."""
    found = paired(stage, epilogue)
    return found if isinstance(found, str) else in_common_axes(*found)


def paired(stage: Stage, epilogue: Stage | None) -> tuple[Stage, Stage] | str:
    """The reduction, and the stage that writes its result over the same iterators."""
    store = stage.store
    if store is None or not isinstance(stage.init, tirx.BufferStore):
        return "it computes several numbers at once"
    if not all(isinstance(index, tirx.Var) or static(index) == 0 for index in store.indices):
        return "the result is not indexed by the iterators alone"
    if epilogue is None:
        value = tirx.BufferLoad(store.buffer, store.indices)
        body = tirx.BufferStore(store.buffer, value, store.indices)
        return stage, Stage(stage.name, stage.spatial, None, body, stage.temporary)
    names = _names(stage, store, epilogue)
    return names if isinstance(names, str) else (stage, epilogue.substituted(names, stage.spatial))


def in_common_axes(stage: Stage, result: Stage) -> tuple[Stage, Stage]:
    """Both over the same axes: panels and groups apart, what is one walk through memory joined."""
    stage, result = panels.split(stage, result)
    stage, result = split_groups((stage, result), stage.spatial)
    stage, result = joined((stage, result), stage.spatial)
    return stage, result


def _names(stage: Stage, store: tirx.BufferStore, epilogue: Stage) -> Values | str:
    """The iterators of ``epilogue`` in terms of those that index ``store``."""
    values: Values = {}
    single = [it.var for it in stage.spatial if it.size == 1]
    for load in epilogue.loads:
        if load.source.same_as(store.buffer):
            for written, read in zip(store.indices, load.indices, strict=True):
                if isinstance(read, tirx.Var):
                    if not tvm_ffi.structural_equal(values.setdefault(read, written), written):
                        return "what follows reads the result in two orders"
                elif static(read) != 0 or not (static(written) == 0 or written in single):
                    return "what follows reads the result in another shape"
    extents = {it.var: it.extent for it in stage.spatial}
    for it in epilogue.iters:
        index = values.setdefault(it.var, tirx.const(0, it.var.ty.dtype))
        if not tvm_ffi.structural_equal(it.extent, extents.get(index, tirx.const(1, it.var.ty.dtype))):
            return "what follows is not of the size of the result"
    return values


class _Loops:
    """The loops over tiles of one reduction."""

    def __init__(self, stage: Stage, result: Stage, tile: Tile, machine: Machine) -> None:
        self.stage, self.result, self.tile, self.machine = stage, result, tile, machine
        turns, self.left = build.tiled(tile.lane.size or 1, tile.width)
        self.column = axis(tile.lane.var, turns)
        turns, self.top = build.tiled(tile.row.size or 1, tile.height) if tile.row else (1, lambda turn: turn)
        self.rows = [axis(tile.row.var, turns)] if tile.row else []
        self.others = [it for it in stage.spatial if it is not tile.lane and it is not tile.row]

    def emit(self, threads: bool) -> Stmt:
        wide = tiling.wide(self.stage, self.tile.lane)
        batch = [
            it for it in self.others if self.rows and wide and all(tiling.varies(load, it) for load in wide)
        ]
        rest = [it for it in self.others if not any(it is one for one in batch)]
        heavy = bool(self.rows) and tiling.heavy(wide[0])
        if heavy and self._why_not_copy(wide, batch, rest) is None:
            return build.parallel(
                [*batch, self.column], lambda values: self._copied(values, batch, rest), threads
            )
        order = [*batch, self.column, *rest] if heavy else [*batch, *rest, self.column]
        order += self.rows
        split = self._tasks(order) if threads else len(order)

        def inside(values: Values) -> Stmt:
            return build.nest(order[split:], lambda inner: self._tile(self.stage, {**values, **inner}))

        return build.parallel(order[:split], inside, threads)

    def _tasks(self, order: Sequence[Iter]) -> int:
        """How many of the outer loops together make enough tasks for the cores."""
        for count in range(1, len(order)):
            turns = build.product(order[:count])
            if turns is not None and turns >= _TASKS_A_CORE * self.machine.cores:
                return count
        return len(order)

    def _why_not_copy(
        self, wide: Sequence[Access], batch: Sequence[Iter], rest: Sequence[Iter]
    ) -> str | None:
        """Why the operand in the lanes is read where it lies."""
        if len(wide) != 1:
            return "several operands fill the lanes"
        if self.column.size == 1:
            return "a tile has whole rows"
        if (build.product(batch) or 1) * (self.column.size or 1) < 2 * self.machine.cores:
            return "there are too few columns for the threads"
        if (build.product([*rest, *self.rows]) or 1) < _LEAST_TURNS:
            return "the copy would be used too seldom"
        return None

    def _copied(self, values: Values, batch: Sequence[Iter], rest: Sequence[Iter]) -> Stmt:
        """All tiles of one column, from a copy of the operand's columns."""
        tile = self.tile
        stage = self.stage.substituted({it.var: values[it.var] for it in batch}, self.stage.iters)
        (load,) = tiling.wide(stage, tile.lane)
        left = self.left(values[self.column.var])
        copy, buffer, narrow = packing.columns(stage, load, tile.lane, left, tile.width, self.machine)
        tiles = build.nest([*rest, *self.rows], lambda inner: self._tile(narrow, {**values, **inner}))
        return build.with_buffers([buffer], build.seq(copy, tiles), "columns")

    def _tile(self, stage: Stage, at: Values) -> Stmt:
        """One tile: start, reduce, write."""
        fixed = {it.var: at[it.var] for it in self.others}
        stage, result = (
            stage.substituted(fixed, stage.iters),
            self.result.substituted(fixed, self.result.iters),
        )
        store = stage.store
        assert store is not None
        tile = self.tile
        acc = build.buffer((tile.height * tile.width,), store.buffer, "acc")

        def reduced(place: Expr, values: Values) -> Stmt:
            update = stage.substituted(values, []).store
            assert update is not None
            return tirx.BufferStore(acc, _from_tile(update.value, store.buffer, acc, place), [place])

        def written(source: Buffer, place: Expr, values: Values) -> Stmt:
            final = result.substituted(values, []).store
            assert final is not None
            value = _from_tile(final.value, store.buffer, source, place)
            return tirx.BufferStore(final.buffer, value, final.indices)

        def started(place: Expr, values: Values) -> Stmt:
            first: Any = stage.substituted(values, []).init
            return tirx.BufferStore(acc, first.value, [place])

        start = self._each(at, {}, started)
        steps = build.nest(stage.reduction, lambda step: self._each(at, step, reduced))
        if not self._long_epilogue(result):
            write = self._each(at, {}, lambda place, values: written(acc, place, values))
            return build.with_buffers([acc], build.seq(start, steps, write), stage.name)
        done = build.buffer((tile.height * tile.width,), store.buffer, "done")
        keep = self._each(
            at, {}, lambda place, _: tirx.BufferStore(done, tirx.BufferLoad(acc, [place]), [place])
        )
        write = self._each(at, {}, lambda place, values: written(done, place, values), unrolled=False)
        return build.with_buffers([acc, done], build.seq(start, steps, keep, write), stage.name)

    def _long_epilogue(self, result: Stage) -> bool:
        """Whether what follows is so long that it is a loop over the tile, which then leaves the registers:
        unrolled it would be most of the code."""
        whole = self.tile.width % self.tile.vector == 0 and not self.tile.steps
        return whole and bool(expensive_calls(result.body))

    def _each(self, at: Values, step: Values, write: Write, unrolled: bool = True) -> Stmt:
        """``write`` for each element of the tile: rows unrolled, lanes in vectors."""
        tile, left = self.tile, self.left(at[self.column.var])
        size, kind = (tile.width, ForKind.SERIAL) if tile.steps else (tile.vector, ForKind.VECTORIZED)

        def row(r: Expr) -> Stmt:
            if not unrolled:
                return build.loop(tile.width // size, lambda v: vector(r, v * size), tile.lane.var)
            return build.seq(*(vector(r, start) for start in range(0, tile.width, size)))

        def vector(r: Expr, start: Expr | int) -> Stmt:
            def lane(i: Expr) -> Stmt:
                values = {**step, tile.lane.var: left + (start + i)}
                if tile.row is not None:
                    values[tile.row.var] = self.top(at[self.rows[0].var]) + r
                return write(r * tile.width + (start + i), values)

            count = min(size, tile.width - start) if isinstance(start, int) else size
            return build.loop(count, lane, tile.lane.var, kind)

        along = (tile.row or tile.lane).var
        return build.loop(tile.height, row, along, ForKind.UNROLLED if unrolled else ForKind.SERIAL)


def _from_tile(value: Expr, results: Buffer, acc: Buffer, place: Expr) -> Expr:
    """``value`` with what it reads of the reduction's result taken from the tile."""

    def load(node: Access) -> Expr:
        return tirx.BufferLoad(acc, [place]) if node.source.same_as(results) else node

    return tvm_ffi.structural_map(value, (TensorLoad, load))
