"""Writes at indexes, which count from the end if they are negative.

On CPUs each thread writes some columns of all rows, row after row. Updates of one element keep their order. TVM's
kernels go down one column after the other, or begin a parallel loop in each row. TVM's ``scatter_nd`` writes before the
tensor for negative indexes, and its ``scatter_elements`` to wrong places where indices are shorter than the tensor. Its
``index_put`` reads behind values that are broadcast, and loses summands of repeated indexes, because threads add to one
element at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm
from tvm import ir, relax, sym, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from .indexing import broadcast, fields, from_the_end, own, static
from .stock import Legalization, legalized_by_tvm

_topi: Any = topi
"""Its stubs have few of its functions."""

_COLUMNS = 32
"""How many neighbours a thread writes in each row: two cache lines of float32."""


def _is_nan(value: ir.Expr) -> ir.Expr:
    dtype = str(value.expr_ty().dtype)
    if "float" not in dtype:
        return tirx.const(False, "bool")
    return tirx.isnan(value.astype("float32") if "16" in dtype else value)


_UPDATED: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, update: update,
    "add": lambda old, update: old + update,
    "mul": lambda old, update: old * update,
    "min": lambda old, update: tirx.Select(tirx.any(old < update, _is_nan(old)), old, update),
    "max": lambda old, update: tirx.Select(tirx.any(old > update, _is_nan(old)), old, update),
}
"""How an update changes an element. The minimum or maximum of NaN and a number is NaN."""

Coordinate = Callable[..., ir.Expr]
"""``coordinate(axis, *row)``: where the update of a row goes along one of the indexed axes."""


def _is_for_cpu() -> bool:
    """Whether kernels are made for a CPU, by the target of the scope."""
    target = tvm.target.Target.current(allow_none=True)
    return target is None or "cpu" in target.keys


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    reduction, extents = str(call.attrs.reduction), [_extents(arg) for arg in call.args[:2]]
    axis = int(call.attrs.axis) % max(len(extents[0]), 1)
    others = [[size for n, size in enumerate(shape) if n != axis] for shape in extents]
    if reduction in _UPDATED and extents[0] and not _are_equal(*others):
        return builder.call_te(_each_element(axis, reduction), *call.args)
    if not _is_for_cpu() or reduction not in _UPDATED or not extents[0]:
        return builder.normalize(legalized_by_tvm(builder, call))

    def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        size = data.shape[axis]
        sizes = (prod(data.shape[:axis]), size, indices.shape[axis], prod(data.shape[axis + 1 :]))

        def place(at: Any, _row: Any, element: Any) -> Any:
            return from_the_end(at[element], size)

        return _by_rows(data, indices, updates, sizes, place, reduction)

    return builder.call_te(scatter, *call.args)


def _each_element(axis: int, reduction: str) -> Callable[..., te.Tensor]:
    """The kernel for indices that are shorter than the tensor along other axes, too: one update after the other."""

    def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        def coordinate(along: int, *place: ir.Expr) -> ir.Expr:
            return indices(*place) if along == axis else place[along]

        rank = len(data.shape)
        return _scattered(data, list(indices.shape), rank, coordinate, updates, reduction)

    return scatter


def _extents(expr: relax.Expr) -> list[ir.Expr]:
    shape: Any = getattr(expr.ty, "shape", None)
    return list(getattr(shape, "values", ()))


def _are_equal(a: Sequence[ir.Expr], b: Sequence[ir.Expr]) -> bool:
    analyzer = sym.Analyzer()
    return len(a) == len(b) and all(analyzer.can_prove_equal(*pair) for pair in zip(a, b, strict=True))


def _scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def scatter(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        *leading, count = indices.shape

        def coordinate(axis: int, *row: ir.Expr) -> ir.Expr:
            return indices(*row, axis)

        return _scattered(data, leading, static(count), coordinate, updates, str(call.attrs.reduction))

    return builder.call_te(scatter, *call.args)


def _index_put(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``data[I0, I1, ...] += values``, or ``=``, one after the other; the values are broadcast."""
    data, indices, values = call.args
    if not call.attrs.accumulate and not _is_for_cpu():
        return builder.normalize(legalized_by_tvm(builder, call))
    reduction = "add" if call.attrs.accumulate else "update"

    def put(data: te.Tensor, values: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        rows = broadcast([tensor.shape for tensor in indices])

        def coordinate(axis: int, *row: ir.Expr) -> ir.Expr:
            return indices[axis](*own(indices[axis].shape, row))

        wide = _topi.broadcast_to(values, [*rows, *data.shape[len(indices) :]])
        return _scattered(data, rows, len(indices), coordinate, wide, reduction)

    return builder.call_te(put, data, values, *fields(builder, indices))


def _scattered(
    data: te.Tensor,
    rows: Sequence[ir.Expr],
    count: int,
    coordinate: Coordinate,
    updates: te.Tensor,
    reduction: str,
) -> te.Tensor:
    """``updates`` of ``rows`` to the places with these coordinates along the first ``count`` axes."""
    if not _is_for_cpu():

        def valid(k: ir.Expr, *row: ir.Expr) -> ir.Expr:
            found = from_the_end(coordinate(0, *row), data.shape[0])
            for axis in range(1, count):
                found = tirx.Select(k < axis, found, from_the_end(coordinate(axis, *row), data.shape[axis]))
            return found

        places = te.compute((count, *rows), valid, name="places", tag=topi.tag.INJECTIVE)
        return topi.scatter_nd(data, places, updates, reduction)

    def joined(*row: ir.Expr) -> ir.Expr:
        """The number of a place in the product of the indexed axes."""
        found = from_the_end(coordinate(0, *row), data.shape[0])
        for axis in range(1, count):
            found = found * data.shape[axis] + from_the_end(coordinate(axis, *row), data.shape[axis])
        return found

    places = te.compute(
        rows or (1,), joined if rows else lambda _: joined(), name="places", tag=topi.tag.INJECTIVE
    )
    sizes = (1, prod(data.shape[:count]), prod(rows), prod(data.shape[count:]))
    return _by_rows(data, places, updates, sizes, lambda at, row, _: at[row], reduction)


def _by_rows(
    data: te.Tensor,
    places: te.Tensor,
    updates: te.Tensor,
    sizes: Sequence[Any],
    place: Callable[[Any, Any, Any], Any],
    reduction: str,
) -> te.Tensor:
    """``data`` (outer, size, columns) with ``updates`` (outer, rows, columns) at rows of ``data``.

    ``sizes`` are outer, size, rows and columns. ``place(places, row, element)`` is the row for an update, by the
    numbers of its row and its element in ``updates``.
    """
    outer, size, rows, columns = sizes
    blocks = (columns + _COLUMNS - 1) // _COLUMNS
    if isinstance(blocks, (int, tirx.IntImm)) and int(blocks) == 0:
        blocks = 1  # rows without elements

    def kernel(*buffers: Any) -> Any:
        old, at, update, new = map(T.buffer_proxy, buffers)
        with IRBuilder() as ib:
            with T.seq_scope():
                with T.parallel(0, prod(data.shape)) as n:
                    new[n] = old[n]
                with T.parallel(0, outer * blocks) as task:
                    first = task % blocks * _COLUMNS
                    with T.serial(0, rows) as row, T.serial(0, tirx.min(_COLUMNS, columns - first)) as column:
                        number = task // blocks * rows + row
                        source = number * columns + first + column
                        target = (
                            (task // blocks * size + place(at, number, source)) * columns + first + column
                        )
                        new[target] = _UPDATED[reduction](new[target], update[source])
            return ib.get()

    made = tirx.decl_buffer(data.shape, data.dtype, "scattered", layout=None)
    return te.extern(
        [data.shape],
        [data, places, updates],
        lambda ins, outs: kernel(*ins, outs[0]),
        dtype=data.dtype,
        out_buffers=[made],
        name="scattered",
    )


LEGALIZATIONS: dict[str, Legalization] = {
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.index_put": _index_put,
}
