"""Products, convolutions, pooling, reductions across memory: a register tile of results at a time.

    c[i, j] = sum(a[i, k] * b[k, j]);  d[i, j] = relu(c[i, j] + bias[j])
        ->  for each tile, in parallel:
                acc[r, l] = 0;  for k: acc[r, l] += a[i + r, k] * b[k, j + l];  d[i + r, j + l] = relu(acc[r, l] + ...)

``l`` runs over vector lanes and ``r`` is unrolled, so ``acc`` lives in registers. What reads the
result element by element (bias, residual, activation) is computed from the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Expr
from tvm.ir.expr import TensorLoad
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, injective, packing, vectors
from .machine import Machine
from .stage import Iter, Stage, nodes, static, stride

_TASKS_A_CORE = 8
_STACK_BYTES = 1024
"""Buffers from this size on are not put on the stack by TVM, and so never into registers."""
_LEAST_TURNS = 4
_HEAVY_BYTES = 64 * 1024
"""Operands above this are walked through once, tile of columns by tile of columns: about half of L2."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A choice of axes and sizes."""

    lane: Iter
    """The axis along vector lanes: contiguous in the result and in each operand that varies along it."""
    width: int
    row: Iter | None
    """An axis along which the operand in vector registers is used again."""
    height: int
    steps: bool = False
    """Whether an operand lies with small steps along the lanes: LLVM then makes the vectors."""


def emit(stage: Stage, epilogue: Stage | None, machine: Machine, threads: bool) -> Stmt | str:
    """The reduction and what follows it element by element, or the reason why it does not go by tiles."""
    merged = _merged(stage, epilogue)
    if isinstance(merged, str):
        return merged
    stage, result = merged
    packed = packing.packed(stage, result, machine, threads)
    if isinstance(packed, str):
        return packed
    stage, copies, buffers = packed
    tile = choose(stage, result, machine)
    if isinstance(tile, str):
        return tile
    body = _loops(stage, result, tile, machine, threads)
    return build.with_buffers(buffers, build.seq(*copies, body), stage.name) if buffers else body


def _merged(stage: Stage, epilogue: Stage | None) -> tuple[Stage, Stage] | str:
    """The reduction over joined axes, and the stage that writes the result over the same iterators."""
    store = stage.store
    if store is None or not isinstance(stage.init, tirx.BufferStore):
        return "it computes several numbers at once"
    if not all(isinstance(index, tirx.Var) or static(index) == 0 for index in store.indices):
        return "the result is not indexed by the iterators alone"
    if epilogue is None:
        result = Stage(stage.name, stage.spatial, None, _copy(store), stage.temporary)
        return packing.joined(stage, result)
    values = _names(store, epilogue)
    if isinstance(values, str):
        return values
    return packing.joined(stage, epilogue.substituted(values, stage.spatial))


def _copy(store: tirx.BufferStore) -> tirx.BufferStore:
    return tirx.BufferStore(store.buffer, tirx.BufferLoad(store.buffer, store.indices), store.indices)


def _names(store: tirx.BufferStore, epilogue: Stage) -> dict[tirx.Var, Expr] | str:
    """The iterators of ``epilogue`` in terms of those that index ``store``."""
    values: dict[tirx.Var, Expr] = {}
    for load in epilogue.loads:
        if load.source.same_as(store.buffer):
            for written, read in zip(store.indices, load.indices, strict=True):
                if isinstance(read, tirx.Var):
                    if not _same(values.setdefault(read, written), written):
                        return "what follows reads the result in two orders"
                elif not (static(read) == 0 and static(written) == 0):
                    return "what follows reads the result in another shape"
    for it in epilogue.iters:
        if it.var not in values:
            if it.size != 1:
                return "what follows is larger than the result"
            values[it.var] = tirx.const(0, it.var.ty.dtype)
    return values


def _same(a: Expr, b: Expr) -> bool:
    return tvm_ffi.structural_equal(a, b)


def choose(stage: Stage, result: Stage, machine: Machine) -> Tile | str:
    """The axes of the tile, and its sizes for this machine."""
    analyzer = sym.Analyzer()
    lane = lane_axis(stage, result, analyzer)
    if isinstance(lane, str):
        return lane
    assert lane.size is not None
    one = vectors.lanes(stage, machine)
    if any((static(stride(load, lane.var, analyzer)) or 0) > 1 for load in stage.loads):
        longest = (_STACK_BYTES - 1) // (machine.vector_bytes // one)
        return Tile(lane, build.tile_size(lane.size, longest, _exact(stage, result)), None, 1, True)
    row = _row_axis(stage, lane, analyzer)
    budget = min(machine.registers - 4, (_STACK_BYTES - 1) // machine.vector_bytes)
    budget = min(budget, 14 if machine.registers >= 32 else 12)
    exact = _exact(stage, result)
    if row is None or row.size is None:
        most = budget if _streams(stage, lane, analyzer) else 4
        width = _width(lane.size, one, most, exact)
        while width > one and _tiles(stage, lane, width) < 2 * machine.cores:
            width = max(width // 2 // one * one, one)
        return Tile(lane, build.tile_size(lane.size, width, exact), None, 1)
    best = max(_sizes(lane.size, row.size, one, budget, exact), key=lambda choice: choice[0])
    return Tile(lane, best[1], row, best[2])


def _exact(stage: Stage, result: Stage) -> bool:
    """Whether tiles must not overlap: an element that is written twice would be read in between."""
    assert stage.store is not None and result.store is not None
    own, written = stage.store.buffer, result.store.buffer
    read = [load.source for load in (*stage.loads, *result.loads) if not load.source.same_as(own)]
    return result.temporary or any(source.same_as(written) for source in read)


def lane_axis(stage: Stage, result: Stage, analyzer: sym.Analyzer) -> Iter | str:
    """The spatial axis along which the result is contiguous and each operand contiguous or constant."""
    assert result.store is not None
    for it in stage.spatial:
        if it.size is not None and it.size > 1 and static(stride(result.store, it.var, analyzer)) == 1:
            own = stage.store
            assert own is not None
            for load in stage.loads:
                step = static(stride(load, it.var, analyzer))
                if not load.source.same_as(own.buffer) and (step is None or not 0 <= step <= packing.SMALL_STEP):
                    return f"{load.source.name} is not contiguous along the lanes"
            return it
    return "the result has no contiguous axis of a known size"


def _row_axis(stage: Stage, lane: Iter, analyzer: sym.Analyzer) -> Iter | None:
    """The innermost axis along which an operand that fills the lanes does not change."""
    store = stage.store
    assert store is not None
    operands = [load for load in stage.loads if not load.source.same_as(store.buffer)]
    wide = [load for load in operands if static(stride(load, lane.var, analyzer)) == 1]
    found = [
        it
        for it in stage.spatial
        if it is not lane
        and it.size is not None
        and it.size > 1
        and any(static(stride(load, it.var, analyzer)) == 0 for load in wide)
    ]
    return max(reversed(found), key=lambda it: min(it.size or 0, 8), default=None)


def _streams(stage: Stage, lane: Iter, analyzer: sym.Analyzer) -> bool:
    """Whether the reduction goes with far steps through an operand: wide tiles then use whole pages."""
    return len(stage.reduction) == 1


def _width(size: int, one: int, most: int, exact: bool) -> int:
    """The widest tile of at most ``most`` registers that wastes least of the last one."""
    choices = [build.tile_size(size, one * count, exact) for count in range(1, most + 1)]
    return max(choices, key=lambda width: (size / (-(-size // width) * -(-width // one) * one), width))


def _tiles(stage: Stage, lane: Iter, width: int) -> int:
    outer = build.product([it for it in stage.spatial if it is not lane])
    return (outer or 1) * -(-(lane.size or 1) // width)


def _sizes(lanes: int, rows: int, one: int, budget: int, exact: bool) -> list[tuple[float, int, int]]:
    """Each (merit, width, height): the share of useful lanes, times how few loads a product needs."""
    found: list[tuple[float, int, int]] = []
    for registers in range(1, 5):
        width = build.tile_size(lanes, one * registers, exact)
        used = -(-width // one)
        for height in range(1, min(budget // used, rows) + 1):
            if exact and rows % height:
                continue
            useful = lanes * rows / (-(-lanes // width) * used * one * -(-rows // height) * height)
            found.append((useful / (1 / used + 1 / height + 0.4), width, height))
    return found


def _loops(stage: Stage, result: Stage, tile: Tile, machine: Machine, threads: bool) -> Stmt:
    """The loops over tiles: columns outside of rows when the operand in lanes does not fit the cache."""
    assert tile.lane.size is not None
    columns, left = build.tiled(tile.lane.size, tile.width)
    column = _turns(tile.lane, columns)
    others = [it for it in stage.spatial if it is not tile.lane and it is not tile.row]
    rows: list[Iter] = []
    top: Callable[[Expr], Expr] = lambda turn: turn
    if tile.row is not None and tile.row.size is not None:
        turns, top = build.tiled(tile.row.size, tile.height)
        rows = [_turns(tile.row, turns)]
    lanes = vectors.lanes(stage, machine)
    batch = [it for it in others if _in_lanes(stage, tile, it)]
    rest = [it for it in others if it not in batch]
    heavy = _heavy(stage, tile)

    def one(stage: Stage, result: Stage, at: dict[tirx.Var, Expr]) -> Stmt:
        fixed = {it.var: at[it.var] for it in others}
        return _tile(stage.substituted(fixed, stage.iters), result.substituted(fixed, result.iters), tile, lanes,
                     left(at[column.var]), top(at[rows[0].var]) if rows else None)  # fmt: skip

    if heavy and why_not_pack_columns(stage, tile, batch, columns, [*rest, *rows], machine) is None:

        def packed(values: dict[tirx.Var, Expr]) -> Stmt:
            copy, buffer, narrow = _packed_columns(stage, tile, batch, values, left(values[column.var]), machine)
            tiles = build.nest([*rest, *rows], lambda inner: one(narrow, result, {**values, **inner}))
            return build.with_buffers([buffer], build.seq(copy, tiles), "columns")

        return build.parallel([*batch, column], packed, threads)
    order = [*batch, column, *rest, *rows] if heavy else [*batch, *rest, column, *rows]
    split = _prefix(order, machine) if threads else len(order)

    def inside(values: dict[tirx.Var, Expr]) -> Stmt:
        return build.nest(order[split:], lambda inner: one(stage, result, {**values, **inner}))

    return build.parallel(order[:split], inside, threads)


def why_not_pack_columns(
    stage: Stage, tile: Tile, batch: list[Iter], columns: int, inner: list[Iter], machine: Machine
) -> str | None:
    """Why the operand in the lanes is read where it lies, and not copied tile of columns by tile."""
    if len(_wide(stage, tile)) != 1:
        return "several operands fill the lanes"
    if columns == 1:
        return "a tile has whole rows"
    if (build.product(batch) or 1) * columns < 2 * machine.cores:
        return "there are too few columns for the threads"
    if (build.product(inner) or 1) < _LEAST_TURNS:
        return "the copy would be used too seldom"
    return None


def _packed_columns(
    stage: Stage, tile: Tile, batch: list[Iter], values: dict[tirx.Var, Expr], left: Expr, machine: Machine
) -> tuple[Stmt, tirx.Buffer, Stage]:
    """A copy of the columns of one tile, its buffer, and the stage that reads it."""
    stage = stage.substituted({it.var: values[it.var] for it in batch}, stage.iters)
    (load,) = _wide(stage, tile)
    used = [it for it in stage.reduction if it.var in nodes(load.indices, tirx.Var)]
    buffer = tirx.decl_buffer([*(it.extent for it in used), tile.width], str(load.source.dtype), "columns")
    order = [*used, Iter(tile.lane.var, tirx.const(tile.width, tile.lane.var.ty.dtype), False)]
    fresh = [Iter(tirx.Var(it.var.name, it.var.ty), it.extent, False) for it in order]
    moved = Stage("columns", (), None, tirx.BufferStore(buffer, load, [it.var for it in order]), temporary=True)
    renamed: dict[tirx.Var, Expr] = {old.var: new.var for old, new in zip(order, fresh, strict=True)}
    indices = [*(it.var for it in fresh[:-1]), fresh[-1].var]
    value = moved.substituted({**renamed, tile.lane.var: left + fresh[-1].var}, fresh).body.value
    copy = Stage("columns", tuple(fresh), None, tirx.BufferStore(buffer, value, indices), temporary=True)
    narrow = tirx.BufferLoad(buffer, [*(it.var for it in used), tile.lane.var - left])
    return injective.emit(copy, machine, False), buffer, packing.with_load(stage, load, narrow)


def _turns(it: Iter, count: int) -> Iter:
    return Iter(tirx.Var(it.var.name, it.var.ty), tirx.const(count, it.var.ty.dtype), False)


def _prefix(order: list[Iter], machine: Machine) -> int:
    """How many of the outer loops together make enough tasks for the cores."""
    for count in range(1, len(order)):
        turns = build.product(order[:count])
        if turns is not None and turns >= _TASKS_A_CORE * machine.cores:
            return count
    return len(order)


def _wide(stage: Stage, tile: Tile) -> list[TensorLoad]:
    """The operands that fill the lanes."""
    analyzer, own = sym.Analyzer(), stage.store
    return [
        load
        for load in stage.loads
        if own is not None
        and not load.source.same_as(own.buffer)
        and static(stride(load, tile.lane.var, analyzer)) == 1
    ]


def _in_lanes(stage: Stage, tile: Tile, it: Iter) -> bool:
    """Whether every operand in the lanes is another one for each turn of ``it``: a batch axis."""
    analyzer, wide = sym.Analyzer(), _wide(stage, tile)
    return tile.row is not None and bool(wide) and all(static(stride(load, it.var, analyzer)) != 0 for load in wide)


def _heavy(stage: Stage, tile: Tile) -> bool:
    sizes = [static(extent) or 1 for load in _wide(stage, tile)[:1] for extent in load.source.shape]
    total = 4
    for size in sizes:
        total *= size
    return tile.row is not None and total > _HEAVY_BYTES


def _tile(stage: Stage, result: Stage, tile: Tile, one: int, left: Expr, top: Expr | None) -> Stmt:
    """One tile: start, reduce, write."""
    store, init = stage.store, stage.init
    assert store is not None and isinstance(init, tirx.BufferStore)
    acc = tirx.decl_buffer((tile.height * tile.width,), str(store.buffer.dtype), "acc")

    def each(write: Callable[[Expr, dict[tirx.Var, Expr]], Stmt]) -> Stmt:
        def line(r: Expr) -> Stmt:
            step = tile.width if tile.steps else one
            return build.seq(*(piece(r, start, min(step, tile.width - start)) for start in range(0, tile.width, step)))

        def piece(r: Expr, start: int, count: int) -> Stmt:
            def at(lane: Expr) -> Stmt:
                values = {tile.lane.var: left + (start + lane)}
                if tile.row is not None and top is not None:
                    values[tile.row.var] = top + r
                return write(r * tile.width + (start + lane), values)

            kind = ForKind.SERIAL if tile.steps else ForKind.VECTORIZED
            return build.loop(count, at, tile.lane.var, kind)

        return build.loop(tile.height, line, (tile.row or tile.lane).var, ForKind.UNROLLED)

    def reduced(steps: dict[tirx.Var, Expr]) -> Stmt:
        return each(lambda place, values: tirx.BufferStore(
            acc, _from_acc(stage.substituted({**values, **steps}, []).body.value, store, acc, place), [place]))  # fmt: skip

    def written(place: Expr, values: dict[tirx.Var, Expr]) -> Stmt:
        final = result.substituted(values, []).store
        assert final is not None
        return tirx.BufferStore(final.buffer, _from_acc(final.value, store, acc, place), final.indices)

    start = each(lambda place, _: tirx.BufferStore(acc, init.value, [place]))
    body = build.seq(start, build.nest(stage.reduction, reduced), each(written))
    return build.with_buffers([acc], body, stage.name)


def _from_acc(value: Expr, store: tirx.BufferStore, acc: tirx.Buffer, place: Expr) -> Expr:
    """``value`` with what it reads of the reduction's result taken from the registers."""

    def load(node: TensorLoad) -> Expr:
        return tirx.BufferLoad(acc, [place]) if node.source.same_as(store.buffer) else node

    return tvm_ffi.structural_map(value, (TensorLoad, load))
