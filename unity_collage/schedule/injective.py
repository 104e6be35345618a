"""Element-wise, broadcast, copy, concat, pad, gather: every element of the output once, in vectors.

The innermost axes that are contiguous in every tensor are joined to one axis, which is vectorised. The threads share
the outer axes. A copy that transposes goes tile by tile, so that each cache line is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import sym, tirx
from tvm.tirx import ForKind
from tvm.tirx.stmt import Stmt

from . import build, segments, transpose, vectors
from .axes import axis, flattened
from .cpu import CpuTraits
from .stage import Expr, Iter, Stage, Var, static, stride

PARALLEL_WORK = 8_192
"""Element operations below which a parallel loop costs more than it saves.

Measured on two cores of a Zen 4, with inputs written by both: a ReLU of this many elements takes 0.93 us on one core
and 0.81 us on both; of half as many, 0.42 us and 0.50 us. A parallel region of the pool costs 0.2 us.
"""
_CHUNKS_A_CORE = 4
_SYMBOLIC_CHUNK = 8_192
_LONG_ROW, _ROWS_A_STEP = 256, 32
"""Rows with fewer elements than the first number go to threads together, as many as the second at most."""

Values = dict[Var, Expr]


def work_of(stages: Sequence[Stage]) -> int | Expr:
    """The element operations of all stages, an expression if a shape is symbolic."""
    total, *others = [stage.work for stage in stages]
    for work in others:
        total = total + work
    return total


def worth_threads(work: int | None, cpu: CpuTraits) -> bool:
    """Whether ``work`` operations are worth a parallel loop; an unknown number is assumed to be."""
    return cpu.cores > 1 and (work is None or work >= PARALLEL_WORK)


def emit(stage: Stage, cpu: CpuTraits, threads: bool) -> Stmt:
    """The whole stage as loops, parallel if ``threads``."""
    pieces = segments.of(stage)
    if pieces is None:
        return _whole(stage, cpu, threads)
    position, ranges = pieces
    outer, inner = stage.iters[:position], stage.iters[position:]
    shared = threads and _enough(outer, cpu)

    def body(values: dict[Var, Expr]) -> Stmt:
        rest = stage.substituted(values, inner)
        parts = (segments.cut(rest, 0, low, high) for low, high in ranges)
        return build.seq(*(emit(part, cpu, threads and not shared) for part in parts))

    return build.parallel(outer, body, shared)


def _whole(stage: Stage, cpu: CpuTraits, threads: bool) -> Stmt:
    """The loops of a stage without conditions along its innermost axis."""
    stage = flattened(stage)
    if not stage.iters or stage.store is None:
        return build.parallel(stage.iters, lambda values: stage.substituted(values, []).body, threads)
    *outer, last = stage.iters
    turned = _turned(stage)
    if isinstance(turned, Iter):
        return _transposed(stage, turned, cpu, threads)
    if turned is not None:
        return build.parallel(outer, lambda values: _serial(stage.substituted(values, [last])), threads)
    if threads and not _enough(outer, cpu):
        return _chunks(stage, cpu)

    def row(values: Values) -> Stmt:
        return vectors.emit(stage.substituted(values, [last]), cpu)

    return _rows(outer, row, last, cpu) if threads else build.nest(outer, row)


def _rows(outer: Sequence[Iter], row: Callable[[Values], Stmt], last: Iter, cpu: CpuTraits) -> Stmt:
    """A parallel loop over rows along ``last``: over several at a time if they are short.

    The number of a step is divided by the extents of the outer axes. For a row of three channels that takes as long as
    the row itself.
    """
    near, turns = outer[-1], build.product(outer)
    if last.size is None or last.size >= _LONG_ROW:
        return build.parallel(outer, row, True)
    size = _ROWS_A_STEP if turns is None else min(_ROWS_A_STEP, turns // (_CHUNKS_A_CORE * cpu.cores))
    if near.size is not None:
        size = build.tile_size(near.size, size, exact=True)
    if size == 1:
        return build.parallel(outer, row, True)
    steps = axis(near.var, tirx.truncdiv(near.extent + (size - 1), size))

    def several(values: Values) -> Stmt:
        first = tirx.Var("first", near.var.ty)
        left = tirx.min(near.extent - first, tirx.const(size, near.var.expr_ty().dtype))
        count = size if near.size is not None else left
        inner = build.loop(count, lambda i: row({**values, near.var: first + i}), near.var)
        return build.seq(build.opaque(first, values[steps.var] * size), inner)

    return build.parallel([*outer[:-1], steps], several, True)


def _enough(iters: Sequence[Iter], cpu: CpuTraits) -> bool:
    """Whether the product of the extents is large enough to keep every core busy; a symbolic one is assumed to be."""
    turns = build.product(iters)
    return bool(iters) and (turns is None or turns >= _CHUNKS_A_CORE * cpu.cores)


def _serial(stage: Stage) -> Stmt:
    return build.nest(stage.iters, lambda values: stage.substituted(values, []).body)


def _chunks(stage: Stage, cpu: CpuTraits) -> Stmt:
    """Loops in which the threads share the innermost axis, because the outer axes are too short."""
    *outer, last = stage.iters

    def piece(start: Expr, size: Expr | int) -> Stmt:
        chunk = axis(last.var, size)
        part = stage.substituted({last.var: start + chunk.var}, [*outer, chunk])
        return build.nest(outer, lambda values: vectors.emit(part.substituted(values, [chunk]), cpu))

    size = _SYMBOLIC_CHUNK if last.size is None else _chunk(last.size, cpu)
    if last.size is not None and not stage.once_only:
        turns, start = build.tiled(last.size, size)
        return build.loop(turns, lambda turn: piece(start(turn), size), last.var, ForKind.PARALLEL)
    whole, rest = tirx.floordiv(last.extent, size), tirx.floormod(last.extent, size)
    head = build.loop(whole, lambda turn: piece(turn * size, size), last.var, ForKind.PARALLEL)
    return head if static(rest) == 0 else build.seq(head, piece(whole * size, rest))


def _chunk(size: int, cpu: CpuTraits) -> int:
    """The elements that a thread takes at a time, in whole cache lines."""
    step = 4 * cpu.vector_bytes
    return min(-(-size // (_CHUNKS_A_CORE * cpu.cores * step)) * step, size)


def _transposed(stage: Stage, across: Iter, cpu: CpuTraits, threads: bool) -> Stmt:
    """Tiles over two axes: ``across``, which is contiguous where it is read, and the last one, contiguous where
    written."""
    *outer, last = stage.iters
    others = [it for it in outer if it is not across]
    height, width = (build.tile_size(it.size or 1, transpose.SIDE, stage.once_only) for it in (across, last))
    rows, row = build.tiled(across.size or 1, height)
    cols, col = build.tiled(last.size or 1, width)
    tiles = [axis(across.var, rows), axis(last.var, cols)]

    def tile(values: dict[Var, Expr]) -> Stmt:
        top, left = row(values[tiles[0].var]), col(values[tiles[1].var])
        part = stage.substituted(values, [across, last])
        if transpose.why_not_in_registers(stage, height, width, cpu) is None:
            return transpose.tile(part, across, last, top, left, width)

        def line(i: Expr) -> Stmt:
            def at(j: Expr) -> Stmt:
                return part.substituted({across.var: top + i, last.var: left + j}, []).body

            return build.loop(width, at, last.var, ForKind.VECTORIZED)

        return build.loop(height, line, across.var)

    return build.parallel([*others, *tiles], tile, threads)


def _turned(stage: Stage) -> Iter | str | None:
    """Whether the stage transposes.

    None if every tensor is contiguous or constant along the innermost axis. Otherwise the axis along which the other
    tensors are contiguous, or the reason why there is no such axis.
    """
    analyzer = sym.Analyzer()
    *outer, last = stage.iters
    if segments.guards(stage, last.var):
        return "a condition differs from lane to lane"
    if stage.store is None or static(stride(stage.store, last.var, analyzer)) != 1:
        return "the output is not contiguous along its last axis"
    odd = [load for load in stage.loads if static(stride(load, last.var, analyzer)) not in (0, 1)]
    if not odd:
        return None
    for it in reversed(outer):
        sizes = it.size is not None and last.size is not None and it.size >= 4 and last.size >= 4
        if sizes and all(static(stride(load, it.var, analyzer)) == 1 for load in odd):
            return it
    return "a tensor is not contiguous along any axis"
