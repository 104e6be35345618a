"""The places of the largest and smallest elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tvm import ir, relax, te, tirx

from ..node import Converted, OnnxNode
from .pointwise import dtype_of


def place_of_extremum(
    node: OnnxNode, x: relax.Expr, axis: int, largest: bool = True, last: bool = False, keepdims: bool = True
) -> relax.Expr:
    """The indexes of the largest or smallest elements along an axis as int64: of the first or the last of equal ones.

    NaN counts as the extremum, as in numpy. Relax's operators do not find infinities and know no last one.
    """

    def kernel(x: te.Tensor) -> te.Tensor:
        return _kernel(x, axis, partial(_better, largest=largest, last=last), keepdims)

    return node.builder.call_te(kernel, x, primfunc_name_hint="argmax" if largest else "argmin")


def _kernel(x: te.Tensor, axis: int, better: Callable[..., ir.Expr], keepdims: bool) -> te.Tensor:
    none = tirx.const(-1, "int64")

    def combine(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[ir.Expr, ir.Expr]:
        take = tirx.all(b[0] >= 0, tirx.any(a[0] < 0, better(a, b)))
        return tirx.Select(take, b[0], a[0]), tirx.Select(take, b[1], a[1])

    find = te.comm_reducer(combine, lambda _, dtype: (none, tirx.const(0, dtype)), name="place")
    along = te.reduce_axis((0, x.shape[axis]), name="along")
    kept = [size for n, size in enumerate(x.shape) if n != axis]

    def element(*place: ir.Expr) -> ir.Expr:
        at = (*place[:axis], along, *place[axis:])
        return find((along.var.astype("int64"), x(*at)), axis=along)

    found: Any = te.compute(kept, element, name="place")
    places = found[0]
    if not keepdims:
        return te.compute(kept, lambda *place: places(*place), name="place_of")
    shape = [*kept[:axis], tirx.const(1, "int64"), *kept[axis:]]
    return te.compute(shape, lambda *place: places(*place[:axis], *place[axis + 1 :]), name="place_of")


def _better(a: tuple[Any, Any], b: tuple[Any, Any], largest: bool, last: bool) -> ir.Expr:
    """Whether ``b``, an index and an element, is to be taken instead of ``a``."""
    order = b[0] > a[0] if last else b[0] < a[0]
    better = tirx.any(b[1] > a[1] if largest else b[1] < a[1], tirx.all(b[1].equal(a[1]), order))
    if "float" not in dtype_of(a[1]):
        return better
    nan = [tirx.isnan(side[1].astype("float32") if "16" in dtype_of(side[1]) else side[1]) for side in (a, b)]
    return tirx.if_then_else(nan[0], tirx.all(nan[1], order), tirx.any(nan[1], better))


def _arg(largest: bool) -> Callable[[OnnxNode], Converted]:
    def convert(node: OnnxNode) -> Converted:
        axis, keepdims = node.axis(node.attribute("axis", 0)), bool(node.attribute("keepdims", 1))
        last = bool(node.attribute("select_last_index", 0))
        if node.rank() == 0:
            return node.constant(0, "int64")
        return place_of_extremum(node, node[0], axis, largest, last, keepdims)

    return convert


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"ArgMax": _arg(True), "ArgMin": _arg(False)}
