"""Pools that Relax does not have: with indexes, of symbolic sizes with padding, along more than three axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm import ir, relax, te, tirx

from ..node import OnnxNode
from ..values import Dim
from .windows import SlidingWindow, is_inside

_Place = tuple[list[ir.Expr], ir.Expr]
"""An element that a window covers, and whether the image has it."""


def maximum(node: OnnxNode, image: relax.Expr, outside: SlidingWindow, sizes: Sequence[Dim]) -> relax.Expr:
    """The maximum of each window, NaN if it has one; the lowest value where a window covers padding only."""

    def max_pool(x: te.Tensor, *parts: Sequence[Dim]) -> te.Tensor:
        window, sizes = _here(outside, *parts)
        axes = _axes(window)

        def element(*place: ir.Expr) -> ir.Expr:
            source, inside = _covered(place, window, axes, x)
            return _MAXIMUM(tirx.if_then_else(inside, x(*source), _lowest(x.dtype)), axis=axes)

        return te.compute([*x.shape[:2], *sizes], element, name="max_pool")

    return _call(node, max_pool, image, outside, sizes)


def _call(
    node: OnnxNode, pool: Callable[..., Any], image: relax.Expr, window: SlidingWindow, sizes: Sequence[Dim]
) -> relax.Expr:
    """A kernel of ``pool(image, *parts)``; the parts are for :func:`_here`."""
    return node.builder.call_te(pool, image, list(window.before), list(window.after), list(sizes))


def _here(
    window: SlidingWindow, before: Sequence[Dim], after: Sequence[Dim], sizes: Sequence[Dim]
) -> tuple[SlidingWindow, list[Dim]]:
    """A window and the sizes of the result in the variables of a kernel, which differ from those of the function."""
    return replace(window, before=tuple(before), after=tuple(after)), list(sizes)


def max_with_indices(
    node: OnnxNode, image: relax.Expr, outside: SlidingWindow, sizes: Sequence[Dim], column_major: bool
) -> list[relax.Expr]:
    """The maximum of each window and its place in the flattened image, the first of equal ones.

    With ``column_major`` the first spatial axis is the innermost of each channel.
    """

    def max_pool(x: te.Tensor, *parts: Sequence[Dim]) -> list[te.Tensor]:
        window, sizes = _here(outside, *parts)
        axes, spatial = _axes(window), list(x.shape[2:])

        def element(*place: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
            source, inside = _covered(place, window, axes, x)
            index = tirx.if_then_else(inside, _flat(source[2:], spatial), tirx.const(-1, "int64"))
            return index, tirx.if_then_else(inside, x(*source), _lowest(x.dtype))

        shape = [*x.shape[:2], *sizes]
        both: Any = te.compute(shape, lambda *place: _ARGMAX(element(*place), axis=axes), name="arg_max")
        index, value = both

        def flat(*place: ir.Expr) -> ir.Expr:
            channel = place[0] * x.shape[1] + place[1]
            count = _product(spatial)
            at = index(*place)
            return channel * count + (_transposed(at, spatial) if column_major else at)

        return [value, te.compute(shape, flat, name="indices")]

    made = node.emit(_call(node, max_pool, image, outside, sizes))
    return [relax.TupleGetItem(made, 0), relax.TupleGetItem(made, 1)]


def total(node: OnnxNode, image: relax.Expr, window: SlidingWindow, sizes: Sequence[Dim]) -> relax.Expr:
    """The sum of the elements of the image in each window."""

    def sum_pool(x: te.Tensor, *parts: Sequence[Dim]) -> te.Tensor:
        return _sums(x, *_here(window, *parts))

    return _call(node, sum_pool, image, window, sizes)


def average(
    node: OnnxNode, image: relax.Expr, window: SlidingWindow, sizes: Sequence[Dim], counts_padding: bool
) -> relax.Expr:
    """The mean of each window, over the elements of the image or over those of the padding too."""

    def avg_pool(x: te.Tensor, *parts: Sequence[Dim]) -> te.Tensor:
        inside = _here(window, *parts)
        sums, count = _sums(x, *inside), _counts(x, *inside, counts_padding)
        one = tirx.const(1, x.dtype)
        return te.compute(sums.shape, lambda *p: sums(*p) / tirx.max(count(*p[2:]), one), name="avg_pool")

    return _call(node, avg_pool, image, window, sizes)


def _sums(x: te.Tensor, window: SlidingWindow, sizes: Sequence[Dim]) -> te.Tensor:
    axes = _axes(window)

    def element(*place: ir.Expr) -> ir.Expr:
        source, inside = _covered(place, window, axes, x)
        return te.sum(tirx.if_then_else(inside, x(*source), tirx.const(0, x.dtype)), axis=axes)

    return te.compute([*x.shape[:2], *sizes], element, name="sum_pool")


def _counts(x: te.Tensor, window: SlidingWindow, sizes: Sequence[Dim], counts_padding: bool) -> te.Tensor:
    """How many elements of the image, or also of its padding, each window has."""
    axes = _axes(window)

    def element(*place: ir.Expr) -> ir.Expr:
        first = tirx.const(0, "int64")
        source, inside = _covered((first, first, *place), window, axes, x)
        if counts_padding:
            within = [at + width for at, width in zip(source[2:], window.before, strict=True)]
            ends = zip(x.shape[2:], window.before, window.after, strict=True)
            inside = is_inside(within, [size + b + a for size, b, a in ends])
        return te.sum(tirx.Cast(x.dtype, inside), axis=axes)

    return te.compute(list(sizes), element, name="counts")


def _axes(window: SlidingWindow) -> list[Any]:
    return [te.reduce_axis((0, size), name=f"k{n}") for n, size in enumerate(window.sizes)]


def _covered(place: Sequence[ir.Expr], window: SlidingWindow, axes: Sequence[Any], x: te.Tensor) -> _Place:
    """The element of ``x`` that the window of a result covers at an element of it."""
    fields = zip(place[2:], axes, window.strides, window.dilations, window.before, strict=True)
    spatial = [at * step + k * gap - before for at, k, step, gap, before in fields]
    return [*place[:2], *spatial], is_inside(spatial, x.shape[2:])


def _flat(place: Sequence[ir.Expr], shape: Sequence[ir.Expr]) -> ir.Expr:
    flat: ir.Expr = tirx.const(0, "int64")
    for at, size in zip(place, shape, strict=True):
        flat = flat * size + tirx.Cast("int64", at)
    return flat


def _transposed(flat: ir.Expr, shape: Sequence[ir.Expr]) -> ir.Expr:
    """The number of an element when axes are counted the other way round."""
    places = []
    for size in reversed(shape):
        places.append(tirx.floormod(flat, size))
        flat = tirx.floordiv(flat, size)
    return _flat(places, list(reversed(shape)))


def _product(sizes: Sequence[ir.Expr]) -> ir.Expr:
    total: ir.Expr = tirx.const(1, "int64")
    for size in sizes:
        total = total * size
    return total


def _lowest(dtype: str) -> ir.Expr:
    if str(dtype).startswith(("float", "bfloat")):
        return tirx.const(float("-inf"), dtype)
    return tirx.min_value(dtype)


def _is_nan(x: ir.Expr) -> ir.Expr:
    dtype = str(x.expr_ty().dtype)
    if dtype == "bfloat16":
        x = tirx.Cast("float32", x)
    return tirx.isnan(x) if dtype.startswith(("float", "bfloat")) else tirx.const(False, "bool")


def _wins(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return tirx.any(a > b, _is_nan(a))


_MAXIMUM = te.comm_reducer(lambda a, b: tirx.Select(_wins(a, b), a, b), _lowest, name="maximum")


def _first_larger(a: tuple[ir.Expr, ir.Expr], b: tuple[ir.Expr, ir.Expr]) -> tuple[ir.Expr, ir.Expr]:
    """The larger of two (place, value); of equal ones the first. A place of -1 means none."""
    (i, x), (j, y) = a, b
    earlier = tirx.any(j < 0, tirx.all(i >= 0, i < j))
    wins = tirx.any(
        tirx.all(_is_nan(x), tirx.any(tirx.Not(_is_nan(y)), earlier)),
        tirx.all(tirx.Not(_is_nan(y)), tirx.any(x > y, tirx.all(x == y, earlier))),
    )
    return tirx.Select(wins, i, j), tirx.Select(wins, x, y)


_ARGMAX = te.comm_reducer(
    _first_larger, lambda i, x: (tirx.const(-1, str(i)), _lowest(str(x))), name="first_larger"
)
