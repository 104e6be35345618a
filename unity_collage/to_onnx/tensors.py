"""Operators that move elements, make tensors, or reduce them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from ..graph.shapes import dtype_of
from ..reference.values import axes_of, whole_numbers
from .elementwise import Handler
from .writer import NotExported, Writer, element_type, number, numpy_dtype, rank_of, static_shape


def _reshape(writer: Writer, call: relax.Call) -> str:
    """Reshape, flatten, squeeze and expand_dims: their result has a known shape."""
    return writer.reshaped(writer.operand(call.args[0]), static_shape(call))


def _permute_dims(writer: Writer, call: relax.Call) -> str:
    axes = call.attrs.axes
    rank = rank_of(call.args[0])
    order = range(rank)[::-1] if axes is None else axes_of(axes, rank)
    return writer.node("Transpose", writer.operand(call.args[0]), perm=list(order))


def _concat(writer: Writer, call: relax.Call) -> str:
    if call.attrs.axis is None:
        raise NotExported("a concat has no axis")
    return writer.node("Concat", *writer.value(call.args[0]), axis=int(call.attrs.axis))


def _stack(writer: Writer, call: relax.Call) -> str:
    axis = axes_of(int(call.attrs.axis or 0), rank_of(call))[0]
    parts = [writer.node("Unsqueeze", part, writer.numbers([axis])) for part in writer.value(call.args[0])]
    return writer.node("Concat", *parts, axis=axis)


def _split(writer: Writer, call: relax.Call) -> list[str]:
    axis = axes_of(int(call.attrs.axis), rank_of(call.args[0]))[0]
    size, where = static_shape(call.args[0])[axis], call.attrs.indices_or_sections
    if hasattr(where, "value"):
        part = math.ceil(size / int(where))
        ends = [min(size, part * count) for count in range(1, int(where) + 1)]
    else:
        ends = [*whole_numbers(where), size]
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    found = writer.node(
        "Split", writer.operand(call.args[0]), writer.numbers(sizes), results=len(sizes), axis=axis
    )
    return found if isinstance(found, list) else [found]


def _strided_slice(writer: Writer, call: relax.Call) -> str:
    axes, begin, end, *rest = (number(arg) for arg in call.args[1:])
    steps = rest[0] if rest else [1] * len(axes)
    cut = (writer.numbers(values) for values in (begin, end, axes, steps))
    return writer.node("Slice", writer.operand(call.args[0]), *cut)


def _take(writer: Writer, call: relax.Call) -> str:
    """Gather refuses indices out of bounds; where Relax promises that there are none, they are equal."""
    if str(call.attrs.mode) != "fast":
        raise NotExported(f"a take has the mode {call.attrs.mode}")
    x, axis = writer.operand(call.args[0]), call.attrs.axis
    if axis is None:
        x, axis = writer.reshaped(x, [-1]), 0
    return writer.node("Gather", x, writer.operand(call.args[1]), axis=int(axis))


def _broadcast_to(writer: Writer, call: relax.Call) -> str:
    return writer.node("Expand", writer.operand(call.args[0]), writer.numbers(static_shape(call)))


def _tile(writer: Writer, call: relax.Call) -> str:
    rank = rank_of(call)
    repeats = [1] * rank
    given = whole_numbers(call.attrs.repeats)
    repeats[rank - len(given) :] = given
    x = writer.operand(call.args[0])
    shape = static_shape(call.args[0])
    if len(shape) < rank:
        x = writer.reshaped(x, (*[1] * (rank - len(shape)), *shape))
    return writer.node("Tile", x, writer.numbers(repeats))


def _constant(writer: Writer, call: relax.Call, value: Any) -> str:
    array = np.full(static_shape(call), np.asarray(value).reshape(()), dtype=numpy_dtype(dtype_of(call)))
    return writer.constant(array)


def _full(writer: Writer, call: relax.Call) -> str:
    value = call.args[1]
    shape = writer.numbers(static_shape(call))
    filled = writer.reshaped(writer.operand(value), [])
    if dtype_of(value) != dtype_of(call):
        filled = writer.node("Cast", filled, to=element_type(dtype_of(call)))
    return writer.node("Expand", filled, shape)


def _arange(writer: Writer, call: relax.Call) -> str:
    begin, end, step = (number(arg) for arg in call.args)
    return writer.constant(np.arange(begin, end, step, dtype=numpy_dtype(dtype_of(call))))


def _triangle(upper: int) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        diagonal = writer.constant(np.array(number(call.args[1]), np.int64))
        return writer.node("Trilu", writer.operand(call.args[0]), diagonal, upper=upper)

    return handler


def _cumsum(writer: Writer, call: relax.Call) -> str:
    if call.attrs.axis is None or dtype_of(call) != dtype_of(call.args[0]):
        raise NotExported("a cumsum has no axis, or another element type than its operand")
    axis = writer.constant(np.array(int(call.attrs.axis), np.int64))
    return writer.node(
        "CumSum", writer.operand(call.args[0]), axis, exclusive=int(bool(call.attrs.exclusive))
    )


def _gather_elements(writer: Writer, call: relax.Call) -> str:
    return writer.node("GatherElements", *writer.operands(call), axis=int(call.attrs.axis))


def _gather_nd(writer: Writer, call: relax.Call) -> str:
    return writer.node("GatherND", *writer.operands(call), batch_dims=int(call.attrs.batch_dims))


_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _scatter(op: str) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        reduction = _REDUCTIONS.get(str(call.attrs.reduction))
        if reduction is None:
            raise NotExported(f"it scatters by {call.attrs.reduction}")
        axis = {"axis": int(call.attrs.axis)} if op == "ScatterElements" else {}
        return writer.node(op, *writer.operands(call), reduction=reduction, **axis)

    return handler


_PAD = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _pad(writer: Writer, call: relax.Call) -> str:
    mode = _PAD.get(str(call.attrs.pad_mode))
    if mode is None:
        raise NotExported(f"it pads by {call.attrs.pad_mode}")
    widths = whole_numbers(call.attrs.pad_width)
    given = [writer.operand(call.args[0]), writer.numbers([*widths[::2], *widths[1::2]])]
    if mode == "constant":
        given.append(writer.scalar(float(call.attrs.pad_value), dtype_of(call)))
    return writer.node("Pad", *given, mode=mode)


def _reduction(op: str) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        axes = axes_of(call.attrs.axis, rank_of(call.args[0]))
        if op == "ReduceMean" and not dtype_of(call).startswith(("float", "bfloat")):
            raise NotExported("a mean of integers is rounded in another way")
        x, keep = writer.operand(call.args[0]), int(bool(call.attrs.keepdims))
        # ReduceSum has had its axes as an operand from version 13 on, the others from 18 on.
        return writer.node(op, x, writer.numbers(axes), keepdims=keep) if axes else x

    return handler


def _variance(writer: Writer, call: relax.Call) -> str:
    axes = writer.numbers(axes_of(call.attrs.axis, rank_of(call.args[0])))
    x, keep = writer.operand(call.args[0]), int(bool(call.attrs.keepdims))
    centred = writer.node("Sub", x, writer.node("ReduceMean", x, axes, keepdims=1))
    return writer.node("ReduceMean", writer.node("Mul", centred, centred), axes, keepdims=keep)


def _arg(op: str) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        x, axis = writer.operand(call.args[0]), call.attrs.axis
        if axis is None:
            raise NotExported("it looks for an index over all axes")
        found = writer.node(op, x, axis=int(axis), keepdims=int(bool(call.attrs.keepdims)))
        return (
            found
            if dtype_of(call) == "int64"
            else writer.node("Cast", found, to=element_type(dtype_of(call)))
        )

    return handler


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("reshape", "flatten", "squeeze", "expand_dims", "nn.batch_flatten"), _reshape),
    "permute_dims": _permute_dims,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "take": _take,
    "broadcast_to": _broadcast_to,
    "tile": _tile,
    "full": _full,
    "zeros": lambda writer, call: _constant(writer, call, 0),
    "ones": lambda writer, call: _constant(writer, call, 1),
    "zeros_like": lambda writer, call: _constant(writer, call, 0),
    "ones_like": lambda writer, call: _constant(writer, call, 1),
    "arange": _arange,
    "tril": _triangle(0),
    "triu": _triangle(1),
    "cumsum": _cumsum,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter("ScatterElements"),
    "scatter_nd": _scatter("ScatterND"),
    "nn.pad": _pad,
    "sum": _reduction("ReduceSum"),
    "mean": _reduction("ReduceMean"),
    "max": _reduction("ReduceMax"),
    "min": _reduction("ReduceMin"),
    "prod": _reduction("ReduceProd"),
    "variance": _variance,
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
}
