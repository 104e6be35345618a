"""Attention: two products with a softmax between them, one kernel for all heads.

softmax(query @ key * scale + mask) @ value, where the factor and the mask are optional. A step begins as the product of
query and key, which is not a complete kernel. It absorbs the operators behind it, up to the product with the values.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tvm import ir, relax

from ...graph.free_sizes import UnknownSize, for_all_sizes
from ..native.casts import FLOATS, WIDE, is_cast, write_narrowed
from ..native.program import NativeStep, View
from ..native.values import (
    attrs_of,
    dtype_of,
    op_name,
    scalar_of,
    shape_of,
    static_shape,
    why_not_scale,
    why_not_sized,
)
from ..native.views import broadcast

PRIMITIVE = "attention"


@for_all_sizes
def attention(call: relax.Call) -> NativeStep | str:
    """The product of queries and keys as the beginning of an attention, or the reason why it cannot be one."""
    query, key = call.args
    if reason := _why_not("query", query) or _why_not("key", key) or _why_not("product", call, types={WIDE}):
        return reason
    if isinstance(query, ir.GenericConst) or isinstance(key, ir.GenericConst):
        return "a factor is constant, an attention's are queries and keys"
    *batch, rows, keys = static_shape(call)
    size = static_shape(query)[-1]
    args = (
        ("query", _repeated(query, (*batch, rows, size))),
        ("key", _repeated(key, (*batch, size, keys))),
        ("dst", _repeated(call, (*batch, rows, keys))),
    )
    return checked(NativeStep(PRIMITIVE, args, (("scale", 1.0), ("softmax", False))))


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The attention with ``call``, which reads its result as ``args[operand]``: scale, mask, softmax, values or a
    cast.
    """
    if is_cast(call):
        return _rounded(step, call)
    make = _PARTS.get(op_name(call))
    if make is None or step.arg("value") is not None:
        return f"attention has no {op_name(call).removeprefix('relax.')} there"
    if dtype_of(call) != WIDE:
        return "the operator changes the dtype"
    return make(step, call, operand)


def why_partial(step: NativeStep) -> str | None:
    """Why an attention cannot run yet, or None when it can."""
    return None if step.arg("value") is not None else "the product of queries and keys meets no values"


def checked(step: NativeStep | str) -> NativeStep | str:
    """The step if the kernel can address its tensors, or the reason why not."""
    if isinstance(step, str):
        return step
    for name, view in step.args:
        columns = _are_neighbours(view, -1)
        if not columns and not (name == "key" and _are_neighbours(view, -2)):
            return f"the numbers of a row of {name} are not neighbours"
    return step


def _scaled(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    factor = scalar_of(call.args[1 - operand])
    if factor is None or shape_of(call) != step.result.dims:
        return "the scores are multiplied by something else than one number"
    if step.attr("softmax") or step.arg("mask") is not None:
        return "the factor comes behind the mask or the softmax"
    scale = step.attr("scale") * factor
    if reason := why_not_scale(scale):
        return reason
    return replace(step.with_attrs(scale=scale), args=_made_by(step, call))


def _masked(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    mask = call.args[1 - operand]
    if reason := _why_not("mask", mask, least=0):
        return reason
    if step.attr("softmax") or step.arg("mask") is not None:
        return "there is one sum before the softmax"
    if mask == call.args[operand] or shape_of(call) != step.result.dims:
        return "the mask changes the shape of the scores"
    return replace(step, args=_made_by(step, call)).with_arg("mask", _repeated(mask, static_shape(call)))


def _normalized(step: NativeStep, call: relax.Call, _operand: int) -> NativeStep | str:
    if step.attr("softmax"):
        return "there is one softmax"
    if int(attrs_of(call).axis) not in (-1, len(step.result.dims) - 1):
        return "the softmax is not over the keys"
    return replace(step.with_attrs(softmax=True), args=_made_by(step, call))


def _rounded(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step with a cast of the result; or of the scores, which the kernel keeps in float32 in any case."""
    if step.arg("value") is not None:
        return write_narrowed(step, call)
    if dtype_of(call) not in FLOATS:
        return f"the scores are stored as {dtype_of(call)}"
    return replace(step, args=_made_by(step, call))


def _with_values(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    value = call.args[1]
    if operand != 0 or not step.attr("softmax"):
        return "the second product is not of a softmax and values"
    if reason := _why_not("value", value):
        return reason
    *batch, _rows, keys = step.result.dims
    if shape_of(call) is None or static_shape(call)[:-1] != step.result.dims[:-1]:
        return "the values have more batches than the scores"
    size = static_shape(value)[-1]
    args = dict(step.args) | {"value": _repeated(value, (*batch, keys, size))}
    args["dst"] = _repeated(call, static_shape(call))
    return NativeStep(PRIMITIVE, tuple(args.items()), (("scale", step.attr("scale")),))


_PARTS = {
    "relax.multiply": _scaled,
    "relax.add": _masked,
    "relax.nn.softmax": _normalized,
    "relax.matmul": _with_values,
}


def _made_by(step: NativeStep, call: relax.Call) -> tuple[tuple[str, View], ...]:
    """The arguments of a step with the result of ``call``, which has the same shape, as its new result."""
    return step.with_result(replace(step.result, buffer=call)).args


def _repeated(value: relax.Expr, wanted: tuple[int, ...]) -> View:
    """A tensor as a view that is broadcast to the shape ``wanted``."""
    strides = broadcast(static_shape(value), wanted)
    if strides is None:  # with static sizes the product itself would be wrong
        raise UnknownSize(f"it depends on the sizes whether {static_shape(value)} is broadcast to {wanted}")
    return View(value, wanted, strides, dtype_of(value))


def _are_neighbours(view: View, axis: int) -> bool:
    return view.dims[axis] == 1 or view.strides[axis] == 1


def _why_not(what: str, value: relax.Expr, least: int = 2, types: Collection[str] = FLOATS) -> str | None:
    if dtype_of(value) not in types:
        needed = " and ".join(sorted(types, reverse=True))
        return f"{what} is {dtype_of(value) or 'of unknown dtype'}, the kernel takes {needed}"
    if reason := why_not_sized(what, value):
        return reason
    return f"{what} is a vector" if len(static_shape(value)) < least else None
