"""Sums, products and extrema along axes that are known now, or that are inputs of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..arrays import numpy_dtype
from ..node import OnnxNode
from ..values import Dim
from .pointwise import larger, smaller
from .precise import dtype_of
from .runtime_shapes import computed, run_time_sizes


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of a reduction: numbers, or vectors that the program computes."""

    known: Sequence[int] | None
    mask: relax.Var | None = None
    """A vector with 1 for each axis that is reduced and 0 for the others."""
    kept: Sequence[Dim] = ()
    """The sizes of a result that keeps the reduced axes with size 1."""
    steps: Sequence[Dim] = ()
    """How many elements are reduced along each axis."""
    removed: Sequence[Dim] = ()
    """The sizes of a result without the reduced axes, if the node asks for it."""


def axes_of(node: OnnxNode) -> Axes:
    """All axes if none are given, unless the node says that then none are reduced."""
    keeps_all = bool(node.attribute("noop_with_empty_axes", 0))
    given = "axes" in node.attributes or (node.has(1) and node.shape(1) != [0])
    if given and "axes" not in node.attributes and node.numbers(1) is None:
        return _run_time_axes(node, keeps_all)
    axes = node.integers("axes", 1) if given else None
    if not axes:
        return Axes(() if keeps_all else range(node.rank()))
    return Axes(sorted({node.axis(axis) for axis in axes}))


def _run_time_axes(node: OnnxNode, keeps_all: bool) -> Axes:
    rank, length, keepdims = node.rank(), node.shape(1)[0], node.attribute("keepdims", 1)
    if not keepdims and not isinstance(length, int):
        node.refuse("the number of axes to reduce is not known, and so the rank of the result; set keepdims")
    mask = _mask(node, rank, keeps_all)
    shape = relax.ShapeExpr(node.dims(node[0]))
    sizes = run_time_sizes(node, _kept_and_steps, mask, shape)
    removed: Sequence[Dim] = ()
    if isinstance(length, int) and not keepdims and length < rank:
        count = rank - length
        removed = run_time_sizes(node, lambda given, sizes: _removed(given, sizes, count), mask, shape)
    return Axes(None, mask, sizes[:rank], sizes[rank:], removed)


def _mask(node: OnnxNode, rank: int, keeps_all: bool) -> relax.Var:
    """1 for each axis among the operand's elements; where it has none, the same for all axes."""
    default = _int(0 if keeps_all else 1)

    def mask(given: te.Tensor) -> te.Tensor:
        among = te.reduce_axis((0, tirx.max(_int(1), given.shape[0])), name="among")

        def is_given(axis: ir.Expr) -> ir.Expr:
            found = tirx.if_then_else(among < given.shape[0], given(among).astype("int64"), _int(rank))
            found = tirx.Select(found < 0, found + rank, found)
            return te.max(tirx.Select(found.equal(axis.astype("int64")), _int(1), _int(0)), axis=among)

        found = te.compute((rank,), is_given, name="is_given")
        return te.compute(
            (rank,), lambda axis: tirx.Select(given.shape[0] == 0, default, found(axis)), name="mask"
        )

    return computed(node, mask, node[1])


def _kept_and_steps(mask: te.Tensor, shape: Sequence[Any]) -> list[Any]:
    is_reduced = [mask(axis).equal(_int(1)) for axis in range(len(shape))]
    kept = [tirx.Select(yes, _int(1), size) for yes, size in zip(is_reduced, shape, strict=True)]
    return kept + [tirx.Select(yes, size, _int(1)) for yes, size in zip(is_reduced, shape, strict=True)]


def _removed(mask: te.Tensor, shape: Sequence[Any], count: int) -> list[Any]:
    """The sizes of the axes that are not reduced, in order; there are ``count``."""
    found: list[Any] = [_int(0)] * count
    position: Any = _int(0)
    for axis, size in enumerate(shape):
        is_kept = mask(axis).equal(_int(0))
        found = [
            tirx.Select(tirx.all(is_kept, position.equal(_int(n))), size, other)
            for n, other in enumerate(found)
        ]
        position = position + tirx.Select(is_kept, _int(1), _int(0))
    return found


def _int(value: int) -> ir.Expr:
    return tirx.const(value, "int64")


_PLAIN: Mapping[str, Callable[..., relax.Expr]] = {
    "sum": relax.op.sum,
    "prod": relax.op.prod,
    "max": relax.op.max,
    "min": relax.op.min,
}


def reduced(node: OnnxNode, x: relax.Expr, axes: Axes, kind: str) -> relax.Expr:
    """``x``, which has the sizes of the node's operand, reduced by "sum", "prod", "max" or "min".

    The reduced axes are kept with size 1. A reduction of nothing gives 0, 1, the least or the largest number.
    """
    if axes.known is None:
        return _reduced_by_mask(node, x, axes, kind)
    if not axes.known:
        return x
    if is_empty_along(node, x, axes):
        kept = [1 if axis in axes.known else size for axis, size in enumerate(node.dims(x))]
        dtype = dtype_of(x)
        return node.emit(relax.op.full(kept, node.constant(identity(kind, dtype), dtype), dtype))
    return node.emit(_PLAIN[kind](x, list(axes.known), keepdims=True))


def is_empty_along(node: OnnxNode, x: relax.Expr, axes: Axes) -> bool:
    """Whether nothing is reduced, because an axis has no elements."""
    shape = node.dims(x)
    return any(isinstance(shape[axis], int) and shape[axis] == 0 for axis in axes.known or ())


def identity(kind: str, dtype: str) -> Any:
    """The result of an empty reduction."""
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if "float" in dtype:
        return -np.inf if kind == "max" else np.inf
    limits = np.iinfo(numpy_dtype(dtype))
    return int(limits.min if kind == "max" else limits.max)


def _reduced_by_mask(node: OnnxNode, x: relax.Expr, axes: Axes, kind: str) -> relax.Expr:
    """Each element is reduced along all axes, in one step along those that are not reduced.

    A loop without steps would not write the start value either, so it has at least one step, which then reads nothing.
    """

    def kernel(x: te.Tensor, kept: Sequence[Any], steps: Sequence[Any]) -> te.Tensor:
        dtype = str(x.dtype)
        start = tirx.const(identity(kind, dtype), dtype)
        among = [te.reduce_axis((0, tirx.max(_int(1), size)), name=f"k{n}") for n, size in enumerate(steps)]
        combine = te.comm_reducer(_FUNCTIONS[kind], lambda _: start, name=kind)

        def element(*place: ir.Expr) -> ir.Expr:
            inside = tirx.all(*(k < size for k, size in zip(among, steps, strict=True)))
            read = x(*(p + k for p, k in zip(place, among, strict=True)))
            return combine(tirx.if_then_else(inside, read, start), axis=among)

        return te.compute(kept, element, name=f"reduced_{kind}")

    return computed(node, kernel, x, relax.ShapeExpr(axes.kept), relax.ShapeExpr(axes.steps))


_FUNCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": larger,
    "min": smaller,
}


def squeezed(node: OnnxNode, x: relax.Expr, axes: Axes) -> relax.Expr:
    """Without the axes that were reduced."""
    if axes.known is not None:
        return relax.op.squeeze(x, list(axes.known)) if axes.known else x
    return relax.op.reshape(x, list(axes.removed))
