"""Operators that read shapes, and those that give the same elements another shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..broadcasting import common_sizes, distinct
from ..equal_sizes import require_equal
from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim, Value
from .runtime_shapes import as_int64 as _int64
from .runtime_shapes import dtype_of_expr, empty, is_empty, product, run_time_sizes


def reshaped(node: OnnxNode, expr: relax.Expr, sizes: Sequence[Dim]) -> relax.Expr:
    """``expr`` with another shape. Relax reads a size of 0 as "as before", which is not meant here."""
    if is_empty(sizes):
        return empty(node, sizes, dtype_of_expr(expr))
    return relax.op.reshape(expr, relax.ShapeExpr(list(sizes)))


def _shape(node: OnnxNode) -> Value:
    rank = node.rank()
    begin, end = (
        _bound(node.attribute(name, default), rank) for name, default in (("start", 0), ("end", rank))
    )
    return _sizes(node.shape()[begin:end])


def _bound(value: int, rank: int) -> int:
    return min(max(value + rank if value < 0 else value, 0), rank)


def _sizes(sizes: Sequence[Dim]) -> Value:
    known = np.empty(len(sizes), object)
    known[:] = list(sizes)
    return Value.of(known)


def _size(node: OnnxNode) -> Value:
    known = np.empty((), object)
    known[()] = product(node.shape())
    return Value.of(known)


def _constant(node: OnnxNode) -> Value:
    for name, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in node.attributes:
            return Value.of(np.array(node.attribute(name), dtype))
    if "value" not in node.attributes:
        node.refuse("constants of strings and sparse constants are not supported")
    return Value.of(node.attribute("value"))


def _identity(node: OnnxNode) -> Value:
    return node.value(0)


def _reshape(node: OnnxNode) -> Converted:
    keeps_zero = bool(node.attribute("allowzero", 0))
    if node.value(1).known is None:
        return reshaped(node, node[0], _run_time_shape(node, keeps_zero))
    shape, sizes = node.shape(), node.sizes(1)
    if not keeps_zero:
        if any(_is(size, 0) and n >= len(shape) for n, size in enumerate(sizes)):
            node.refuse(
                f"it keeps a size of an operand of rank {len(shape)}, whose result has rank {len(sizes)}"
            )
        sizes = [shape[n] if _is(size, 0) else size for n, size in enumerate(sizes)]
    return reshaped(node, node[0], _with_inferred(node, shape, sizes))


def _is(size: Dim, number: int) -> bool:
    return isinstance(size, int) and size == number


def _with_inferred(node: OnnxNode, shape: Sequence[Dim], sizes: Sequence[Dim]) -> list[Dim]:
    """``sizes`` with the size that the number of elements decides in place of -1."""
    open_axes = [n for n, size in enumerate(sizes) if _is(size, -1)]
    given, total = product([size for size in sizes if not _is(size, -1)]), product(shape)
    if len(open_axes) > 1:
        node.refuse("more than one size of its result is -1")
    if not open_axes:
        if are_equal(given, total) is False:
            node.refuse(f"it makes {given} elements out of {total}")
        require_equal(node, [(given, total)])
        return list(sizes)
    if isinstance(given, int) and isinstance(total, int) and (given == 0 or total % given):
        node.refuse(f"no size in place of -1 makes {total} elements out of multiples of {given}")
    inferred = list(sizes)
    inferred[open_axes[0]] = _quotient(shape, sizes, total, given)
    require_equal(node, [(product(inferred), total)])
    return inferred


def _quotient(shape: Sequence[Dim], sizes: Sequence[Dim], total: Dim, given: Dim) -> Dim:
    """``total // given``; equal factors are cancelled, because TVM does not simplify a * b // a."""
    left, right = list(shape), [size for size in sizes if not _is(size, -1)]
    for size in list(right):
        same = next((dim for dim in left if isinstance(dim, ir.Expr) and are_equal(dim, size)), None)
        if same is not None:
            left = _without(left, same)
            right = _without(right, size)
    divisor = product(right)
    return product([product(left)]) if _is(divisor, 1) else product([product(left) // divisor])


def _without(sizes: Sequence[Dim], removed: Dim) -> list[Dim]:
    at = next(n for n, size in enumerate(sizes) if size is removed)
    return [size for n, size in enumerate(sizes) if n != at]


def _run_time_shape(node: OnnxNode, keeps_zero: bool) -> list[Dim]:
    """The sizes by an operand that the program computes; -1 and 0 are resolved by a kernel."""
    rank = _length(node, 1)
    if rank == 0:
        require_equal(node, [(product(node.shape()), 1)])
        return []

    def elements(wanted: te.Tensor, shape: list[Any]) -> list[Any]:
        sizes = [wanted(n) for n in range(rank)]
        if not keeps_zero:
            kept = [*shape, *[0] * rank]
            sizes = [tirx.Select(size == 0, _int64(kept[n]), size) for n, size in enumerate(sizes)]
        total, given = _int64(1), _int64(1)
        for size in shape:
            total = total * size
        for size in sizes:
            given = given * tirx.Select(size == -1, _int64(1), size)
        inferred = tirx.floordiv(total, tirx.max(given, _int64(1)))
        found = [tirx.Select(size == -1, inferred, size) for size in sizes]
        made = _int64(1)
        for size in found:
            made = made * size
        return [*found, total - made]

    return run_time_sizes(node, elements, _int64_operand(node, 1), node.shape(), zeros=1)


def _length(node: OnnxNode, position: int) -> int:
    """The number of elements of a vector operand."""
    length = node.shape(position)[0] if node.rank(position) else 1
    if not isinstance(length, int):
        node.refuse(f"the length of its operand {position} is not known")
    return length


def _int64_operand(node: OnnxNode, position: int) -> relax.Expr:
    return node.cast(node[position], "int64")


def _flatten(node: OnnxNode) -> Converted:
    axis, shape = node.attribute("axis", 1), node.shape()
    if not -len(shape) <= axis <= len(shape):
        node.refuse(f"the axis {axis} is outside of a tensor of rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return reshaped(node, node[0], [product(shape[:axis]), product(shape[axis:])])


def _squeeze(node: OnnxNode) -> Converted:
    shape = node.shape()
    if node.has(1) and node.numbers(1) is None and "axes" not in node.attributes:
        return reshaped(node, node[0], _squeezed_at_run_time(node, shape))
    axes = node.integers("axes", 1)
    if not axes:  # all axes of size 1, also for an empty list, as in ONNX Runtime
        if not all(isinstance(dim, int) for dim in shape):
            node.refuse(
                "it has no axes, and which sizes are 1 is not known; fix them with shapes= or --shape"
            )
        return reshaped(node, node[0], [dim for dim in shape if dim != 1])
    axes = [node.axis(axis) for axis in axes]
    wrong = [str(shape[axis]) for axis in axes if isinstance(shape[axis], int) and shape[axis] != 1]
    if wrong:
        node.refuse(f"it removes an axis of size {wrong[0]}; only axes of size 1 can be removed")
    require_equal(node, [(shape[axis], 1) for axis in axes])
    return reshaped(node, node[0], [dim for axis, dim in enumerate(shape) if axis not in axes])


def _unsqueeze(node: OnnxNode) -> Converted:
    shape = node.shape()
    if "axes" not in node.attributes and node.numbers(1) is None:
        return reshaped(node, node[0], _unsqueezed_at_run_time(node, shape))
    axes = node.integers("axes", 1) or []
    rank = len(shape) + len(axes)
    axes = [node.axis(axis, rank) for axis in axes]
    if len(set(axes)) < len(axes):
        node.refuse("it inserts one axis twice")
    kept = iter(shape)
    return reshaped(node, node[0], [1 if axis in axes else next(kept) for axis in range(rank)])


def _is_among(axis: int, axes: te.Tensor, count: int, rank: int) -> Any:
    """1 if one of ``count`` axes, counted from either end, is ``axis``; otherwise 0."""
    found: Any = _int64(0)
    for n in range(count):
        found = tirx.Select(tirx.any(axes(n) == axis, axes(n) == axis - rank), _int64(1), found)
    return found


def _squeezed_at_run_time(node: OnnxNode, shape: list[Dim]) -> list[Dim]:
    count, rank = _length(node, 1), len(shape)
    if count == rank:
        return []

    def elements(axes: te.Tensor, dims: list[Any]) -> list[Any]:
        kept = [1 - _is_among(axis, axes, count, rank) for axis in range(rank)]
        return [_nth(kept, dims, place) for place in range(rank - count)]

    return run_time_sizes(node, elements, _int64_operand(node, 1), shape)


def _nth(kept: Sequence[Any], dims: Sequence[Any], place: Any) -> Any:
    """The ``place``-th size among those of kept axes."""
    found, before = _int64(0), _int64(0)
    for flag, dim in zip(kept, dims, strict=True):
        found = tirx.Select(tirx.all(flag == 1, before == place), _int64(dim), found)
        before = before + flag
    return found


def _unsqueezed_at_run_time(node: OnnxNode, shape: list[Dim]) -> list[Dim]:
    count = _length(node, 1)
    rank = len(shape) + count
    if rank == 0:
        return []

    def elements(axes: te.Tensor, dims: list[Any]) -> list[Any]:
        sizes, before = [], _int64(0)
        for axis in range(rank):
            added = _is_among(axis, axes, count, rank)
            sizes.append(tirx.Select(added == 1, _int64(1), _nth([_int64(1)] * len(dims), dims, before)))
            before = before + 1 - added
        return sizes

    return run_time_sizes(node, elements, _int64_operand(node, 1), shape)


def _expand(node: OnnxNode) -> Converted:
    data, shape, wanted = node[0], node.shape(), node.sizes(1)
    rank = max(len(shape), len(wanted))
    shape, wanted = [1] * (rank - len(shape)) + shape, [1] * (rank - len(wanted)) + wanted
    columns = [distinct(pair) for pair in zip(shape, wanted, strict=True)]
    misfit = next((column for column in columns if _is_misfit(column)), None)
    if misfit is not None:
        node.refuse(f"a size of {misfit[0]} cannot be expanded to {misfit[1]}")
    made = common_sizes(node, columns)
    if is_empty(made):
        return empty(node, made, node.dtype())
    if all(_is(a, 1) or a is b or are_equal(a, b) for a, b in zip(shape, made, strict=True)):
        return relax.op.broadcast_to(data, relax.ShapeExpr(made))
    return node.builder.call_te(_expanded, data, shape, made)


def _is_misfit(column: Sequence[Dim]) -> bool:
    """Whether two sizes are different numbers, neither of which is 1."""
    return len(column) == 2 and all(isinstance(size, int) for size in column)


def _expanded(x: te.Tensor, shape: list[Any], target: list[Any]) -> te.Tensor:
    """``x`` expanded to ``target``; only the program knows which of its sizes are 1. ``shape`` has ones for the axes
    that ``x`` lacks."""
    lacking = len(target) - len(x.shape)

    def element(*place: Any) -> Any:
        pairs = zip(shape[lacking:], place[lacking:], strict=True)
        return x(*[tirx.Select(_int64(size) == 1, _int64(0), _int64(at)) for size, at in pairs])

    return te.compute(target, element, name="expand")


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Constant": _constant,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": _identity,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
