"""Products, convolutions, pooling, reductions across memory: a register tile of results at a time.

    c[i, j] = sum(a[i, k] * b[k, j]);  d[i, j] = relu(c[i, j] + bias[j])
        ->  for each tile, in parallel:
                acc[r, l] = 0;  for k: acc[r, l] += a[i + r, k] * b[k, j + l];  d[i + r, j + l] = relu(acc[r, l] + ...)

This is register tiling as in BLAS libraries (Goto and van de Geijn, 2008; Van Zee and van de Geijn, "BLIS", 2015), for
any reduction with affine accesses. ``l`` runs over vector lanes and ``r`` is unrolled, so ``acc`` stays in
registers. Element-wise operators that read the result (bias, residual, activation) are computed from the registers. An
operand that is larger than the inner caches is read once, with the columns in the outer loop. Each tile of its columns
is copied first, because rows whose distance is a power of two map to few sets of the cache.
"""

from __future__ import annotations

from dataclasses import replace

import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import Stmt

from . import build, packing, panels, tiling
from .axes import joined, split_groups
from .cpu import CpuTraits
from .stage import Expr, Stage, static
from .tile_loops import TileLoops, Values


def emit(stage: Stage, epilogue: Stage | None, cpu: CpuTraits, threads: bool) -> Stmt | str:
    """Loops for the reduction and its epilogue, or the reason why it cannot be computed by register tiles."""
    found = paired(stage, epilogue)
    return found if isinstance(found, str) else emit_pair(*found, cpu, threads)


def emit_pair(stage: Stage, result: Stage, cpu: CpuTraits, threads: bool) -> Stmt | str:
    """Loops for the reduction and the stage that writes its result, a pair of :func:`paired`, or the reason why not."""
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
    """The reduction and the stage that writes its result, over the same iterators, or the reason why there is no
    pair."""
    store = stage.store
    if store is None or not isinstance(stage.init, tirx.BufferStore):
        return "it computes several numbers at once"
    if not all(isinstance(index, tirx.Var) or static(index) == 0 for index in store.indices):
        return "the result is not indexed by the iterators alone"
    if epilogue is None:
        value = tirx.BufferLoad(store.buffer, store.indices)
        body = tirx.BufferStore(store.buffer, value, store.indices)
        return stage, replace(stage, iters=stage.spatial, init=None, body=body)
    names = _names(stage, store, epilogue)
    return names if isinstance(names, str) else (stage, epilogue.substituted(names, stage.spatial))


def in_common_axes(stage: Stage, result: Stage) -> tuple[Stage, Stage]:
    """Both stages over new axes: panels and groups are split off, axes that are contiguous everywhere are joined."""
    stage, result = panels.split(stage, result)
    stage, result = split_groups((stage, result), stage.spatial)
    stage, result = joined((stage, result), stage.spatial)
    return stage, result


def _names(stage: Stage, store: tirx.BufferStore, epilogue: Stage) -> Values | str:
    """The iterators of ``epilogue`` in terms of those that index ``store``, or why there is no such relation."""
    values: Values = {}
    single = [it.var for it in stage.spatial if it.size == 1]
    for load in epilogue.loads:
        if load.source.same_as(store.buffer):
            for written, read in zip(store.indices, load.indices, strict=True):
                if isinstance(read, tirx.Var):
                    if not tvm_ffi.structural_equal(values.setdefault(read, written), written):
                        return "the epilogue reads the result in two orders"
                elif static(read) != 0 or not (static(written) == 0 or written in single):
                    return "the epilogue reads the result in another shape"
    extents: dict[Expr, Expr] = {it.var: it.extent for it in stage.spatial}
    for it in epilogue.iters:
        index = values.setdefault(it.var, tirx.const(0, it.var.expr_ty().dtype))
        if not tvm_ffi.structural_equal(it.extent, extents.get(index, tirx.const(1, it.var.expr_ty().dtype))):
            return "the epilogue has another size than the result"
    return values
