"""Places from left to right for the nodes of rows: lines that continue straight, and nothing that overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .rows import Rows

GAP = 22
"""Pixels between two neighbours of a row."""
_SWEEPS = 8
_STRAIGHT, _BENT = 8.0, 1.0
"""How strongly a line pulls its ends together: between two items or two bends, and between an item and a bend."""
_HEAVY = 1000.0
"""How many times as much weight an item has as a bend when they compete for a place."""


def places(rows: Rows, widths: Sequence[int]) -> tuple[list[int], int]:
    """The centre of each node in pixels, and the width of the whole; ``widths`` are those of the items."""
    sizes = [*widths, *[0] * (len(rows.above) - rows.items)]
    at = [0.0] * len(sizes)
    weights = [_HEAVY if node < rows.items else 1.0 for node in range(len(sizes))]
    for row in rows.rows:
        _place(at, row, sizes, weights, _centred(row, sizes))
    for sweep in range(_SWEEPS):
        neighbours, order = (rows.above, rows.rows) if sweep % 2 == 0 else (rows.below, rows.rows[::-1])
        for row in order:
            wished = [_wish(node, neighbours[node], at, rows.items) for node in row]
            _place(at, row, sizes, weights, wished)
    left = min((x - size / 2 for x, size in zip(at, sizes, strict=True)), default=0.0)
    right = max((x + size / 2 for x, size in zip(at, sizes, strict=True)), default=0.0)
    return [round(x - left) for x in at], round(right - left)


def _centred(row: Sequence[int], sizes: Sequence[int]) -> list[float]:
    offsets = _offsets(row, sizes)
    return [offset - (offsets[0] + offsets[-1]) / 2 for offset in offsets]


def _wish(node: int, neighbours: Sequence[int], at: Sequence[float], items: int) -> float:
    """The weighted median of the neighbours' places; its own place where there are none."""
    if not neighbours:
        return at[node]

    def weight(other: int) -> float:
        return _STRAIGHT if (other < items) == (node < items) else _BENT

    ordered = sorted(neighbours, key=at.__getitem__)
    half = sum(map(weight, ordered)) / 2
    passed = 0.0
    for place, other in enumerate(ordered):
        passed += weight(other)
        if passed == half:
            return (at[other] + at[ordered[place + 1]]) / 2
        if passed > half:
            return at[other]
    return at[ordered[-1]]


def _offsets(row: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """The places of a row that is packed as closely as possible."""
    found = [0.0]
    for node, other in pairwise(row):
        found.append(found[-1] + (sizes[node] + sizes[other]) / 2 + GAP)
    return found


def _place(
    at: list[float],
    row: Sequence[int],
    sizes: Sequence[int],
    weights: Sequence[float],
    wished: Sequence[float],
) -> None:
    """Put a row as near to its wishes as its order and the gaps allow, by the least weighted sum of squares.

    Without the offsets of the closest packing the places only have to ascend: a regression that pools adjacent
    violators solves that exactly (Ayer et al., 1955).
    """
    offsets = _offsets(row, sizes)
    pools: list[tuple[float, float, int]] = []
    for node, wish, offset in zip(row, wished, offsets, strict=True):
        total, weight, number = weights[node] * (wish - offset), weights[node], 1
        while pools and pools[-1][0] / pools[-1][1] > total / weight:
            more, heavier, others = pools.pop()
            total, weight, number = total + more, weight + heavier, number + others
        pools.append((total, weight, number))
    found = [total / weight for total, weight, number in pools for _ in range(number)]
    for node, place, offset in zip(row, found, offsets, strict=True):
        at[node] = place + offset
