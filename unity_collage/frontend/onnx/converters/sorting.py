"""TopK and Unique: a stable merge sort of indexes, in which NaN is larger than all numbers, as in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from ..equal_sizes import require_at_most
from ..node import Converted, OnnxNode
from ..values import Dim
from .kernels import choose, increment, kernel, loop, store, when, while_
from .runtime_shapes import as_int64, dtype_of_expr, empty, is_empty, product, results, sizes_of


def is_less(a: Any, b: Any) -> Any:
    """Whether ``a`` is before ``b`` in ascending order. (TVM simplifies ``b != b`` to false.)"""
    return tirx.any(a < b, tirx.all(tirx.isnan(b), tirx.Not(tirx.isnan(a))))


def is_same(a: Any, b: Any) -> Any:
    """Whether two elements are equal or both NaN."""
    return tirx.any(a == b, tirx.all(tirx.isnan(a), tirx.isnan(b)))


def sort(
    order: Any, scratch: Any, state: Any, begin: Any, count: Any, before: Callable[[Any, Any], Any]
) -> None:
    """Sort ``count`` indexes in ``order`` from ``begin`` on; ``before(a, b)`` compares the elements at two indexes.

    A bottom-up merge sort: runs of a width that doubles are merged in pairs. ``scratch`` is as large as ``order``, and
    ``state`` has four elements: the width, the begin of a pair, and the next places of its two runs.
    """
    width, low, left, right = (as_int64(n) for n in range(4))
    end = begin + count
    store(state, width, 1)
    with while_(state[width] < count):
        store(state, low, begin)
        with while_(state[low] < end):
            middle = tirx.min(state[low] + state[width], end)
            high = tirx.min(state[low] + 2 * state[width], end)
            store(state, left, state[low])
            store(state, right, middle)
            with loop(high - state[low]) as n:
                # After the end of a run its next place is not read, but it must be inside of the buffer.
                second = order[tirx.min(state[right], end - 1)]
                first = order[tirx.min(state[left], end - 1)]
                takes_second = tirx.any(
                    state[left] >= middle, tirx.all(state[right] < high, before(second, first))
                )
                choose(
                    takes_second,
                    lambda n=n: _move(order, scratch, state, state[low] + n, right),
                    lambda n=n: _move(order, scratch, state, state[low] + n, left),
                )
            store(state, low, state[low] + 2 * state[width])
        with loop(count) as n:
            store(order, begin + n, scratch[begin + n])
        store(state, width, 2 * state[width])


def _move(order: Any, scratch: Any, state: Any, to: Any, run: Any) -> None:
    store(scratch, to, order[state[run]])
    increment(state, run)


def _comparable(node: OnnxNode, expr: relax.Expr) -> relax.Expr:
    """``expr`` with an element type that every target compares."""
    dtype = dtype_of_expr(expr)
    return node.cast(expr, {"bool": "uint8", "bfloat16": "float32", "float16": "float32"}.get(dtype, dtype))


def _top_k(node: OnnxNode) -> Converted:
    axis, shape = node.axis(node.attribute("axis", -1), max(node.rank(), 1)), node.shape()
    largest = bool(node.attribute("largest", 1))
    count: Dim = node.required("k") if node.version < 10 else node.size(1)
    require_at_most(node, "k", [(count, shape[axis])])
    sizes = [*shape[:axis], count, *shape[axis + 1 :]]
    if is_empty(sizes):
        return [empty(node, sizes, node.dtype()), empty(node, sizes, "int64")]
    if isinstance(count, int):
        both = node.emit(relax.op.topk(node[0], count, axis, "both", largest, "int64"))
        return [node.emit(relax.TupleGetItem(both, n)) for n in range(2)]
    order = node.emit(relax.op.argsort(node[0], axis, largest, "int64"))
    places = node.emit(node.builder.call_te(_first, order, sizes))
    return [relax.op.gather_elements(node[0], places, axis), places]


def _first(data: te.Tensor, sizes: list[Any]) -> te.Tensor:
    """The first elements along each axis."""
    return te.compute(sizes, lambda *place: data(*place), name="first")


def _unique(node: OnnxNode) -> Converted:
    given = node.attribute("axis")
    axis = None if given is None else node.axis(given)
    return _distinct(node, axis, bool(node.attribute("sorted", 1)))


def _unique_in_order(node: OnnxNode) -> Converted:
    """Of com.microsoft: in the order in which values occur first; there is no result for the first places."""
    values, _, inverse, counts = _distinct(node, None, is_sorted=False)
    return [values, inverse, counts]


def _distinct(node: OnnxNode, along: int | None, is_sorted: bool) -> list[relax.Expr]:
    """The distinct elements, or slices along an axis; where each occurs first; the group of each; their numbers."""
    shape = node.shape()
    if along is None:
        data, shape = node.reshaped(node[0], [product(shape)]), [product(shape)]
    else:
        data = node[0]
    axis = along or 0
    if is_empty(shape):
        sizes = [0 if n == axis else size for n, size in enumerate(shape)]
        return [empty(node, sizes, node.dtype()), *(empty(node, [0], "int64") for _ in range(3))]
    order = [axis, *(n for n in range(len(shape)) if n != axis)]
    moved = node.emit(relax.op.permute_dims(data, order)) if axis else data
    rows = node.reshaped(moved, [shape[axis], product([size for n, size in enumerate(shape) if n != axis])])
    found = results(node, _groups, 7, _comparable(node, rows), is_sorted)
    first, counts, inverse, total = found[:4]
    (number,) = sizes_of(node, total)
    taken = node.builder.call_te(_taken, data, first, axis, [*shape[:axis], number, *shape[axis + 1 :]])
    indexes, numbers = (node.builder.call_te(_begin, items, number) for items in (first, counts))
    return [taken, indexes, inverse, numbers]


def _begin(items: te.Tensor, number: Any) -> te.Tensor:
    return te.compute((number,), lambda n: items(n), name="begin")


def _taken(data: te.Tensor, first: te.Tensor, axis: int, sizes: list[Any]) -> te.Tensor:
    def element(*place: Any) -> Any:
        return data(*place[:axis], first(place[axis]), *place[axis + 1 :])

    return te.compute(sizes, element, name="unique")


def _groups(rows: te.Tensor, is_sorted: bool) -> list[te.Tensor]:
    """Groups of equal rows: first rows and sizes of the groups, the group of each row, and how many groups there are.

    Only the first elements of the first two vectors, as many as there are groups, have a meaning. The other results
    are buffers for the computation.
    """
    count, width = (as_int64(size) for size in rows.shape)

    def steps(
        data: Any, first: Any, sizes: Any, group: Any, total: Any, order: Any, scratch: Any, state: Any
    ) -> None:
        with loop(count) as n:
            store(order, n, n)
        with loop(
            width
        ) as column:  # from the last to the first: a stable sort keeps the order by later columns

            def key(index: Any, column: Any = column) -> Any:
                return data[index * width + (width - 1 - column)]

            sort(order, scratch, state, as_int64(0), count, lambda a, b, key=key: is_less(key(a), key(b)))
        _group(data, order, scratch, group, total, state, count, width)
        # Now scratch has the first row of each group.
        if not is_sorted:
            _by_first_row(order, scratch, group, state, count)
        with loop(count) as n:
            store(sizes, n, 0)
        with loop(count) as n:
            increment(sizes, group[n])
        with loop(total[0]) as n:
            store(first, n if is_sorted else order[n], scratch[n])

    vector = ((rows.shape[0],), "int64")
    made = [vector, vector, vector, ((1,), "int64"), vector, vector, ((4,), "int64")]
    return kernel("unique", [rows], made, steps)


def _group(
    data: Any, order: Any, first: Any, group: Any, total: Any, state: Any, count: Any, width: Any
) -> None:
    """Number the groups of equal rows, which are next to each other in ``order``."""
    store(total, 0, 0)
    with loop(count) as n:
        store(state, 0, tirx.Select(n == 0, as_int64(1), as_int64(0)))
        with loop(width) as column:
            last = order[tirx.max(n - 1, as_int64(0))]
            with when(tirx.Not(is_same(data[order[n] * width + column], data[last * width + column]))):
                store(state, 0, 1)
        # The sort has ended, so scratch is free for the first rows; places are written once and in order.
        with when(state[0] == 1):
            store(first, total[0], order[n])
            increment(total, 0)
        store(group, order[n], total[0] - 1)


def _by_first_row(order: Any, first: Any, group: Any, state: Any, count: Any) -> None:
    """Number the groups again, in the order of their first rows; ``order`` becomes the new number of each."""
    store(state, 0, 0)
    with loop(count) as n:
        with when(first[group[n]] == n):
            store(order, group[n], state[0])
            increment(state, 0)
        store(group, n, order[group[n]])


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"TopK": _top_k, "Unique": _unique}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"Unique": _unique_in_order}
