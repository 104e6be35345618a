"""Maxima and minima over axes and windows, which start from infinity, and the sign, which keeps NaN.

TVM's maxima start from the lowest finite number and pad with it, so a window of -infinity gives -3.4e38. TVM's sign of
NaN is 0.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import ir, relax, te, tirx, topi

from .stock import Legalization, legalized_by_tvm


def _infinite(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's kernel with infinities in place of the ends of the finite range, which have no other use in it."""
    made = legalized_by_tvm(builder, call)
    gvar = made.args[0] if isinstance(made, relax.Call) else None
    if not isinstance(gvar, ir.GlobalVar):
        return made
    kernel = builder.get()[gvar]
    assert isinstance(kernel, tirx.PrimFunc)
    body = tvm_ffi.structural_map(kernel.body, (tirx.FloatImm, _unbounded))
    if not body.same_as(kernel.body):
        builder.update_func(gvar, kernel.with_body(body))
    return made


def _unbounded(number: tirx.FloatImm) -> ir.Expr:
    dtype = number.expr_ty().dtype
    for end, infinity in ((tirx.min_value(dtype), -math.inf), (tirx.max_value(dtype), math.inf)):
        if number.value == end.value:
            return tirx.const(infinity, dtype)
    return number


def _sign(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """x > 0 ? 1 : (x < 0 ? -1 : x)"""

    def sign(data: te.Tensor) -> te.Tensor:
        def element(*place: ir.Expr) -> ir.Expr:
            x = data(*place)
            one, zero = tirx.const(1, data.dtype), tirx.const(0, data.dtype)
            return tirx.Select(x > zero, one, tirx.Select(x < zero, zero - one, x))

        return te.compute(data.shape, element, name="sign", tag=topi.tag.ELEMWISE)

    return builder.call_te(sign, call.args[0])


_FROM_INFINITY = (
    "relax.max",
    "relax.min",
    "relax.nn.max_pool1d",
    "relax.nn.max_pool2d",
    "relax.nn.max_pool3d",
)
LEGALIZATIONS: dict[str, Legalization] = {**dict.fromkeys(_FROM_INFINITY, _infinite), "relax.sign": _sign}
