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

import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import Stmt

from . import build, packing, panels, tiling
from .axes import joined, split_groups
from .cpu import CpuTraits
from .stage import Expr, Stage, static
from .tile_loops import TileLoops, Values


def emit(stage: Stage, epilogue: Stage | None, cpu: CpuTraits, threads: bool) -> Stmt | str:
    """The reduction and what follows it element by element, or the reason why it does not go by tiles."""
    found = paired(stage, epilogue)
    return found if isinstance(found, str) else emit_pair(*found, cpu, threads)


def emit_pair(stage: Stage, result: Stage, cpu: CpuTraits, threads: bool) -> Stmt | str:
    """The reduction and the stage that writes its result, as :func:`paired` gives them."""
    stage, result = in_common_axes(stage, result)
    packed = packing.turned(stage, result, cpu, threads)
    if isinstance(packed, str):
        return packed
    stage, copies, buffers = packed
    tile = tiling.choose(stage, result, cpu)
    if isinstance(tile, str):
        return tile
    body = TileLoops(stage, result, tile, cpu).emit(threads)
    return build.with_buffers(buffers, build.seq(*copies, body), stage.name) if buffers else body


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
    extents: dict[Expr, Expr] = {it.var: it.extent for it in stage.spatial}
    for it in epilogue.iters:
        index = values.setdefault(it.var, tirx.const(0, it.var.expr_ty().dtype))
        if not tvm_ffi.structural_equal(it.extent, extents.get(index, tirx.const(1, it.var.expr_ty().dtype))):
            return "what follows is not of the size of the result"
    return values
