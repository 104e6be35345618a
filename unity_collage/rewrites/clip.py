"""clip: every bound on a tensor is one ``clip``, or ``relu`` where the bounds are zero and infinity.

Normal form: ``clip(x, low, high)`` with numbers of the tensor's kind, infinite where there is no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from tvm import ir, relax, tirx
from tvm_ffi import structural_equal

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of
from .tir_store import Store, is_load_at, loaded, operands_of, store_of
from .why_not import WhyNot, number_text

_UNKNOWN = "a bound of clip is not a number that is written in the program"

_EXTREMA = {tirx.Max: op.maximum, tirx.Min: op.minimum}


def _call_tir_extremum(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """call_tir(max or min of a tensor and a scalar) -> maximum or minimum.

    The importer writes ONNX's Clip like this: the scalar is an operand without dimensions, or in the PrimFunc.
    """
    store = store_of(call, scope)
    if store is None or type(store.value) not in _EXTREMA:
        return None
    operands = dict(zip(store.inputs, operands_of(call), strict=True))
    tensor, bound = operands.get(loaded(store.value.a)), _bound(store.value.b, operands)
    why = _why_not_extremum(call, store, tensor, bound)
    if why is not None or tensor is None or bound is None:
        return WhyNot(why or "")
    return _EXTREMA[type(store.value)](tensor, bound)


def _why_not_extremum(call: Call, store: Store, tensor: Expr | None, bound: Expr | None) -> str | None:
    """Why a PrimFunc that takes the larger or smaller of two values does not bound a tensor by a scalar."""
    name = "max" if isinstance(store.value, tirx.Max) else "min"
    if not is_load_at(store.value.a, store.index) or tensor is None:
        return f"the left operand of {name} is not an element of an input at the index of the output"
    if bound is None:
        return f"the right operand of {name} is not a number or an input of no dimensions"
    if not structural_equal(tensor.ty, call.ty):
        return f"{name} makes {call.ty} of {tensor.ty}"
    return None


def _bound(expr: Expr, operands: Mapping[Any, Expr]) -> Expr | None:
    """The scalar operand of an extremum as a tensor of no dimensions."""
    if isinstance(expr, (tirx.FloatImm, tirx.IntImm)):
        return relax.const(expr.value, dtype_of(expr))
    if not isinstance(expr, ir.TensorLoad) or len(expr.indices) != 0:
        return None
    return operands.get(expr.source)


def _bounded(x: Expr, low: float, high: float) -> Expr:
    """``x``, which has a floating point type, within bounds of the same kind."""
    return op.clip(x, float(low), float(high))


def _extremum(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """maximum(x, 0.5) -> clip(x, 0.5, inf); minimum(x, 6) -> clip(x, -inf, 6)."""
    array = scope.array(call.args[1])
    if array is None:
        return None
    bound = scope.scalar(call.args[1])
    why = _why_no_bound(call, bound, array.size)
    if bound is None or why is not None:
        return WhyNot(f"the bound of {op_name(call).removeprefix('relax.')} {why}")
    lower = op_name(call) == "relax.maximum"
    return _bounded(call.args[0], bound if lower else -inf, inf if lower else bound)


def _why_no_bound(call: Call, bound: float | None, size: int) -> str | None:
    """Why a constant operand of an extremum is not a bound of clip."""
    if bound is None:
        return f"has {size} elements, not one"
    if bound != bound:
        return "is not a number"
    if rank_of(call.args[1]) > rank_of(call.args[0]):
        return f"has {rank_of(call.args[1])} axes, more than the tensor"
    return None if is_float(call) else f"is {dtype_of(call)}, not a floating point type"


def bounds_of(call: Call | None) -> tuple[float, float] | None:
    """The bounds of a ``clip`` by numbers, or of a ``relu``."""
    if call is None:
        return None
    if op_name(call) == "relax.nn.relu":
        return 0.0, inf
    low, high = call.args[1:]
    if not isinstance(low, (tirx.FloatImm, tirx.IntImm)) or not isinstance(
        high, (tirx.FloatImm, tirx.IntImm)
    ):
        return None
    return float(low.value), float(high.value)


def _merge(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """clip(clip(x, a, b), c, d) -> clip(x, max(a, c), min(b, d)), where the ranges meet."""
    inner = scope.call(call.args[0], "relax.clip", "relax.nn.relu")
    if inner is None:
        return None
    first, second = bounds_of(inner), bounds_of(call)
    if first is None or second is None:
        return WhyNot(_UNKNOWN, 2)
    if not is_float(call):
        return WhyNot(f"clip is of {dtype_of(call)}, not of a floating point type", 2)
    low, high = max(first[0], second[0]), min(first[1], second[1])
    if low > high:
        return WhyNot(
            f"the ranges {_range_text(first)} and {_range_text(second)} of two clips do not meet", 2
        )
    return _bounded(inner.args[0], low, high)


def _range_text(bounds: tuple[float, float]) -> str:
    return f"{number_text(bounds[0])} to {number_text(bounds[1])}"


def _canonical(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """clip(x, 0, inf) -> relu(x); clip(x, -inf, inf) -> x; the bounds of floats are floats."""
    bounds = bounds_of(call)
    if bounds is None:
        return WhyNot(_UNKNOWN)
    if not is_float(call):
        return None
    if bounds == (0.0, inf):
        return op.nn.relu(call.args[0])
    if bounds == (-inf, inf):
        return call.args[0]
    whole = any(isinstance(bound, tirx.IntImm) for bound in call.args[1:])
    return _bounded(call.args[0], *bounds) if whole else None


EXTREMUM_OF_CALL_TIR = Rewrite("extremum_of_call_tir", ("relax.call_tir",), _call_tir_extremum)
CLIP_FORM = Rewrite("clip_form", ("relax.maximum", "relax.minimum"), _extremum)
MERGE_CLIPS = Rewrite("merge_clips", ("relax.clip", "relax.nn.relu"), _merge)
CLIP_CANONICAL = Rewrite("clip_canonical", ("relax.clip",), _canonical)
