"""A product of what is computed just before it: both for a band of rows at a time.

    t[i, k] = relu(x[i, k] * s[k] + o[k]);  c[i, j] = sum(t[i, k] * w[k, j])
        ->  for each band, in parallel:
                t[r, k] = relu(x[i + r, k] * s[k] + o[k]);  c[i + r, j] = sum(t[r, k] * w[k, j])

So ``t`` is as small as a band and stays near the core that has made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import Stmt

from . import build, injective, tile
from .axes import axis, with_load
from .cpu import CpuTraits
from .stage import Buffer, Expr, Iter, Stage, static, substitute

_MOST_BYTES = 512 * 1024
"""A band stays in the second-level cache of a core, beside the weights that it meets."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """How a reduction reads what is computed before it."""

    load: TensorLoad
    dimension: int
    """Of the buffer: the first of more than one element, along which it is cut."""
    made: Iter
    """The iterator over it of the stage that writes the buffer."""
    read: Iter
    """That of the reduction."""

    def moved(self, indices: Sequence[Expr], along: Iter) -> list[Expr]:
        """``indices`` of the buffer in a band of its own, whose rows are ``along``."""
        return [along.var if at == self.dimension else index for at, index in enumerate(indices)]


def emit(
    producer: Stage, reduction: Stage, epilogue: Stage | None, cpu: CpuTraits, threads: bool
) -> Stmt | str:
    """Loops for all, or the reason why they do not go by bands."""
    rows = _rows(producer, reduction)
    if isinstance(rows, str):
        return rows
    pair = tile.paired(reduction, epilogue)
    if isinstance(pair, str):
        return pair
    height = _height(producer, rows, cpu)
    shape = [static(extent) for extent in rows.load.source.shape]
    if height is None or None in shape:
        return "its rows make no bands"
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
    """What fills the ``buffer`` with the rows from ``start`` on, and the reduction of them with its result."""
    made, read = axis(rows.made.var, height), axis(rows.read.var, height)
    first = _with(producer, rows.made, start + made.var, made)
    store = first.store
    assert store is not None
    first = replace(first, body=tirx.BufferStore(buffer, store.value, rows.moved(store.indices, made)))
    stage = with_load(pair[0], rows.load, tirx.BufferLoad(buffer, rows.moved(rows.load.indices, read)))
    stage, result = (_with(each, rows.read, start + read.var, read) for each in (stage, pair[1]))
    return first, (stage, result)


def _with(stage: Stage, old: Iter, value: Expr, new: Iter) -> Stage:
    """``stage`` over ``new`` in place of ``old``, which is ``value``."""
    return stage.substituted({old.var: value}, [new if it is old else it for it in stage.iters])


def _rows(producer: Stage, reduction: Stage) -> _Rows | str:
    """Where the first stage writes the rows that the second reads, each by iterators alone."""
    store = producer.store
    if producer.init is not None or producer.reduction or store is None or not producer.temporary:
        return "what is before it is not computed element by element"
    loads = [load for load in reduction.loads if load.source.same_as(store.buffer)]
    if len(loads) != 1 or reduction.init is None:
        return "it does not read what is before it once"
    (load,) = loads
    for dimension, (written, read) in enumerate(zip(store.indices, load.indices, strict=True)):
        if static(load.source.shape[dimension]) == 1:
            continue
        made = next((it for it in producer.iters if it.var.same_as(written)), None)
        row = next((it for it in reduction.spatial if it.var.same_as(read)), None)
        if made is None or row is None or made.size is None or made.size != row.size:
            return "its rows are not those of what is before it"
        return _Rows(load, dimension, made, row)
    return "there is one row"


def _height(producer: Stage, rows: _Rows, cpu: CpuTraits) -> int | None:
    """The rows of a band: as many as fit, in equally many bands for each core where that can be."""
    size = rows.made.size or 1
    row_bytes = 4 * prod(it.size or 1 for it in producer.iters) // size
    heights = [h for h in range(1, size + 1) if size % h == 0 and size // h >= cpu.cores]
    fitting = [h for h in heights if h * row_bytes <= _MOST_BYTES] or heights[:1]
    even = [h for h in fitting if size // h % cpu.cores == 0]
    return max(even or fitting, default=None)
