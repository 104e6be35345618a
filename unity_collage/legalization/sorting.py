"""Sorts in which NaN is larger than all numbers, as in numpy, PyTorch and ONNX, of all element types.

TVM's sorts on CPUs order nothing among NaN, compare the bits of bfloat16, and fail for small integers when they run.
They are right for int32 and int64, so other elements are sorted by a key: an integer that is in the same order.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, relax, te, tirx, topi
from tvm.relax import op

from .stock import Legalization

_WIDER = {
    "bool": "int32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
}
"""Integers that have every value of a smaller type."""

_KEYS = {"float16": "int32", "bfloat16": "int32", "float32": "int32", "float64": "int64", "uint64": "int64"}
"""The types of keys that have the bits of an element."""


def _key(data: te.Tensor) -> te.Tensor:
    """The key of each element.

    The bits of a float that is not negative are in its order already. Those of a negative one are in the opposite
    order, so all but its sign are flipped. All NaN have the largest key, and both zeros have the key 0.
    """
    dtype = str(data.dtype)
    if dtype in _WIDER:
        return topi.cast(data, _WIDER[dtype])
    key = _KEYS[dtype]
    if dtype == "uint64":  # without its highest bit, half of the range is below 0
        return te.compute(
            data.shape, lambda *place: _flipped(tirx.reinterpret(key, data(*place))), name="key"
        )
    largest = tirx.max_value(key)

    def element(*place: ir.Expr) -> ir.Expr:
        x: Any = data(*place)
        x = x.astype("float32") if "16" in dtype else x
        bits = tirx.reinterpret(key, x)
        ordered = tirx.Select(bits < tirx.const(0, key), bits ^ largest, bits)
        number = tirx.Select(x.equal(tirx.const(0, str(x.expr_ty().dtype))), tirx.const(0, key), ordered)
        return tirx.Select(tirx.isnan(x), largest, number)

    return te.compute(data.shape, element, name="key", tag=topi.tag.ELEMWISE)


def _flipped(bits: Any) -> ir.Expr:
    """``bits`` with another sign."""
    return bits ^ tirx.min_value("int64")


def _sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if (key := _keys_of(builder, call)) is None:
        return call
    axis = int(call.attrs.axis)
    order = builder.emit(op.argsort(key, axis, bool(call.attrs.descending), "int64"))
    return op.gather_elements(call.args[0], order, axis)


def _argsort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if (key := _keys_of(builder, call)) is None:
        return call
    return op.argsort(key, int(call.attrs.axis), bool(call.attrs.descending), str(call.attrs.dtype))


def _topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if (key := _keys_of(builder, call)) is None:
        return call
    attrs, axis = call.attrs, int(call.attrs.axis)
    dtype, kind = str(attrs.dtype), str(attrs.ret_type)
    order = builder.emit(op.topk(key, int(attrs.k), axis, "indices", bool(attrs.largest), dtype))
    if kind == "indices":
        return order
    places = order if dtype == "int64" else builder.emit(op.astype(order, "int64"))
    elements = op.gather_elements(call.args[0], places, axis)
    return elements if kind == "values" else relax.Tuple([builder.emit(elements), order])


def _keys_of(builder: relax.BlockBuilder, call: relax.Call) -> relax.Var | None:
    """The keys of the operand; None if TVM sorts it right."""
    kind = call.args[0].ty
    if not isinstance(kind, relax.TensorType) or str(kind.dtype) not in {*_WIDER, *_KEYS}:
        return None
    return builder.emit(builder.call_te(_key, call.args[0], primfunc_name_hint="sort_key"))


SORTS: dict[str, Legalization] = {"relax.sort": _sort, "relax.argsort": _argsort, "relax.topk": _topk}
"""Legalizations of sorts for CPUs, to sorts of integers."""
