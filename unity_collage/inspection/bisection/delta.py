"""Delta debugging: from a set that fails to one of which no item can be left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def smallest_failing(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> tuple[Item, ...]:
    """A part of ``items`` that fails, and that passes as soon as any one of its items is left out.

    All ``items`` together have to fail, and the empty set has to pass. This is ``ddmin`` of Zeller and Hildebrandt,
    "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions on Software Engineering 28 (2002). A single
    culprit takes about two tests for each halving, as many as a binary search. A binary search, however, finds
    nothing where several items fail only together.
    """
    left, parts = tuple(items), 2
    while len(left) > 1:
        halves = list(_split(left, parts))
        failing = next((part for part in halves if fails(part)), None)
        if failing is not None:
            left, parts = failing, 2
            continue
        # With two parts each rest is the other part.
        rests = (
            (tuple(item for item in left if item not in part) for part in halves) if parts > 2 else iter(())
        )
        failing = next((rest for rest in rests if fails(rest)), None)
        if failing is not None:
            left, parts = failing, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(len(left), 2 * parts)
    return left


def _split(items: tuple[Item, ...], parts: int) -> Iterator[tuple[Item, ...]]:
    """``items`` in ``count`` parts of nearly equal length, in order."""
    ends = [len(items) * number // parts for number in range(parts + 1)]
    for begin, end in pairwise(ends):
        yield items[begin:end]
