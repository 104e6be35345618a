"""clip: every bound on a tensor is one ``clip``, or ``relu`` where the bounds are zero and infinity.

Normal form: ``clip(x, low, high)`` with numbers of the tensor's kind, infinite where there is no bound.
"""

from __future__ import annotations

from math import inf

from tvm import ir, relax, tirx
from tvm_ffi import structural_equal

from .rule import Rule
from .scope import Expr, Scope, dtype_of, is_float, op
from .tir_store import is_load_at, loaded, store_of

_EXTREMA = {tirx.Max: op.maximum, tirx.Min: op.minimum}


def _call_tir_extremum(call: Expr, scope: Scope) -> Expr | None:
    """call_tir(max or min of a tensor and a scalar) -> maximum or minimum.

    So the importer writes ONNX's Clip: the scalar is an operand of no dimensions, or in the PrimFunc.
    """
    store = store_of(call, scope)
    if store is None or type(store.value) not in _EXTREMA or not is_load_at(store.value.a, store.index):
        return None
    operands = dict(zip(store.inputs, call.args[1].fields, strict=True))
    tensor = operands.get(loaded(store.value.a))
    bound = _bound(store.value.b, operands)
    if tensor is None or bound is None or not structural_equal(tensor.ty, call.ty):
        return None
    return _EXTREMA[type(store.value)](tensor, bound)


def _bound(expr: Expr, operands: dict) -> Expr | None:
    """The scalar operand of an extremum as a tensor of no dimensions."""
    if isinstance(expr, (tirx.FloatImm, tirx.IntImm)):
        return relax.const(expr.value, dtype_of(expr))
    if not isinstance(expr, ir.TensorLoad) or len(expr.indices) != 0:
        return None
    return operands.get(expr.source)


def _bounded(x: Expr, low: float, high: float) -> Expr:
    """``x``, which has a floating point type, within bounds of the same kind."""
    return op.clip(x, float(low), float(high))


def _extremum(call: Expr, scope: Scope) -> Expr | None:
    """maximum(x, 0.5) -> clip(x, 0.5, inf); minimum(x, 6) -> clip(x, -inf, 6)."""
    bound = scope.scalar(call.args[1])
    widens = call.args[1].ty.ndim > call.args[0].ty.ndim
    if bound is None or bound != bound or widens or not is_float(call):
        return None
    lower = call.op.name == "relax.maximum"
    return _bounded(call.args[0], bound if lower else -inf, inf if lower else bound)


def bounds_of(call: Expr | None) -> tuple[float, float] | None:
    """The bounds of a ``clip`` by numbers, or of a ``relu``."""
    if call is None:
        return None
    if call.op.name == "relax.nn.relu":
        return 0.0, inf
    low, high = call.args[1:]
    if not all(isinstance(bound, (tirx.FloatImm, tirx.IntImm)) for bound in (low, high)):
        return None
    return float(low.value), float(high.value)


def _merge(call: Expr, scope: Scope) -> Expr | None:
    """clip(clip(x, a, b), c, d) -> clip(x, max(a, c), min(b, d)), where the ranges meet."""
    inner = scope.call(call.args[0], "relax.clip", "relax.nn.relu")
    first, second = bounds_of(inner), bounds_of(call)
    if inner is None or first is None or second is None or not is_float(call):
        return None
    low, high = max(first[0], second[0]), min(first[1], second[1])
    return _bounded(inner.args[0], low, high) if low <= high else None


def _canonical(call: Expr, scope: Scope) -> Expr | None:
    """clip(x, 0, inf) -> relu(x); clip(x, -inf, inf) -> x; the bounds of floats are floats."""
    bounds = bounds_of(call)
    if bounds is None or not is_float(call):
        return None
    if bounds == (0.0, inf):
        return op.nn.relu(call.args[0])
    if bounds == (-inf, inf):
        return call.args[0]
    whole = any(isinstance(bound, tirx.IntImm) for bound in call.args[1:])
    return _bounded(call.args[0], *bounds) if whole else None


EXTREMUM_OF_CALL_TIR = Rule("extremum_of_call_tir", ("relax.call_tir",), _call_tir_extremum)
CLIP_FORM = Rule("clip_form", ("relax.maximum", "relax.minimum"), _extremum)
MERGE_CLIPS = Rule("merge_clips", ("relax.clip", "relax.nn.relu"), _merge)
CLIP_CANONICAL = Rule("clip_canonical", ("relax.clip",), _canonical)
