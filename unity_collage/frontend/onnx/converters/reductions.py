"""Reductions with axes that are known now or are inputs of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax, tirx

from ..node import Converted, OnnxNode
from .axes import Axes, axes_of, is_empty_along, reduced, squeezed
from .pointwise import pointwise
from .precise import dtype_of, narrowed, widened


def _reduction(
    function: Callable[[OnnxNode, relax.Expr, Axes], relax.Expr],
) -> Callable[[OnnxNode], Converted]:
    """A reduction that ``function`` computes with kept axes; 16-bit floats are computed in float32."""

    def convert(node: OnnxNode) -> Converted:
        axes = axes_of(node)
        found = function(node, widened(node, node[0]), axes)
        if not node.attribute("keepdims", 1):
            found = squeezed(node, node.emit(found), axes)
        return narrowed(node, found, node.dtype())

    return convert


def _sum(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return reduced(node, x, axes, "sum")


def _prod(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return reduced(node, x, axes, "prod")


def _extremum(kind: str) -> Callable[[OnnxNode, relax.Expr, Axes], relax.Expr]:
    def function(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
        if dtype_of(x) != "bool":
            return reduced(node, x, axes, kind)
        return relax.op.astype(reduced(node, node.cast(x, "uint8"), axes, kind), "bool")

    return function


def _mean(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    """The sum divided by the number of elements; integers are divided towards zero."""
    dtype = dtype_of(x)
    if axes.known is not None and "float" in dtype and not is_empty_along(node, x, axes):
        return node.emit(relax.op.mean(x, list(axes.known), keepdims=True)) if axes.known else x
    total = reduced(node, x, axes, "sum")
    count = reduced(node, node.emit(relax.op.ones_like(x)), axes, "sum")
    if "float" in dtype:
        return relax.op.divide(total, count)
    return pointwise(
        node, "mean", lambda a, b: tirx.truncdiv(a, tirx.max(b, tirx.const(1, dtype))), total, count
    )


def _l1(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return reduced(node, node.emit(relax.op.abs(x)), axes, "sum")


def _l2(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return _as_float(node, _sum_square(node, x, axes), relax.op.sqrt)


def _sum_square(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return reduced(node, node.emit(relax.op.multiply(x, x)), axes, "sum")


def _log_sum(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    return _as_float(node, _sum(node, x, axes), relax.op.log)


def _as_float(node: OnnxNode, x: relax.Expr, function: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """A function of floating point numbers; of integers it is computed in float64 and rounded towards zero."""
    dtype = dtype_of(x)
    if "float" in dtype:
        return function(x)
    return relax.op.astype(node.emit(function(node.cast(x, "float64"))), dtype)


def _log_sum_exp(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    """m + log(sum(exp(x - m))), where m is the largest element if it is finite, else 0."""
    dtype = dtype_of(x)
    if "float" not in dtype:
        x = node.cast(x, "float64")
    kind = dtype_of(x)
    largest = reduced(node, x, axes, "max")
    is_finite = node.emit(relax.op.isfinite(largest))
    moved_by = node.emit(relax.op.where(is_finite, largest, node.constant(0, kind)))
    moved = node.emit(pointwise(node, "exp_of_difference", lambda a, b: tirx.exp(a - b), x, moved_by))
    found = relax.op.add(moved_by, node.emit(relax.op.log(reduced(node, moved, axes, "sum"))))
    return found if kind == dtype else relax.op.astype(node.emit(found), dtype)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "ReduceL1": _reduction(_l1),
    "ReduceL2": _reduction(_l2),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_extremum("max")),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(_extremum("min")),
    "ReduceProd": _reduction(_prod),
    "ReduceSum": _reduction(_sum),
    "ReduceSumSquare": _reduction(_sum_square),
}
