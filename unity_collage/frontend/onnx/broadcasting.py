"""Operands that are broadcast to each other, if free sizes leave open how.

Relax broadcasts sizes that it can compare. Of two free sizes n and m either may be 1 when the program runs. So operands
are expanded to a common shape before the operator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, te, tirx

from ...graph.free_sizes import Size, size_of
from ...graph.shapes import dtype_of
from .equal_sizes import require_equal
from .node import OnnxNode
from .symbolic import are_equal
from .values import Dim, Value

OPERATORS = frozenset(
    {
        "Add",
        "And",
        "BitShift",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
    }
    | {
        "Less",
        "LessOrEqual",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Or",
        "PRelu",
        "Pow",
        "Sub",
        "Sum",
        "Where",
        "Xor",
    }
)
"""Operators of ai.onnx that broadcast their operands to each other."""


def aligned(node: OnnxNode) -> Sequence[Value | None]:
    """The operands of a node, expanded to one shape if their sizes cannot be compared now."""
    if node.version < 7 and (node.attribute("broadcast", 0) or node.op == "PRelu"):
        return [node.value(0), _at_axis(node)]
    values = [value for value in node.inputs if value is not None]
    if len(values) < len(node.inputs) or len(values) < 2:
        return node.inputs
    return _of_one_shape(node, values)


def broadcast(node: OnnxNode, *tensors: relax.Expr) -> list[relax.Expr]:
    """Variables or constants, expanded to one shape if their sizes cannot be compared now."""
    values = [Value(dtype_of(tensor), expr=tensor) for tensor in tensors]
    return [value.tensor(node.builder) for value in _of_one_shape(node, values)]


def _of_one_shape(node: OnnxNode, values: Sequence[Value]) -> Sequence[Value]:
    rank = max(value.rank for value in values)
    padded = [[1] * (rank - value.rank) + value.shape for value in values]
    columns = [distinct([shape[axis] for shape in padded]) for axis in range(rank)]
    if all(len(column) < 2 or not _is_open(column) for column in columns):
        return values
    common = common_sizes(node, columns)
    return [_expanded(node, value, shape, common) for value, shape in zip(values, padded, strict=True)]


def aligned_for_product(node: OnnxNode, left: Value, right: Value) -> tuple[relax.Expr, relax.Expr]:
    """The operands of a matrix product, of equal inner sizes and equal sizes of batches.

    The program ends with an error where sizes do not fit when it runs.
    """
    a, b = (_with_inner_size(node, (left, right), place) for place in (0, 1))
    rank = max(a.rank, b.rank) - 2
    if min(a.rank, b.rank) < 2 or rank < 1:
        return a.tensor(node.builder), b.tensor(node.builder)
    padded = [[1] * (rank + 2 - value.rank) + value.shape for value in (a, b)]
    columns = [distinct([shape[axis] for shape in padded]) for axis in range(rank)]
    if all(len(column) < 2 or not _is_open(column) for column in columns):
        return a.tensor(node.builder), b.tensor(node.builder)
    common = common_sizes(node, columns)
    pairs = zip((a, b), padded, strict=True)
    made = [_expanded(node, value, shape, [*common, *shape[-2:]]) for value, shape in pairs]
    return made[0].tensor(node.builder), made[1].tensor(node.builder)


def _with_inner_size(node: OnnxNode, operands: tuple[Value, Value], place: int) -> Value:
    """An operand of a matrix product, whose inner size is that of the other one."""
    value, other = operands[place], operands[1 - place]
    if min(value.rank, other.rank) < 1:
        return value
    own, wanted = (-2 if place and value.rank > 1 else -1), (-1 if place or other.rank < 2 else -2)
    size, want = value.shape[own], other.shape[wanted]
    # Numbers stay, and of two free sizes that of the first operand.
    if (
        isinstance(size, int)
        or (place == 0 and not isinstance(want, int))
        or are_equal(size, want) is not None
    ):
        return value
    require_equal(node, [(size, want)])
    shape = list(value.shape)
    shape[own] = want
    return Value(value.dtype, expr=node.reshaped(value.tensor(node.builder), shape))


def _at_axis(node: OnnxNode) -> Value:
    """The second operand in operator sets before 7: its first dimension is aligned with the dimension ``axis`` of the
    first.
    """
    second, rank = node.value(1), node.rank(0)
    # Slopes of PRelu are for channels. They have no attribute.
    axis = 1 if node.op == "PRelu" and second.rank == 1 else node.attribute("axis", rank - second.rank)
    behind = rank - axis % max(rank, 1) - second.rank
    if second.rank == 0 or behind <= 0 or second.shape == [1]:
        return second
    return Value(second.dtype, expr=node.reshaped(node[1], [*second.shape, *[1] * behind]))


def distinct(sizes: Sequence[Dim]) -> list[Dim]:
    """The sizes of one axis that may differ, without those that are certainly 1."""
    found: list[Dim] = []
    for size in sizes:
        if are_equal(size, 1) is not True and not any(are_equal(size, other) for other in found):
            found.append(size)
    return found


def _is_open(column: Sequence[Dim]) -> bool:
    """Whether different sizes may be broadcast to each other: two different numbers may not."""
    return any(not isinstance(size, int) for size in column)


def common_sizes(node: OnnxNode, columns: Sequence[Sequence[Dim]]) -> list[Dim]:
    """For each axis the size that its ``distinct`` sizes are broadcast to.

    If the sizes cannot be broadcast when the program runs, it ends with an error.
    """
    if all(len(column) < 2 for column in columns):
        return [column[0] if column else 1 for column in columns]
    # Computed on tensors: TVM would simplify symbolic expressions, and remove the fresh sizes.
    one: relax.Expr = node.constant([1], "int64")
    common: list[Dim] = []
    fresh: list[Dim] = []
    computed: list[relax.Expr] = []
    checks: list[relax.Expr] = []
    for column in columns:
        if len(column) < 2:
            common.append(column[0] if column else 1)
            continue
        sizes: list[relax.Expr] = [
            node.emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))) for size in column
        ]
        uncut = _uncut(column)
        whole = _not_one(column) if uncut is None else uncut
        if whole is not None:
            common.append(column[whole])
            for place, each in enumerate(sizes):
                if place == whole:
                    continue
                is_not_all = node.emit(relax.op.subtract(each, sizes[whole]))
                is_not_one = one if uncut is not None else node.emit(relax.op.subtract(each, one))
                checks.append(node.emit(relax.op.multiply(is_not_one, is_not_all)))
            continue
        larger, smaller = sizes[0], one
        for each in sizes:
            larger = node.emit(relax.op.maximum(larger, each))
            smaller = node.emit(relax.op.minimum(smaller, each))
        size = node.emit(relax.op.multiply(larger, smaller))  # 0 for the sizes 0 and 1
        for each in sizes:
            is_not_one, is_not_all = (node.emit(relax.op.subtract(each, other)) for other in (one, size))
            checks.append(node.emit(relax.op.multiply(is_not_one, is_not_all)))
        computed.append(size)
        fresh.append(node.importer.fresh_size())
        common.append(fresh[-1])
    found = node.emit(relax.op.concat([*computed, *checks], 0))
    zeros = [tirx.const(0, "int64")] * len(checks)
    node.builder.match_cast(node.emit(relax.op.tensor_to_shape(found)), relax.ShapeType([*fresh, *zeros]))
    return common


def _uncut(column: Sequence[Dim]) -> int | None:
    """The place of a size n such that all others are ``min(n, 128)``, or with another number above 1.

    None if there is none.

    An example is n tokens and the first n rows of a table of 128 positions. They can be broadcast only if they are
    equal, since the smaller one is 1 only if n is 1 too. So the result has the size n.
    """
    for place, whole in enumerate(column):
        if all(_is_cut(size, whole) for other, size in enumerate(column) if other != place):
            return place
    return None


def _not_one(column: Sequence[Dim]) -> int | None:
    """The place of a size that is never 1: another number, or a multiple of one; None if there is none.

    An example is the height of an enlarged image. A size that can be broadcast to it is equal, or 1.
    """
    for place, size in enumerate(column):
        if isinstance(size, int):
            return place
        known = size_of(size) if isinstance(size, ir.Expr) else size
        if isinstance(known, Size) and math.gcd(*known.terms.values()) > 1:
            return place
    return None


def equal_but_along(node: OnnxNode, axis: int, places: Sequence[int]) -> list[relax.Expr]:
    """Inputs of equal sizes, except along ``axis``; the program ends with an error if sizes differ when it runs.

    They have the sizes of the first one, in the form that the next operators know.
    """
    wanted, parts = node.shape(places[0]), [node[place] for place in places]
    checks: list[tuple[Dim, Dim]] = []
    for number, place in enumerate(places[1:], 1):
        shape = node.shape(place)
        pairs = [
            (have, want)
            for k, (have, want) in enumerate(zip(shape, wanted, strict=True))
            if k != axis and are_equal(have, want) is None
        ]
        checks += pairs
        if pairs:
            parts[number] = node.reshaped(parts[number], [*wanted[:axis], shape[axis], *wanted[axis + 1 :]])
    require_equal(node, checks)
    return parts


def _is_cut(size: Dim, whole: Dim) -> bool:
    """Whether ``size`` is the smaller one of ``whole`` and a number above 1."""
    if not isinstance(size, tirx.Min):
        return False
    pairs = ((size.a, size.b), (size.b, size.a))
    return any(isinstance(most, tirx.IntImm) and most.value > 1 and are_equal(n, whole) for n, most in pairs)


def _expanded(node: OnnxNode, value: Value, shape: Sequence[Dim], common: Sequence[Dim]) -> Value:
    """A tensor of the sizes ``shape``, after leading ones, expanded to the sizes ``common``."""
    skipped = len(shape) - value.rank
    if value.rank == len(shape) and all(are_equal(a, b) for a, b in zip(shape, common, strict=True)):
        return value

    def read(x: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, "int64")

        def at(*index: Any) -> Any:
            own = zip(index[skipped:], x.shape, strict=True)
            return x(*(tirx.Select(size == 1, zero, i.astype("int64")) for i, size in own))

        return te.compute(tuple(common), at, name="expanded")

    source = value.tensor(node.builder)
    return Value(value.dtype, expr=node.emit(node.builder.call_te(read, source)))
