"""Pad: by a constant, by reflection, by the edge, or around; negative pads remove elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..node import Converted, OnnxNode
from ..values import Dim
from .runtime_shapes import as_int64, computed, empty, is_empty, run_time_sizes, scalar, simple

_MODES = ("constant", "reflect", "edge", "wrap")


def _pad(node: OnnxNode) -> Converted:
    mode = node.attribute("mode", "constant")
    if mode not in _MODES:
        node.refuse(f"its mode {mode!r} is not one of {', '.join(_MODES)}")
    if node.has(3) and node.value(3).known is None:
        return _at_run_time(node, mode)
    if "pads" not in node.attributes and "paddings" not in node.attributes and node.value(1).known is None:
        return _at_run_time(node, mode)
    shape = node.shape()
    lows, highs = _known_pads(node)
    sizes = [simple(d + (a + b)) for d, a, b in zip(shape, lows, highs, strict=True)]
    if any(isinstance(size, int) and size < 0 for size in sizes):
        node.refuse("it removes more elements than there are")
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    plain = _plain(node, mode, [*lows, *highs])
    if plain is not None:
        widths = [int(pad) for pair in zip(lows, highs, strict=True) for pad in pair if isinstance(pad, int)]
        return relax.op.nn.pad(node[0], widths, "constant", plain)
    return node.builder.call_te(_padded, node[0], _value(node), lows, highs, sizes, mode)


def _known_pads(node: OnnxNode) -> tuple[list[Dim], list[Dim]]:
    """The number of elements that are added before and after, for each axis."""
    rank = node.rank()
    given = node.attributes.keys() & {"pads", "paddings"}
    pads = list(node.attribute(next(iter(given)))) if given else node.sizes(1)
    axes = (
        [node.axis(int(a)) for a in node.needed(3, "axes").reshape(-1)] if node.has(3) else list(range(rank))
    )
    if len(pads) != 2 * len(axes):
        node.refuse(f"it has {len(pads)} pads for {len(axes)} axes")
    lows: list[Dim] = [0] * rank
    highs: list[Dim] = [0] * rank
    for n, axis in enumerate(axes):
        lows[axis], highs[axis] = pads[n], pads[n + len(axes)]
    return lows, highs


def _plain(node: OnnxNode, mode: str, pads: Sequence[Dim]) -> float | None:
    """The value for Relax's own padding, which takes known, finite values and known pads from 0 on."""
    if mode != "constant" or not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        return None
    value = _known_value(node)
    if value is None or not math.isfinite(value) or abs(value) > 1 << 24:
        return None
    return None if node.dtype() == "bool" else value


def _known_value(node: OnnxNode) -> float | None:
    if not node.has(2):
        return float(node.attribute("value", 0.0))
    known = node.numbers(2)
    return None if known is None else float(known.reshape(-1)[0])


def _value(node: OnnxNode) -> relax.Expr:
    if node.has(2):
        return node.cast(node[2], node.dtype())
    return node.constant(node.attribute("value", 0.0), node.dtype())


def _padded(
    data: te.Tensor, value: te.Tensor, lows: Any, highs: Any, sizes: list[Any], mode: str
) -> te.Tensor:
    """``lows`` and ``highs`` are lists of sizes or vectors; an axis with the number 0 for both pads does not change."""

    def element(*place: Any) -> Any:
        where, inside = list(place), []
        for axis, size in enumerate(data.shape):
            low, high = _at(lows, axis), _at(highs, axis)
            if (
                isinstance(low, tirx.IntImm)
                and isinstance(high, tirx.IntImm)
                and not int(low)
                and not int(high)
            ):
                continue
            at = place[axis] - low
            if mode == "constant":
                inside += [at >= 0, at < size]
                where[axis] = at
            else:
                begin, end = tirx.max(-low, as_int64(0)), as_int64(size) - tirx.max(-high, as_int64(0))
                where[axis] = begin + _FOLDED[mode](at - begin, tirx.max(end - begin, as_int64(1)))
        return tirx.if_then_else(tirx.all(*inside), data(*where), scalar(value)) if inside else data(*where)

    return te.compute(sizes, element, name=f"{mode}_pad")


def _at(pads: Any, axis: int) -> ir.Expr:
    return pads(axis) if isinstance(pads, te.Tensor) else as_int64(pads[axis])


def _reflected(at: Any, size: Any) -> Any:
    """numpy's reflection: the edge is not repeated, and pads beyond the tensor are reflected again."""
    period = tirx.max(2 * (size - 1), as_int64(1))
    place = tirx.floormod(at, period)
    return tirx.Select(place < size, place, period - place)


_FOLDED: Mapping[str, Callable[[Any, Any], Any]] = {
    "reflect": _reflected,
    "edge": lambda at, size: tirx.min(tirx.max(at, as_int64(0)), size - 1),
    "wrap": tirx.floormod,
}
"""Mode -> the place from 0 to size - 1 for a place outside."""


def _at_run_time(node: OnnxNode, mode: str) -> Converted:
    rank, shape = node.rank(), node.shape()
    pads = node.cast(node[1], "int64")
    count = node.dims(pads)[-1]
    if not isinstance(count, int):
        node.refuse("how many pads it has is not known before the program runs")
    axes = node.cast(node[3], "int64") if node.has(3) else node.constant(np.arange(count // 2), "int64")
    flat = node.reshaped(pads, [count])  # the oldest com.microsoft.Pad has one row
    low, high = (computed(node, _of_axis, flat, axes, rank, count // 2, side) for side in (0, 1))
    sizes = run_time_sizes(node, _grown, low, high, shape)
    return node.builder.call_te(_padded, node[0], _value(node), low, high, sizes, mode)


def _of_axis(pads: te.Tensor, axes: te.Tensor, rank: int, count: int, side: int) -> te.Tensor:
    """The pads before (0) or after (1) each axis of the tensor, in their order."""

    def element(axis: Any) -> Any:
        found: Any = as_int64(0)
        for n in range(count):
            hit = tirx.any(axes(n) == axis, axes(n) == axis - rank)
            found = tirx.Select(hit, pads(n + side * count), found)
        return found

    return te.compute((rank,), element, name="pads")


def _grown(low: te.Tensor, high: te.Tensor, shape: list[Any]) -> list[Any]:
    return [as_int64(dim) + low(axis) + high(axis) for axis, dim in enumerate(shape)]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Pad": _pad}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"Pad": _pad}
