"""Finds blocks of kernels that a network repeats, such as its layers, so that a picture can show one for all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np

LEAST_SINGLE = 4
"""How often one kernel must follow itself to be folded; blocks of several kernels are folded from two copies on."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A block of consecutive kernels that is repeated: ``count`` copies, one directly after the other."""

    first: int
    """The number of the first kernel of the first copy."""
    size: int
    """How many kernels a copy has."""
    count: int
    body: tuple[Item, ...]
    """The kernels of the first copy, with the blocks that are repeated inside it."""

    @property
    def stop(self) -> int:
        """The number after the last kernel of the last copy."""
        return self.first + self.size * self.count


Item: TypeAlias = "int | Fold"
"""A kernel by its number, or a repeated block."""


@dataclass(frozen=True, slots=True)
class _Repeat:
    start: int
    period: int
    count: int
    spare: int = 0
    """By how many kernels the first copy may start later without losing a copy."""

    @property
    def saved(self) -> int:
        return self.period * (self.count - 1)

    @property
    def is_worthwhile(self) -> bool:
        return self.count >= (LEAST_SINGLE if self.period == 1 else 2)


def folded(kinds: Sequence[Hashable], reads: Sequence[Sequence[int]]) -> tuple[Item, ...]:
    """The kernels 0, 1, ... in their order, repeated blocks as one item.

    Copies of a block have equal ``kinds``, and read from each other inside the block in the same way. The block that
    saves most nodes is folded first, then blocks before, after and inside it. Where a block could begin at several
    kernels, it begins where the fewest values cross between two copies.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int64)
    return _items(ids, reads, _crossing(reads), 0, len(ids))


def _items(
    ids: np.ndarray, reads: Sequence[Sequence[int]], crossing: Sequence[int], start: int, stop: int
) -> tuple[Item, ...]:
    """The items of the kernels from ``start`` to ``stop``."""
    found: list[Fold] = []
    parts = [(start, stop)]
    while parts:
        begin, end = parts.pop()
        repeat = _best(ids, reads, crossing, begin, end)
        if repeat is None:
            continue
        body = _items(ids, reads, crossing, repeat.start, repeat.start + repeat.period)
        fold = Fold(repeat.start, repeat.period, repeat.count, body)
        found.append(fold)
        parts += [(begin, fold.first), (fold.stop, end)]
    return tuple(_filled(sorted(found, key=lambda fold: fold.first), start, stop))


def _filled(folds: Iterable[Fold], start: int, stop: int) -> Iterator[Item]:
    """The folds and the kernels between them."""
    at = start
    for fold in folds:
        yield from range(at, fold.first)
        yield fold
        at = fold.stop
    yield from range(at, stop)


def _best(
    ids: np.ndarray, reads: Sequence[Sequence[int]], crossing: Sequence[int], start: int, stop: int
) -> _Repeat | None:
    """The repeat between ``start`` and ``stop`` that saves most; of equal ones that with the shortest block."""
    repeats = sorted(_repeats(ids[start:stop]), key=lambda each: (-each.saved, each.period, each.start))
    for repeat in repeats:
        moved = _Repeat(start + repeat.start, repeat.period, repeat.count, repeat.spare)
        wired = _equally_wired(_aligned(moved, crossing), reads)
        if wired.is_worthwhile:
            return wired
    return None


def _repeats(ids: np.ndarray) -> Iterator[_Repeat]:
    """Every longest stretch of ``ids`` that equals itself ``period`` places later, as far as it is worthwhile."""
    for period in range(1, len(ids) // 2 + 1):
        differs = np.flatnonzero(ids[:-period] != ids[period:])
        ends = np.concatenate(([-1], differs, [len(ids) - period]))
        lengths = np.diff(ends) - 1
        for place in np.flatnonzero(lengths >= period):
            length = int(lengths[place])
            repeat = _Repeat(int(ends[place]) + 1, period, length // period + 1, length % period)
            if repeat.is_worthwhile:
                yield repeat


def _aligned(repeat: _Repeat, crossing: Sequence[int]) -> _Repeat:
    """The repeat with its first kernel where the fewest values cross into a copy or out of one."""
    length = repeat.period * repeat.count + 1
    starts = range(repeat.start, repeat.start + repeat.spare + 1)
    best = min(starts, key=lambda start: sum(crossing[start : start + length : repeat.period]))
    return _Repeat(best, repeat.period, repeat.count)


def _equally_wired(repeat: _Repeat, reads: Sequence[Sequence[int]]) -> _Repeat:
    """The longest part of the repeat in which all copies read in the same way from kernels of the same copy."""
    copies = [
        (_inside(first, repeat.period, reads), first)
        for first in range(repeat.start, repeat.start + repeat.period * repeat.count, repeat.period)
    ]
    parts = [[first for _, first in part] for _, part in groupby(copies, key=lambda copy: copy[0])]
    longest = max(parts, key=len)
    return _Repeat(longest[0], repeat.period, len(longest))


def _inside(first: int, size: int, reads: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(sorted(source - first for source in reads[kernel] if source >= first))
        for kernel in range(first, first + size)
    )


def _crossing(reads: Sequence[Sequence[int]]) -> list[int]:
    """For each place between two kernels, how many kernels before it are read by a kernel after it."""
    last = list(range(len(reads)))
    for kernel, sources in enumerate(reads):
        for source in sources:
            last[source] = max(last[source], kernel)
    change = [0] * (len(reads) + 2)
    for kernel, reader in enumerate(last):
        change[kernel + 1] += 1
        change[reader + 1] -= 1
    total, found = 0, []
    for step in change[:-1]:
        total += step
        found.append(total)
    return found
