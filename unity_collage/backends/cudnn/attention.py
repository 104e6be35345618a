"""Attention: two products with a softmax between them, one kernel for all heads, in 16-bit types.

softmax(query @ key * scale + mask) @ value, where the factor and the mask are optional. A step begins as the product of
query and key, which is not a complete kernel. It absorbs the operators behind it, up to the product with the values.
The scores stay in float32, also where the operators between the products round them.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import ir, relax

from ..native.casts import is_cast
from ..native.program import NativeStep, View
from ..native.values import (
    attrs_of,
    dtype_of,
    op_name,
    scalar_of,
    shape_of,
    static_shape,
    why_not_scale,
    why_not_static,
)
from ..native.views import broadcast, row_major, unrepeated
from .types import NARROW, TYPES, WIDE, why_not_operand

PRIMITIVE = "attention"

ANCHORS = frozenset({"relax.matmul", "relax.nn.attention", "relax.nn.attention_bias"})

_WIDEST_HEAD = 256
_LANES = 8
"""Numbers of 16 bits in a vector of 16 bytes: cuDNN reads heads in such vectors."""


def attention(call: relax.Call, algorithm: int) -> NativeStep | str:
    """A whole attention, or the product of queries and keys as the beginning of one, or the reason why not."""
    if op_name(call) != "relax.matmul":
        return _whole(call, algorithm)
    query, key = call.args
    if reason := _why_not("query", query) or _why_not("key", key) or why_not_operand("product", call):
        return reason
    if isinstance(query, ir.GenericConst) or isinstance(key, ir.GenericConst):
        return "a factor is constant, an attention's are queries and keys"
    if dtype_of(query) != dtype_of(key) or len(static_shape(call)) > 4:
        return "queries and keys differ in type, or there are more than two batch dims"
    *batch, rows, keys = static_shape(call)
    size = static_shape(query)[-1]
    args = (
        ("query", _repeated(query, (*batch, rows, size))),
        ("key", _repeated(key, (*batch, size, keys))),
        ("dst", _repeated(call, (*batch, rows, keys))),
    )
    return NativeStep(PRIMITIVE, args, (("algorithm", algorithm), ("scale", 1.0), ("softmax", False)))


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The attention with ``call``, which reads its result as ``args[operand]``: scale, mask, softmax, values or a
    cast.
    """
    if is_cast(call):
        return _rounded(step, call)
    make = _PARTS.get(op_name(call))
    if make is None or step.arg("value") is not None:
        return f"attention has no {op_name(call).removeprefix('relax.')} there"
    return make(step, call, operand)


def why_partial(step: NativeStep) -> str | None:
    """Why an attention cannot run yet, or None when it can."""
    if step.arg("value") is None:
        return "the product of queries and keys meets no values"
    for name, axis in (("query", 3), ("key", 2), ("value", 3), ("dst", 3)):
        view = step.arg(name)
        assert view is not None
        if reason := _why_not_heads(name, view, axis):
            return reason
        if view.dtype != step.result.dtype:
            return f"the result is {step.result.dtype}, {name} is {view.dtype}"
    mask = step.arg("mask")
    if mask is not None and (mask.strides[3] != 1 or mask.dims[3] == 1):
        return "the mask has not one number for each key, next to each other"
    return None


def _whole(call: relax.Call, algorithm: int) -> NativeStep | str:
    """nn.attention of (batch, position, head, size) -> attention of (batch, head, position, size)."""
    query, key, value, *mask = call.args
    for name, arg in zip(("query", "key", "value", "result"), (query, key, value, call), strict=True):
        if reason := _why_not(name, arg, least=4):
            return reason
    attrs = attrs_of(call)
    if attrs.causal_mask is not None or attrs.window_size is not None:
        return "the attention has a causal mask or a window"
    (batch, rows, heads, size), keys = static_shape(query), static_shape(key)[1]
    if static_shape(key)[2] != heads or static_shape(value)[2] != heads:
        return "several heads of queries share keys or values"
    scale = size**-0.5 if attrs.scale is None else float(attrs.scale.value)
    if reason := why_not_scale(scale):
        return reason
    views = {name: _by_heads(arg) for name, arg in (("query", query), ("value", value), ("dst", call))}
    views["key"] = _transposed(_by_heads(key))
    if mask:
        if reason := why_not_operand("mask", mask[0]):
            return reason
        added = _mask(mask[0], (batch, heads, rows, keys))
        if isinstance(added, str):
            return added
        views["mask"] = added
    return NativeStep(PRIMITIVE, tuple(views.items()), (("algorithm", algorithm), ("scale", scale)))


def _by_heads(value: relax.Expr) -> View:
    batch, rows, heads, size = static_shape(value)
    outer, row, head, inner = row_major((batch, rows, heads, size))
    return View(value, (batch, heads, rows, size), (outer, head, row, inner), dtype_of(value))


def _transposed(view: View) -> View:
    (*batch, rows, size), (*outer, row, inner) = view.dims, view.strides
    return replace(view, dims=(*batch, size, rows), strides=(*outer, inner, row))


def _scaled(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    factor = scalar_of(call.args[1 - operand])
    if factor is None or not _keeps_scores(step, call):
        return "the scores are multiplied by something else than one number"
    if step.attr("softmax") or step.arg("mask") is not None:
        return "the factor comes behind the mask or the softmax"
    if op_name(call) == "relax.divide":
        if operand == 1 or factor == 0:
            return "the scores are divided by a nonzero number only"
        factor = 1.0 / factor
    scale = step.attr("scale") * factor
    if reason := why_not_scale(scale):
        return reason
    return replace(step.with_attrs(scale=scale), args=_made_by(step, call))


def _masked(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    mask = call.args[1 - operand]
    if reason := why_not_operand("mask", mask):
        return reason
    if step.attr("softmax") or step.arg("mask") is not None:
        return "there is one sum before the softmax"
    if mask == call.args[operand] or not _keeps_scores(step, call):
        return "the mask changes the shape of the scores"
    view = _mask(mask, step.result.dims)
    return view if isinstance(view, str) else replace(step, args=_made_by(step, call)).with_arg("mask", view)


def _normalized(step: NativeStep, call: relax.Call, _operand: int) -> NativeStep | str:
    if step.attr("softmax"):
        return "there is one softmax"
    if int(attrs_of(call).axis) not in (-1, len(static_shape(call)) - 1):
        return "the softmax is not over the keys"
    return replace(step.with_attrs(softmax=True), args=_made_by(step, call))


def _rounded(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step with a cast of the result, or of the scores."""
    if shape_of(call) is None or dtype_of(call) not in TYPES:
        return f"attention does not write {dtype_of(call)}"
    if step.arg("value") is not None and dtype_of(call.args[0]) != WIDE:
        return "the result is rounded already"
    return replace(step, args=_made_by(step, call))


def _with_values(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    value, query = call.args[1], step.arg("query")
    if operand != 0 or not step.attr("softmax"):
        return "the second product is not of a softmax and values"
    if reason := _why_not("value", value) or why_not_operand("result", call):
        return reason
    assert query is not None
    *batch, _rows, keys = step.result.dims
    if dtype_of(value) != query.dtype or _padded(static_shape(call))[:-1] != step.result.dims[:-1]:
        return "the values differ in type from the queries, or have more batches than the scores"
    size = static_shape(value)[-1]
    args = dict(step.args) | {"value": _repeated(value, (*batch, keys, size))}
    args["dst"] = _repeated(call, static_shape(call))
    attrs = (("algorithm", step.attr("algorithm")), ("scale", step.attr("scale")))
    return NativeStep(PRIMITIVE, tuple(args.items()), attrs)


_PARTS = {
    "relax.multiply": _scaled,
    "relax.divide": _scaled,
    "relax.add": _masked,
    "relax.nn.softmax": _normalized,
    "relax.matmul": _with_values,
}


def _made_by(step: NativeStep, call: relax.Call) -> tuple[tuple[str, View], ...]:
    """The arguments of a step with the result of ``call``, which has the same shape, as its new result."""
    return step.with_result(replace(step.result, buffer=call, dtype=dtype_of(call))).args


def _keeps_scores(step: NativeStep, call: relax.Call) -> bool:
    shape = shape_of(call)
    return shape is not None and _padded(shape) == step.result.dims


def _padded(dims: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (4 - len(dims)) + tuple(dims)


def _repeated(value: relax.Expr, wanted: tuple[int, ...]) -> View:
    """A tensor as a view of four dims that is broadcast to the shape ``wanted``, with leading dims of 1."""
    dims = _padded(wanted)
    strides = broadcast(static_shape(value), dims)
    assert strides is not None
    return View(value, dims, strides, dtype_of(value))


def _mask(mask: relax.Expr, scores: tuple[int, ...]) -> View | str:
    """The mask with one element along the dims in which it repeats."""
    if len(static_shape(mask)) > 4 or broadcast(static_shape(mask), scores) is None:
        return "the mask is not broadcast to the scores"
    return unrepeated(_repeated(mask, scores), View(mask, scores, row_major(scores), dtype_of(mask)))


def _why_not_heads(name: str, view: View, axis: int) -> str | None:
    """Why cuDNN cannot read or write heads, with their numbers along ``axis``, in vectors; or None if it can."""
    others = [s for k, (n, s) in enumerate(zip(view.dims, view.strides, strict=True)) if k != axis and n != 1]
    if view.strides[axis] != 1 or 0 in others:
        return f"the numbers of a head of {name} are not neighbours, or heads repeat"
    if view.dims[axis] > _WIDEST_HEAD:
        return f"the heads of {name} have {view.dims[axis]} numbers, the most are {_WIDEST_HEAD}"
    if any(number % _LANES for number in (view.dims[axis], view.offset, *others)):
        return f"the heads of {name} do not begin and end at multiples of {_LANES} numbers"
    return None


def _why_not(what: str, value: relax.Expr, least: int = 2) -> str | None:
    if reason := why_not_operand(what, value, NARROW) or why_not_static(what, value):
        return reason
    rank = len(static_shape(value))
    return None if least <= rank <= 4 else f"{what} has {rank} dims"
