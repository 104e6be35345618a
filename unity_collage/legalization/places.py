"""The places of the largest and smallest elements: of NaN if there is one, as in numpy and PyTorch.

TVM's kernels start from the ends of the finite range, so a row of infinities has the place -1, and NaN is never found.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import ir, relax, te, tirx, topi

from .stock import Legalization

_topi: Any = topi
"""Its stubs have few of its functions."""


def place_of_extremum(
    x: te.Tensor, axis: int, *, largest: bool, last: bool = False, keepdims: bool = False
) -> te.Tensor:
    """The indexes of the largest or smallest elements along an axis as int64: of the first or the last of equal ones.

    The first or last NaN counts as the extremum.
    """
    none = tirx.const(-1, "int64")

    def combine(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[ir.Expr, ir.Expr]:
        take = tirx.all(b[0] >= 0, tirx.any(a[0] < 0, _is_better(a, b, largest, last)))
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


def _is_better(a: tuple[Any, Any], b: tuple[Any, Any], largest: bool, last: bool) -> ir.Expr:
    """Whether ``b``, an index and an element, is to be taken instead of ``a``."""
    order = b[0] > a[0] if last else b[0] < a[0]
    beyond, is_equal = (b[1] > a[1] if largest else b[1] < a[1]), b[1].equal(a[1])
    dtype = b[1].expr_ty().dtype
    if "float" not in dtype:
        return tirx.any(beyond, tirx.all(is_equal, order))
    nan = [tirx.isnan(side[1].astype("float32") if "16" in dtype else side[1]) for side in (a, b)]
    # Logic alone, without branches: kernels of it can be vectorised.
    return tirx.any(
        beyond,
        tirx.all(nan[1], tirx.Not(nan[0])),
        tirx.all(tirx.any(is_equal, tirx.all(*nan)), order),
    )


def _place(largest: bool) -> Legalization:
    """The kernel of ``relax.argmax`` or ``relax.argmin``; without an axis it is the place in the flattened tensor."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        name, keepdims = ("argmax" if largest else "argmin"), bool(call.attrs.keepdims)

        def kernel(x: te.Tensor) -> te.Tensor:
            if x.dtype == "bool":
                x = _topi.cast(x, "int8")
            if call.attrs.axis is not None:
                axis = int(call.attrs.axis) % len(x.shape)
                return place_of_extremum(x, axis, largest=largest, keepdims=keepdims)
            flat = _topi.reshape(x, [prod(x.shape)])
            found = place_of_extremum(flat, 0, largest=largest)
            return _topi.reshape(found, [1] * len(x.shape)) if keepdims else found

        return builder.call_te(kernel, call.args[0], primfunc_name_hint=name)

    return legalize


LEGALIZATIONS: dict[str, Legalization] = {"relax.argmax": _place(True), "relax.argmin": _place(False)}
