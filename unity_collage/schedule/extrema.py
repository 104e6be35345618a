"""Maxima and minima of floats that keep NaN, as numpy, PyTorch and ONNX define them.

TIR's ``max(a, b)`` is ``a > b ? a : b``: one instruction, which returns ``b`` if either operand is NaN. So a constant
becomes the first operand. Other maxima also test the first operand, which costs two instructions more.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx
from tvm.ir.expr import TensorLoad

from .formulas import let
from .stage import Expr, Func, nodes

_SHORT = 24
"""The most nodes of an expression that is repeated."""
_BITS = {"float32": "uint32", "float64": "uint64"}
_FINITE_ENDS = {"float16": 65504.0, "float32": 3.4028234663852886e38, "bfloat16": 3.3895313892515355e38}


def keeping_nan(func: Func) -> Func:
    """``func`` with float maxima and minima that are NaN if an operand is.

    Reductions that start from the lowest or highest finite number are left unchanged. They are inside TVM's softmax,
    where a NaN reaches the result by the exponentials. Those of :mod:`unity_collage.legalization` start from infinity.
    """
    exempt = _started_from_finite(func)

    def kept(extremum: tirx.Max | tirx.Min) -> Expr:
        a, b = extremum.a, extremum.b
        if not str(a.expr_ty().dtype).startswith(("float", "bfloat")) or any(
            _reads(x, exempt) for x in (a, b)
        ):
            return extremum
        if _is_constant(a):
            return extremum
        return type(extremum)(b, a) if _is_constant(b) else _tested(extremum)

    body = tvm_ffi.structural_map(func.body, ((tirx.Max, kept), (tirx.Min, kept)))
    return func if body.same_as(func.body) else func.with_body(body)


def _tested(extremum: tirx.Max | tirx.Min) -> Expr:
    """max(a, b) -> a == a ? (a > b ? a : b) : a"""

    def of(a: Expr, b: Expr) -> Expr:
        first = a > b if isinstance(extremum, tirx.Max) else a < b
        return tirx.Select(_is_number(a), tirx.Select(first, a, b), a)

    return _bound(extremum.a, lambda a: _bound(extremum.b, lambda b: of(a, b)))


def _is_number(x: Expr) -> Expr:
    """Whether ``x`` is not NaN: it is equal to its own bits. TVM simplifies ``x == x`` to true."""
    dtype = str(x.expr_ty().dtype)
    if dtype not in _BITS:  # half precision: TVM computes in float32
        x, dtype = tirx.Cast("float32", x), "float32"
    return tirx.EQ(x, tirx.reinterpret(dtype, tirx.reinterpret(_BITS[dtype], x)))


def _bound(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """``body`` of ``value``, computed once: by the compiler, or by a Let where it is long.

    TVM does not accept the same expression twice if it has a Let inside, so short expressions have none. Those of
    bfloat16 have none either: TVM computes them in float32, and fails on variables of bfloat16.
    """
    is_long = len(nodes(value, ir.Expr)) > _SHORT and str(value.expr_ty().dtype) != "bfloat16"
    return let(value, body) if is_long else body(value)


def _is_constant(value: Expr) -> bool:
    """Whether ``value`` cannot be NaN: a number, or an integer as a float."""
    if isinstance(value, tirx.Cast):
        return "float" not in str(value.value.expr_ty().dtype)
    return isinstance(value, tirx.FloatImm) and not math.isnan(value.value)


def _reads(value: Expr, buffers: list[tirx.Buffer]) -> bool:
    return isinstance(value, TensorLoad) and any(value.source.same_as(buffer) for buffer in buffers)


def _started_from_finite(func: Func) -> list[tirx.Buffer]:
    """The buffers that are filled with the lowest or the highest finite number of their type."""
    stores = nodes(func.body, tirx.BufferStore)
    return [store.buffer for store in stores if _is_finite_end(store.value)]


def _is_finite_end(value: Expr) -> bool:
    end = _FINITE_ENDS.get(str(value.expr_ty().dtype), 1.7976931348623157e308)
    return isinstance(value, tirx.FloatImm) and abs(value.value) == end
