"""A product and the stage before it, both computed for one band of rows at a time.

    t[i, k] = relu(x[i, k] * s[k] + o[k]);  c[i, j] = sum(t[i, k] * w[k, j])
        ->  for each band, in parallel:
                t[r, k] = relu(x[i + r, k] * s[k] + o[k]);  c[i + r, j] = sum(t[r, k] * w[k, j])

This is loop fusion with strip-mining: ``t`` is only as large as a band and stays in the caches of the core that has
computed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build, injective, tile
from .axes import axis, with_value
from .cpu import CpuTraits
from .stage import Buffer, Expr, Iter, Stage, static, substitute

_MOST_BYTES = 512 * 1024
"""The most bytes of a band, so that it stays in the second-level cache of a core together with the weights."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """How a reduction reads the buffer that the stage before it writes."""

    load: TensorLoad
    dimension: int
    """The dimension of the buffer that is cut into bands: the first one with more than one element."""
    made: Iter
    """The iterator over this dimension in the stage that writes the buffer."""
    read: Iter
    """The iterator over this dimension in the reduction."""

    def moved(self, indices: Sequence[Expr], along: Iter) -> list[Expr]:
        """``indices`` into the buffer, moved to the buffer of a band, whose rows are ``along``."""
        return [along.var if at == self.dimension else index for at, index in enumerate(indices)]


def emit(
    producer: Stage, reduction: Stage, epilogue: Stage | None, cpu: CpuTraits, threads: bool
) -> Stmt | str:
    """Loops for all stages, or the reason why they cannot be computed by bands."""
    rows = _rows(producer, reduction)
    if isinstance(rows, str):
        return rows
    pair = tile.paired(reduction, epilogue)
    if isinstance(pair, str):
        return pair
    height = _height(producer, rows, cpu)
    shape = [static(extent) for extent in rows.load.source.shape]
    if height is None or None in shape:
        return "its rows cannot be cut into bands"
    shape[rows.dimension] = height
    buffer = build.buffer([extent or 1 for extent in shape], rows.load.source, "band")
    turns = axis(rows.read.var, (rows.read.size or 1) // height)
    made, (stage, result) = _of_band(producer, pair, rows, buffer, turns.var * height, height)
    body = tile.emit_pair(stage, result, cpu, False)
    if isinstance(body, str):
        return body
    band = build.with_buffers([buffer], build.seq(injective.emit(made, cpu, False), body), "band")
    return build.parallel([turns], lambda values: substitute(band, values), threads)


def _of_band(
    producer: Stage, pair: tuple[Stage, Stage], rows: _Rows, buffer: Buffer, start: Expr, height: int
) -> tuple[Stage, tuple[Stage, Stage]]:
    """The stage that fills ``buffer`` with the rows from ``start`` on, and the reduction of these rows with its
    result."""
    made, read = axis(rows.made.var, height), axis(rows.read.var, height)
    first = _with(producer, rows.made, start + made.var, made)
    store = first.store
    assert store is not None
    first = replace(first, body=tirx.BufferStore(buffer, store.value, rows.moved(store.indices, made)))
    stage = with_value(pair[0], rows.load, tirx.BufferLoad(buffer, rows.moved(rows.load.indices, read)))
    stage, result = (_with(each, rows.read, start + read.var, read) for each in (stage, pair[1]))
    return first, (stage, result)


def _with(stage: Stage, old: Iter, value: Expr, new: Iter) -> Stage:
    """``stage`` over the iterator ``new`` in place of ``old``, whose value is now ``value``."""
    return stage.substituted({old.var: value}, [new if it is old else it for it in stage.iters])


def _rows(producer: Stage, reduction: Stage) -> _Rows | str:
    """How the second stage reads the rows that the first one writes, or why the two cannot be computed by bands."""
    store = producer.store
    if producer.init is not None or producer.reduction or store is None or not producer.temporary:
        return "the stage before it is not element-wise"
    loads = [load for load in reduction.loads if load.source.same_as(store.buffer)]
    if len(loads) != 1 or reduction.init is None:
        return "it does not read the stage before it exactly once"
    (load,) = loads
    for dimension, (written, read) in enumerate(zip(store.indices, load.indices, strict=True)):
        if static(load.source.shape[dimension]) == 1:
            continue
        made = next((it for it in producer.iters if it.var.same_as(written)), None)
        row = next((it for it in reduction.spatial if it.var.same_as(read)), None)
        if made is None or row is None or made.size is None or made.size != row.size:
            return "its rows are not those of the stage before it"
        return _Rows(load, dimension, made, row)
    return "there is only one row"


def _height(producer: Stage, rows: _Rows, cpu: CpuTraits) -> int | None:
    """The rows of a band: as many as fit into the cache, with the same number of bands for each core if possible."""
    size = rows.made.size or 1
    row_bytes = 4 * prod(it.size or 1 for it in producer.iters) // size
    heights = [h for h in range(1, size + 1) if size % h == 0 and size // h >= cpu.cores]
    fitting = [h for h in heights if h * row_bytes <= _MOST_BYTES] or heights[:1]
    even = [h for h in fitting if size // h % cpu.cores == 0]
    return max(even or fitting, default=None)
