"""Products, reductions, and operators that move, pick or sort elements, as calls of ATen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax

from ...graph.shapes import dtype_of
from ...reference.values import axes_of, whole_numbers
from .asked import (
    AskedCall,
    NotAten,
    Operand,
    ResultPlace,
    TorchName,
    floats,
    is_float,
    number,
    operands_of,
    rank_of,
    shape_with,
    tensors_in,
)
from .elementwise import Handler, named

_INDEXES = ("int32", "int64")
"""The types of indexes; ATen takes bytes for masks."""


def _reduction(packet: str, only_floats: bool = False, **more: Any) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        x = call.args[0]
        if only_floats:
            floats(x)
        axes = axes_of(call.attrs.axis, rank_of(x))
        if not axes:
            raise NotAten("it reduces no axis")
        given = {"dim": list(axes), "keepdim": bool(call.attrs.keepdims), **more}
        return AskedCall(packet, operands_of([x]), given)

    return handler


def _sum(call: relax.Call) -> AskedCall:
    """ATen's sum of integers is int64 unless it is told otherwise."""
    return _reduction("sum", dtype=TorchName(dtype_of(call)))(call)


def _product(call: relax.Call) -> AskedCall:
    axes = axes_of(call.attrs.axis, rank_of(call.args[0]))
    if len(axes) != 1:
        raise NotAten("ATen's prod is over one axis")
    more = {"dim": axes[0], "keepdim": bool(call.attrs.keepdims), "dtype": TorchName(dtype_of(call))}
    return AskedCall("prod", operands_of(call.args), more)


def _scan(packet: str) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        if call.attrs.exclusive or call.attrs.axis is None:
            raise NotAten("it leaves out the element itself, or has no axis")
        more = {"dim": int(call.attrs.axis), "dtype": TorchName(dtype_of(call))}
        return AskedCall(packet, operands_of(call.args), more)

    return handler


def _einsum(call: relax.Call) -> AskedCall:
    return AskedCall("einsum", (str(call.attrs.subscripts), tensors_in(call.args[0])))


def _joined(packet: str) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        if call.attrs.axis is None:
            raise NotAten("it has no axis")
        return AskedCall(packet, (tensors_in(call.args[0]),), {"dim": int(call.attrs.axis)})

    return handler


def _split(call: relax.Call) -> AskedCall:
    axis = int(call.attrs.axis) % rank_of(call.args[0])
    size, where = shape_with(call.args[0])[axis], call.attrs.indices_or_sections
    if hasattr(where, "value"):
        part = math.ceil(size / int(where))
        ends = [min(size, part * count) for count in range(1, int(where) + 1)]
    else:
        ends = [*whole_numbers(where), size]
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    places = tuple(ResultPlace(part) for part in range(len(sizes)))
    return AskedCall("split_with_sizes", (Operand(call.args[0]), sizes), {"dim": axis}, places)


def _permute(call: relax.Call) -> AskedCall:
    rank, axes = rank_of(call.args[0]), call.attrs.axes
    order = list(range(rank))[::-1] if axes is None else list(axes_of(axes, rank))
    return AskedCall("permute", (Operand(call.args[0]), order))


def _broadcast_to(call: relax.Call) -> AskedCall:
    return AskedCall("expand", (Operand(call.args[0]), list(shape_with(call))))


def _tile(call: relax.Call) -> AskedCall:
    return AskedCall("tile", (Operand(call.args[0]), list(whole_numbers(call.attrs.repeats))))


def _repeat(call: relax.Call) -> AskedCall:
    axis = call.attrs.axis
    more = {"dim": None if axis is None else int(axis)}
    return AskedCall("repeat_interleave", (Operand(call.args[0]), int(call.attrs.repeats)), more)


def _flip(call: relax.Call) -> AskedCall:
    return AskedCall("flip", (Operand(call.args[0]), [int(call.attrs.axis)]))


def _triangle(packet: str) -> Handler:
    return lambda call: AskedCall(packet, (Operand(call.args[0]), int(number(call.args[1]))))


def _slice(call: relax.Call) -> AskedCall:
    """A view of the operand, which is dense, by strides and an offset."""
    sizes = shape_with(call.args[0])
    axes, begin, end, *rest = (number(arg) for arg in call.args[1:])
    steps = rest[0] if rest else [1] * len(axes)
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    offset, wanted = 0, list(strides)
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        if step < 0:
            raise NotAten("ATen has no views with negative steps")
        at, _, _ = slice(first, last, step).indices(sizes[axis])
        offset += at * strides[axis]
        wanted[axis] = strides[axis] * step
    return AskedCall("as_strided", (Operand(call.args[0]), list(shape_with(call)), wanted, offset))


def _pad(call: relax.Call) -> AskedCall:
    if str(call.attrs.pad_mode) != "constant":
        raise NotAten(f"it pads by {call.attrs.pad_mode}")
    widths = whole_numbers(call.attrs.pad_width)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    value = float(call.attrs.pad_value)
    if not is_float(call):
        value = int(value)
    return AskedCall(
        "constant_pad_nd", (Operand(call.args[0]), [size for pair in pairs for size in pair], value)
    )


def _index(expr: relax.Expr) -> Operand:
    if not isinstance(expr.ty, relax.TensorType) or dtype_of(expr) not in _INDEXES:
        raise NotAten(f"its indexes are not tensors of {' or '.join(_INDEXES)}")
    return Operand(expr)


def _picked(x: relax.Expr, indexes: Sequence[Operand | None]) -> AskedCall:
    """``x[indexes]``. ATen's other operators refuse indexes that count from the end."""
    return AskedCall("index", (Operand(x), list(indexes)))


def _take(call: relax.Call) -> AskedCall:
    if str(call.attrs.mode) != "fast":
        raise NotAten(f"it takes with the mode {call.attrs.mode}")
    rank, axis = rank_of(call.args[0]), call.attrs.axis
    if axis is None and rank != 1:
        raise NotAten("it has no axis")
    at = 0 if axis is None else int(axis) % rank
    return _picked(call.args[0], [*[None] * at, _index(call.args[1])])


def _columns(indexes: relax.Expr) -> list[Operand]:
    """The indexes of each axis in the last axis of ``indexes``."""
    return [_index(indexes).seen("select", -1, column) for column in range(shape_with(indexes)[-1])]


def _gather_nd(call: relax.Call) -> AskedCall:
    if int(call.attrs.batch_dims):
        raise NotAten("it has batches of indexes")
    return _picked(call.args[0], _columns(call.args[1]))


def _sorted(call: relax.Call, descending: bool, *places: ResultPlace) -> AskedCall:
    """ATen's ``topk`` puts equal elements in any order."""
    more = {"stable": True, "dim": int(call.attrs.axis), "descending": descending}
    return AskedCall("sort", operands_of(call.args), more, places, casts=True)


def _sort(call: relax.Call) -> AskedCall:
    return _sorted(call, bool(call.attrs.descending), ResultPlace(0))


def _argsort(call: relax.Call) -> AskedCall:
    return _sorted(call, bool(call.attrs.descending), ResultPlace(1))


def _topk(call: relax.Call) -> AskedCall:
    axis, size = int(call.attrs.axis), shape_with(call.args[0])[int(call.attrs.axis)]
    count = min(int(call.attrs.k), size) if int(call.attrs.k) > 0 else size
    first = ("narrow", axis, 0, count)
    wanted = {"both": (0, 1), "values": (0,), "indices": (1,)}[str(call.attrs.ret_type)]
    return _sorted(call, bool(call.attrs.largest), *(ResultPlace(result, (first,)) for result in wanted))


def _extremum(packet: str) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        axis = call.attrs.axis
        more = {"dim": None if axis is None else int(axis), "keepdim": bool(call.attrs.keepdims)}
        return AskedCall(packet, operands_of(call.args), more, casts=True)

    return handler


HANDLERS: dict[str, Handler] = {
    "argmax": _extremum("argmax"),
    "argmin": _extremum("argmin"),
    "argsort": _argsort,
    "broadcast_to": _broadcast_to,
    "concat": _joined("cat"),
    "cumprod": _scan("cumprod"),
    "cumsum": _scan("cumsum"),
    "einsum": _einsum,
    "flip": _flip,
    "gather_nd": _gather_nd,
    "matmul": named("matmul"),
    "max": _reduction("amax"),
    "mean": _reduction("mean", only_floats=True),
    "min": _reduction("amin"),
    "nn.pad": _pad,
    "outer": named("outer"),
    "permute_dims": _permute,
    "prod": _product,
    "repeat": _repeat,
    "sort": _sort,
    "split": _split,
    "stack": _joined("stack"),
    "std": _reduction("std", only_floats=True, correction=0),
    "strided_slice": _slice,
    "sum": _sum,
    "take": _take,
    "tile": _tile,
    "topk": _topk,
    "tril": _triangle("tril"),
    "triu": _triangle("triu"),
    "variance": _reduction("var", only_floats=True, correction=0),
}
"""How each operator is asked for."""
