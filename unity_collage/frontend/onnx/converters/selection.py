"""Compress and NonZero: how many elements they select is known only when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from ..node import Converted, OnnxNode
from ..values import Dim
from .kernels import increment, kernel, loop, store, when
from .runtime_shapes import as_int64, empty, is_empty, place_of, product, results, sizes_of


def _selected(node: OnnxNode, flags: relax.Expr) -> tuple[relax.Expr, Dim]:
    """The indexes at which a vector of bool is true, followed by others, and how many they are."""
    places, total = results(node, _places, 2, node.cast(flags, "int8"))
    (number,) = sizes_of(node, total)
    return places, number


def _places(flags: te.Tensor) -> list[te.Tensor]:
    def steps(given: Any, places: Any, total: Any) -> None:
        store(total, 0, 0)
        with loop(flags.shape[0]) as n:
            store(places, n, 0)
            with when(given[n] != tirx.const(0, "int8")):
                store(places, total[0], n)
                increment(total, 0)

    return kernel("places", [flags], [(flags.shape, "int64"), ((1,), "int64")], steps)


def _compress(node: OnnxNode) -> Converted:
    shape, axis = node.shape(), node.attribute("axis")
    data = node[0] if axis is not None else node.reshaped(node[0], [product(shape)])
    shape = shape if axis is not None else [product(shape)]
    at = 0 if axis is None else node.axis(axis)
    if is_empty(node.shape(1)):
        return empty(node, [*shape[:at], 0, *shape[at + 1 :]], node.dtype())
    places, number = _selected(node, node[1])
    sizes = [*shape[:at], number, *shape[at + 1 :]]

    def taken(data: te.Tensor, places: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*place: Any) -> Any:
            # A condition that is longer than the axis selects nothing beyond it.
            index = tirx.min(places(place[at]), as_int64(data.shape[at]) - 1)
            return data(*place[:at], index, *place[at + 1 :])

        return te.compute(sizes, element, name="compress")

    return node.builder.call_te(taken, data, places, sizes)


def _non_zero(node: OnnxNode) -> Converted:
    shape, rank = node.shape(), node.rank()
    if is_empty(shape):
        return empty(node, [rank, 0], "int64")
    flags = node.cast(node[0], "bool")
    flags = node.reshaped(flags, [product(shape)])
    places, number = _selected(node, flags)
    if rank == 0:
        return relax.op.zeros(relax.ShapeExpr([0, number]), "int64")

    def coordinates(places: te.Tensor, shape: list[Any], number: Any) -> te.Tensor:
        def element(axis: Any, n: Any) -> Any:
            place = place_of(places(n), shape)
            found = place[0]
            for k in range(1, rank):
                found = tirx.Select(axis == k, place[k], found)
            return found

        return te.compute((rank, number), element, name="non_zero")

    return node.builder.call_te(coordinates, places, shape, number)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Compress": _compress, "NonZero": _non_zero}
