"""The places of the largest and smallest elements: of NaN if there is one, as in numpy and PyTorch.

TVM's kernels start from the ends of the finite range with the place -1. So a row of infinities has that place, and NaN
is never found. Here the extremum comes first, and then the first place that has it. These are two reductions of
numbers, for which there are schedules. One of pairs is many times slower, since its loops do not become vectors.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import ir, relax, te, tirx, topi
from tvm.relax import op

from . import extrema
from .stock import Legalization

_topi: Any = topi
"""Its stubs have few of its functions."""


def place_of_extremum(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    axis: int,
    *,
    largest: bool,
    last: bool = False,
    keepdims: bool = False,
) -> relax.Expr:
    """The indexes of the largest or smallest elements along an axis as int64: of the first or the last of equal ones.

    ``x`` is a variable. The first or last NaN counts as the extremum.
    """
    if _dtype(x) == "bool":
        x = builder.emit(builder.call_te(_topi.cast, x, "int8"))
    name = "max" if largest else "min"
    wanted = builder.normalize((op.max if largest else op.min)(x, [axis], True))
    assert isinstance(wanted, relax.Call)
    best = builder.emit(extrema.LEGALIZATIONS[f"relax.{name}"](builder, wanted))

    def kernel(x: te.Tensor, best: te.Tensor) -> te.Tensor:
        return _places(x, best, axis, last, keepdims)

    return builder.call_te(kernel, x, best, primfunc_name_hint=f"arg{name}")


def _places(x: te.Tensor, best: te.Tensor, axis: int, last: bool, keepdims: bool) -> te.Tensor:
    """Where the best element is: the number of a NaN, or the number and the size of the axis, is reduced."""
    size = x.shape[axis]
    kind = "int32" if isinstance(size, tirx.IntImm) and size.value < 2**30 else "int64"
    count = size.astype(kind)
    along = te.reduce_axis((0, size), name="along")
    kept = [dim for n, dim in enumerate(x.shape) if n != axis]

    def rank(*place: ir.Expr) -> ir.Expr:
        number = along.var.astype(kind)
        element = x(*place[:axis], along, *place[axis:])
        extremum = best(*place[:axis], 0, *place[axis:])
        is_nan: list[ir.Expr] = []
        if "float" in str(x.dtype):
            is_nan = [tirx.isnan(element.astype("float32") if "16" in str(x.dtype) else element)]
        if last:
            found = tirx.Select(element.equal(extremum), number, tirx.const(-1, kind))
            return te.max(tirx.Select(is_nan[0], number + count, found) if is_nan else found, axis=along)
        found = tirx.Select(element.equal(extremum), number + count, count + count)
        return te.min(tirx.Select(is_nan[0], number, found) if is_nan else found, axis=along)

    ranks = te.compute(kept, rank, name="rank")

    def place_of(*place: ir.Expr) -> ir.Expr:
        found: Any = ranks(*(place if not keepdims else (*place[:axis], *place[axis + 1 :])))
        return tirx.Select(found >= count, found - count, found).astype("int64")

    shape = [*kept[:axis], *([1] if keepdims else []), *kept[axis:]]
    return te.compute(shape, place_of, name="place")


def _flat(x: te.Tensor) -> te.Tensor:
    return _topi.reshape(x, [prod(x.shape)])


def _dtype(x: relax.Expr) -> str:
    assert isinstance(x.ty, relax.TensorType)
    return str(x.ty.dtype)


def _place(largest: bool) -> Legalization:
    """The kernels of ``relax.argmax`` or ``relax.argmin``; without an axis it is the place in the flattened tensor."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        x, axis, keepdims = call.args[0], call.attrs.axis, bool(call.attrs.keepdims)
        kind: Any = x.ty
        if axis is not None:
            place = int(axis) % kind.ndim
            return place_of_extremum(builder, x, place, largest=largest, keepdims=keepdims)
        flat = builder.emit(builder.call_te(_flat, x))
        found = place_of_extremum(builder, flat, 0, largest=largest)
        if not keepdims:
            return found
        return builder.call_te(_topi.reshape, builder.emit(found), [1] * kind.ndim)

    return legalize


LEGALIZATIONS: dict[str, Legalization] = {"relax.argmax": _place(True), "relax.argmin": _place(False)}
