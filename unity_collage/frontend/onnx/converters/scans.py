"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, relax, te, tirx

from ..node import Converted, OnnxNode
from .precise import dtype_of, narrowed, widened
from .runtime_shapes import computed, is_empty, scalar


def _cumulative(kind: str) -> Callable[[OnnxNode], Converted]:
    """Along an axis; ``exclusive`` leaves out the element itself, ``reverse`` begins at the end."""

    def convert(node: OnnxNode) -> Converted:
        x, axis = widened(node, node[0]), node.numbers(1)
        if node.rank() == 0:
            node.refuse("its operand has no axis")
        if is_empty(node.shape()):
            return node.value(0)
        if axis is None:
            return narrowed(node, _along_run_time_axis(node, x, kind), node.dtype())
        return narrowed(node, _along(node, x, node.axis(int(axis.reshape(-1)[0])), kind), node.dtype())

    return convert


def _along(node: OnnxNode, x: relax.Expr, axis: int, kind: str) -> relax.Expr:
    scan = relax.op.cumsum if kind == "sum" else relax.op.cumprod
    reverse, exclusive = bool(node.attribute("reverse", 0)), bool(node.attribute("exclusive", 0))
    if reverse:
        x = reversed_along(node, x, axis)
    found = scan(x, axis, dtype_of(x), exclusive)
    return reversed_along(node, node.emit(found), axis) if reverse else found


def reversed_along(node: OnnxNode, x: relax.Expr, axis: int) -> relax.Expr:
    """``x`` with its elements along an axis in reverse order: Relax's ``flip`` cannot be built for a free extent."""
    if isinstance(node.dims(x)[axis], int):
        return node.emit(relax.op.flip(x, axis))

    def reversed_(x: te.Tensor) -> te.Tensor:
        last = x.shape[axis] - 1
        return te.compute(
            x.shape, lambda *place: x(*place[:axis], last - place[axis], *place[axis + 1 :]), "reversed"
        )

    return node.emit(node.builder.call_te(reversed_, x, primfunc_name_hint="reversed"))


def _along_run_time_axis(node: OnnxNode, x: relax.Expr, kind: str) -> relax.Expr:
    """Each element reduces what is before it, so this is slow along long axes."""
    reverse, exclusive = bool(node.attribute("reverse", 0)), bool(node.attribute("exclusive", 0))
    rank, dtype = node.rank(), dtype_of(x)
    start = tirx.const(0 if kind == "sum" else 1, dtype)

    def kernel(x: te.Tensor, given: te.Tensor) -> te.Tensor:
        at = scalar(given).astype("int64")
        is_axis = [tirx.any(at.equal(_int(n)), at.equal(_int(n - rank))) for n in range(rank)]
        longest = x.shape[0]
        for size in x.shape[1:]:
            longest = tirx.max(longest, size)
        along = te.reduce_axis((0, tirx.max(_int(1), longest)), name="along")
        combine = te.comm_reducer(
            lambda a, b: a + b if kind == "sum" else a * b, lambda _: start, name=f"cumulative_{kind}"
        )

        def element(*place: ir.Expr) -> ir.Expr:
            here, step = _int(0), along.var.astype("int64")
            for yes, index in zip(is_axis, place, strict=True):
                here = tirx.Select(yes, index.astype("int64"), here)
            size = _int(0)
            for yes, extent in zip(is_axis, x.shape, strict=True):
                size = tirx.Select(yes, extent, size)
            counts = step >= here if reverse else step <= here
            if exclusive:
                counts = step > here if reverse else step < here
            read = x(*(tirx.Select(yes, step, index) for yes, index in zip(is_axis, place, strict=True)))
            return combine(tirx.if_then_else(tirx.all(counts, step < size), read, start), axis=along)

        return te.compute(x.shape, element, name=f"cumulative_{kind}")

    return computed(node, kernel, x, node[1])


def _int(value: int) -> ir.Expr:
    return tirx.const(value, "int64")


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "CumProd": _cumulative("prod"),
    "CumSum": _cumulative("sum"),
}
