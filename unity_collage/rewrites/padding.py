"""padding: a pad goes into the convolution or pool behind it, else it is ``nn.pad``.

Normal form: ``nn.pad`` with widths that are not negative; what the importer writes as a negative width is
a ``strided_slice``. A pad with an infinite value that no pool takes stays ``call_tir``: an attribute cannot hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from tvm import ir, tirx

from .clip import bounds_of
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, static_shape
from .tir_store import Store, loaded, operands_of, store_of
from .why_not import WhyNot, number_text, shape_text
from .windows import AVG_POOLS, CONVOLUTIONS, MAX_POOLS, data_layout, spatial_axes, window, with_attrs


@dataclass(frozen=True, slots=True)
class Padding:
    """``source`` with ``before`` and ``after`` more elements along each axis, all of them ``value``."""

    source: Expr
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float


def padding_of(expr: Expr, scope: Scope) -> Padding | WhyNot | None:
    """The padding of ``expr`` with one value: from ``nn.pad``, or from the PrimFunc that the importer writes for it."""
    call = scope.call(expr, "relax.nn.pad", "relax.call_tir")
    if call is None:
        return None
    if op_name(call) == "relax.call_tir":
        return _of_call_tir(call, scope)
    widths = [int(width) for width in call.attrs.pad_width]
    if str(call.attrs.pad_mode) != "constant":
        return WhyNot(f"nn.pad has the mode {call.attrs.pad_mode}, not constant", 2)
    if static_shape(call) is None:
        return WhyNot("the shape of nn.pad is not known", 2)
    return Padding(call.args[0], tuple(widths[::2]), tuple(widths[1::2]), float(call.attrs.pad_value))


def _of_call_tir(call: Call, scope: Scope) -> Padding | WhyNot | None:
    store = store_of(call, scope)
    parts = None if store is None else _guarded_load(store)
    if store is None or parts is None:
        return None
    condition, load, value = parts
    source = dict(zip(store.inputs, operands_of(call), strict=True)).get(load.source)
    before = [_offset(index, var) for index, var in zip(load.indices, store.index, strict=False)]
    shape, out = (None if source is None else static_shape(source)), static_shape(call)
    if source is None or shape is None or out is None or None in before or len(shape) != len(out):
        return WhyNot("the PrimFunc does not read an input of static shape at its own index less a number")
    offsets = [int(number) for number in before if number is not None]
    inside = [(max(0, b), min(n, b + size)) for b, size, n in zip(offsets, shape, out, strict=True)]
    if inside != _region(condition, store.index, out):
        return WhyNot("the condition of the PrimFunc is not that its index lies in the input")
    after = [n - b - size for b, size, n in zip(offsets, shape, out, strict=True)]
    return Padding(source, tuple(offsets), tuple(after), float(value.value))


def _guarded_load(store: Store) -> tuple[Any, Any, Any] | None:
    """Condition, load and number of ``if_then_else(condition, x[...], number)``."""
    value = store.value
    if not isinstance(value, ir.Call) or getattr(value.op, "name", "") != "prim.if_then_else":
        return None
    condition, load, number = value.args
    plain = loaded(load) is not None and isinstance(number, (tirx.FloatImm, tirx.IntImm))
    return (condition, load, number) if plain else None


def _offset(index: Any, var: Any) -> int | None:
    """``b`` where ``index`` is ``var - b``."""
    if index.same_as(var):
        return 0
    sign = {tirx.Sub: 1, tirx.Add: -1}.get(type(index), 0)
    moved = sign != 0 and index.a.same_as(var) and isinstance(index.b, tirx.IntImm)
    return sign * int(index.b) if moved else None


def _region(condition: Any, variables: tuple[Any, ...], out: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """First and past-the-last index along each axis where a conjunction of bounds holds."""
    region = [(0, size) for size in out]
    for bound in _conjuncts(condition):
        parts = [getattr(bound, "a", None), getattr(bound, "b", None)]
        axes = [axis for axis, var in enumerate(variables) if any(var.same_as(part) for part in parts)]
        if len(axes) != 1:
            return None
        low, high = region[axes[0]]
        if isinstance(bound, tirx.LE) and isinstance(parts[0], tirx.IntImm):
            region[axes[0]] = (max(low, int(parts[0])), high)
        elif isinstance(bound, tirx.LT) and isinstance(parts[1], tirx.IntImm):
            region[axes[0]] = (low, min(high, int(parts[1])))
        else:
            return None
    return region


def _conjuncts(condition: Any) -> list[Any]:
    sides = [getattr(condition, side) for side in "ab"] if isinstance(condition, tirx.And) else []
    return [part for side in sides for part in _conjuncts(side)] or [condition]


def _pad_form(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """call_tir(pad) -> nn.pad, of a strided_slice where a width is negative."""
    padding = _of_call_tir(call, scope)
    if not isinstance(padding, Padding):
        return padding
    if not isfinite(padding.value):
        return WhyNot(f"the value of the padding is {number_text(padding.value)}, which nn.pad cannot hold")
    source, shape = padding.source, static_shape(padding.source)
    sides = list(zip(padding.before, padding.after, shape or (), strict=True))
    cut = [axis for axis, (before, after, _) in enumerate(sides) if before < 0 or after < 0]
    if cut:
        begin = [max(0, -sides[axis][0]) for axis in cut]
        end = [sides[axis][2] + min(0, sides[axis][1]) for axis in cut]
        source = op.strided_slice(source, cut, begin, end, [1] * len(cut))
    widths = [max(0, width) for before, after, _ in sides for width in (before, after)]
    return op.nn.pad(source, widths, "constant", padding.value)


def _merge(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """conv(pad(x, 0)), avg_pool(pad(x, 0)), max_pool(pad(x, lowest)) -> the same with padding of its own."""
    padding = padding_of(call.args[0], scope)
    if not isinstance(padding, Padding):
        return padding
    axes = spatial_axes(data_layout(call))
    why = _why_not_spatial(call, padding, axes)
    changes = why or _changes(call, padding, scope)
    if axes is None or isinstance(changes, str):
        return WhyNot(str(changes), 2)
    own = window(call, "padding")
    before = [width + padding.before[axis] for axis, width in zip(axes, own, strict=False)]
    after = [width + padding.after[axis] for axis, width in zip(axes, own[len(axes) :], strict=True)]
    return with_attrs(call, padding.source, padding=before + after, **changes)


def _why_not_spatial(call: Call, padding: Padding, axes: list[int] | None) -> str | None:
    """Why the padding does not only add elements along the axes along which the windows of ``call`` slide, or None."""
    if axes is None:
        return f"{op_name(call).removeprefix('relax.')} has the layout {data_layout(call)}, which is blocked"
    if min(*padding.before, *padding.after) < 0:
        return f"the padding {shape_text(padding.before)}, {shape_text(padding.after)} cuts elements off"
    others = [axis for axis in range(len(padding.before)) if axis not in axes]
    padded = [axis for axis in others if padding.before[axis] or padding.after[axis]]
    return f"the axes {padded} are padded, along which no window slides" if padded else None


def _changes(call: Call, padding: Padding, scope: Scope) -> dict[str, object] | str:
    """The other attributes that must change so that the padding means the same, or why this is not possible."""
    value = number_text(padding.value)
    if op_name(call) in CONVOLUTIONS:
        return (
            {}
            if padding.value == 0.0
            else f"the value of the padding is {value}, and convolutions pad with 0"
        )
    if op_name(call) in MAX_POOLS:
        if not _no_maximum(padding, scope):
            return f"the value of the padding is {value}, which may be the maximum of a window"
        return "a window of the pool may lie in the padding alone" if _misses(call, padding) else {}
    if padding.value != 0.0:
        return f"the value of the padding is {value}, and avg_pool pads with 0"
    if not call.attrs.count_include_pad and any(window(call, "padding")):
        return "the pool has padding of its own, which it does not count"
    return "the pool rounds its size up (ceil_mode)" if call.attrs.ceil_mode else {"count_include_pad": True}


def _no_maximum(padding: Padding, scope: Scope) -> bool:
    """Whether the value of the padding never wins against a value of the tensor."""
    if padding.value == -inf:
        return True
    dtype = dtype_of(padding.source)
    if dtype in ("float32", "float64") and padding.value == float(np.finfo(dtype).min):
        return True
    bounds = bounds_of(scope.call(padding.source, "relax.nn.relu", "relax.clip"))
    return bounds is not None and padding.value <= bounds[0]


def _misses(call: Call, padding: Padding) -> bool:
    """Whether a whole window may lie in the padding, so that its value would reach the result.

    The elements of a dilated window may be on both sides of the image.
    """
    if any(step != 1 for step in window(call, "dilation")):
        return True
    sizes = window(call, "pool_size")
    axes = spatial_axes(data_layout(call)) or []
    widest = [max(padding.before[axis], padding.after[axis]) for axis in axes]
    own = window(call, "padding")
    reach = [width + max(own[i], own[i + len(axes)]) for i, width in enumerate(widest)]
    return any(width >= size for width, size in zip(reach, sizes, strict=True)) or bool(call.attrs.ceil_mode)


PAD_FORM = Rewrite("pad_form", ("relax.call_tir",), _pad_form)
PAD_INTO_WINDOW = Rewrite("pad_into_window", (*CONVOLUTIONS, *AVG_POOLS, *MAX_POOLS), _merge)
