"""The algebra of layouts, as plain data.

A layout is a permutation: a value held in layout ``p`` has its original axis ``p[j]`` at position ``j``.
So ``(0, 1, 2, 3)`` is the layout a value was written in (*plain*) and ``(0, 2, 3, 1)`` is channels-last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

Layout = tuple[int, ...]


def plain(rank: int) -> Layout:
    """The layout of a value as the model wrote it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Layout:
    """(N, C, spatial...) held as (N, spatial..., C)."""
    return (0, *range(2, rank), 1)


def kernel_last(rank: int) -> Layout:
    """Convolution weights (O, I, spatial...) held as (spatial..., I, O)."""
    return (*range(2, rank), 1, 0)


def change(source: Layout, target: Layout) -> list[int]:
    """The ``axes`` of the ``permute_dims`` that turns the ``source`` form into the ``target`` form."""
    return [source.index(axis) for axis in target]


def permuted(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout in which data held in ``layout`` shows ``permute_dims(value, axes)`` without moving."""
    return tuple(list(axes).index(axis) for axis in layout)


def same_order(first: Layout, second: Layout, is_unit: Callable[[int], bool]) -> bool:
    """Whether both layouts have equal memory: only axes of extent one stand elsewhere."""
    return [a for a in first if not is_unit(a)] == [a for a in second if not is_unit(a)]


def padded(layout: Layout, rank: int) -> Layout:
    """The layout of the value after broadcasting has put unit axes in front of it."""
    new = rank - len(layout)
    return (*range(new), *(axis + new for axis in layout))


def unpadded(layout: Layout, rank: int) -> Layout:
    """The layout of an operand of lower ``rank`` that lines up with ``layout`` when broadcast."""
    new = len(layout) - rank
    return tuple(axis - new for axis in layout if axis >= new)


def without(layout: Layout, gone: Collection[int]) -> Layout:
    """The layout of the value after the axes ``gone`` have been reduced away."""
    kept = [axis for axis in layout if axis not in gone]
    return tuple(sorted(kept).index(axis) for axis in kept)


def with_new_axis(layout: Layout, axis: int) -> Layout:
    """The layout after a new ``axis``, held in front of all others, was added to the value."""
    return (axis, *(a + (a >= axis) for a in layout))


@dataclass(frozen=True, slots=True)
class Dim:
    """An extent: ``number`` times a product of symbols, each named by an integer."""

    number: int
    symbols: tuple[int, ...] = ()

    def __mul__(self, other: Dim) -> Dim:
        return Dim(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))


ONE = Dim(1)


def _may_grow(left: Dim, right: Dim) -> bool:
    """Whether further factors could make ``left`` equal to ``right``."""
    if Counter(left.symbols) - Counter(right.symbols):
        return False
    return left.symbols != right.symbols or left.number < right.number


def grouped(source: Sequence[Dim], target: Sequence[Dim]) -> list[tuple[list[int], list[int]]] | None:
    """Split the axes of a reshape into the shortest runs of equal product; None when that is not provable.

    Axes of extent one belong to no run.
    """
    left = [axis for axis, dim in enumerate(source) if dim != ONE]
    right = [axis for axis, dim in enumerate(target) if dim != ONE]
    groups = []
    while left and right:
        a, b = [left.pop(0)], [right.pop(0)]
        size_a, size_b = source[a[0]], target[b[0]]
        while size_a != size_b:
            if left and _may_grow(size_a, size_b):
                size_a *= source[left[0]]
                a.append(left.pop(0))
            elif right and _may_grow(size_b, size_a):
                size_b *= target[right[0]]
                b.append(right.pop(0))
            else:
                return None
        groups.append((a, b))
    return None if left or right else groups


def through_reshape(
    layout: Layout, source: Sequence[Dim], target: Sequence[Dim]
) -> tuple[Layout, Layout] | None:
    """The layouts (before, after) in which a reshape of the original stays a reshape of the data.

    ``before`` is the one nearest to ``layout``; None when the extents do not tell.

    >>> dims = lambda *extents: [Dim(n) for n in extents]
    >>> through_reshape((0, 2, 3, 1), dims(2, 8, 5, 7), dims(2, 8, 35))
    ((0, 2, 3, 1), (0, 2, 1))
    >>> through_reshape((0, 2, 3, 1), dims(2, 8, 5, 7), dims(2, 280))
    ((0, 1, 2, 3), (0, 1))
    """
    groups = grouped(source, target)
    if groups is None:
        return None
    groups.sort(key=lambda group: min(layout.index(axis) for axis in group[0]))
    before = [axis for group in groups for axis in group[0]]
    after = _with_units([group[1] for group in groups], len(target))
    # Unit axes take no room: they stay where the layout has them as long as nothing else moves.
    if before == [axis for axis in layout if source[axis] != ONE]:
        return layout, after
    return (*(axis for axis in layout if source[axis] == ONE), *before), after


def _with_units(runs: list[list[int]], rank: int) -> Layout:
    """The runs in a row, each unit axis behind the axis that it follows in the original."""
    order = [axis for run in runs for axis in run]
    for axis in range(rank):
        if axis not in order:
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return tuple(order)
