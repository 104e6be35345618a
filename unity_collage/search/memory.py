"""The bytes that a plan holds while its kernels run, as TVM's planner places its values.

TVM's StaticPlanBlockMemory gives each value a storage: one whose values are all dead, of the same element type and
between a sixteenth and sixteen times as large, else a new one. It takes the smallest that is large enough, or else the
largest, which grows. A storage lives from its first value to its last one, with its final size. Results have storages
of their own. A value of 0 bytes is a view: it keeps its operand alive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..index_set import IndexSet, index_set, members
from .problem import Option, Problem, Solution

_RANGE = 16
"""TVM uses a storage for values from this part of its size up to this many times its size."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes of the values and options of a problem."""

    sizes: tuple[int, ...]
    """The bytes of the value of each node; 0: it is a view."""
    kinds: tuple[str, ...] = ()
    """The element type of each value; storages are for one type. Empty: all have the same."""
    scratch: Mapping[int, int] = field(default_factory=dict[int, int])
    """The bytes that an option takes while it runs, by id."""
    packed: Mapping[int, int] = field(default_factory=dict[int, int])
    """The bytes that an option in the plan holds all the time, by id."""
    views: frozenset[int] = frozenset()
    """The ids of options that return their operand: their values are views."""
    weights: int = 0
    """The bytes that every plan holds all the time."""
    page: int = 1
    """The allocator rounds each storage up to a multiple of this."""

    def kind(self, node: int) -> str:
        """The element type of a value."""
        return self.kinds[node] if self.kinds else ""


def least_bytes(problem: Problem, footprint: Footprint) -> int:
    """The bytes that every plan holds at its end: the weights, and the results that cannot be views."""
    may_be_view = problem.free
    for option in problem.options:
        if option.id in footprint.views:
            may_be_view |= option.inside
    kept = problem.wanted & ~may_be_view
    return footprint.weights + sum(_rounded(footprint, footprint.sizes[node]) for node in members(kept))


def curve_of(problem: Problem, footprint: Footprint, plan: Solution) -> tuple[int, ...]:
    """For each kernel of a plan, in order, the bytes that are held while it runs."""
    held = footprint.weights + sum(footprint.packed.get(option.id, 0) for option in plan.chosen)
    values = _Values(problem, footprint, plan.chosen, plan.left_behind)
    live = [held + footprint.scratch.get(option.id, 0) for option in plan.chosen]
    for first, last, nbytes in values.storages():
        for turn in range(first, last + 1):
            live[turn] += _rounded(footprint, nbytes)
    return tuple(live)


def peak_of(problem: Problem, footprint: Footprint, plan: Solution) -> int:
    """The most bytes that a plan holds."""
    return max(curve_of(problem, footprint, plan), default=least_bytes(problem, footprint))


def live_at(problem: Problem, footprint: Footprint, plan: Solution, turns: Sequence[int]) -> IndexSet:
    """The values that a plan holds while one of its kernels ``turns`` runs; the numbers ascend."""
    values = _Values(problem, footprint, plan.chosen, plan.left_behind)
    return index_set(
        node
        for node, first in values.made.items()
        if bisect_left(turns, first) < bisect_right(turns, values.last[node])
    )


def _rounded(footprint: Footprint, nbytes: int) -> int:
    return -(-nbytes // footprint.page) * footprint.page


@dataclass(slots=True)
class _OpenStorage:
    number: int
    nbytes: int
    first: int
    last: int


class _Values:
    """The lifetimes of the values that a plan writes, and the storages that they get."""

    def __init__(
        self, problem: Problem, footprint: Footprint, chosen: Sequence[Option], left_behind: IndexSet
    ):
        self._footprint = footprint
        self._turns = len(chosen)
        self.made: dict[int, int] = {}
        """For each value that takes memory, the kernel at which it is made."""
        self.last: dict[int, int] = {}
        """The last kernel that reads it."""
        behind: dict[int, frozenset[int]] = {}
        comes: dict[int, int] = {}
        views = {node for node, nbytes in enumerate(footprint.sizes) if not nbytes}
        for turn, option in enumerate(chosen):
            for node in members(problem.outputs(option)):
                comes[node] = turn
                if option.id in footprint.views:
                    views.add(node)
        for node in members(left_behind):
            comes[node] = max((comes.get(source, 0) for source in problem.sources[node]), default=0)
        for node in sorted(comes):
            if node not in views:
                behind[node] = frozenset((node,))
                self.made[node] = self.last[node] = comes[node]
            else:
                behind[node] = _union(behind.get(source) for source in problem.sources[node])
        self._results = _union(behind.get(node) for node in members(problem.wanted))
        for node in members(left_behind):
            if node not in views:
                self._read(_union(behind.get(source) for source in problem.sources[node]), comes[node])
        for turn, option in enumerate(chosen):
            self._read(_union(behind.get(node) for node in members(problem.inputs(option.inside))), turn)
        for node in self._results:
            self.last[node] = max(self._turns - 1, 0)

    def _read(self, values: Iterable[int], turn: int) -> None:
        for node in values:
            self.last[node] = max(self.last[node], turn)

    def storages(self) -> list[tuple[int, int, int]]:
        """For each storage its first and last kernel, and its bytes."""
        sizes, pools = self._footprint.sizes, dict[str, list[tuple[int, int]]]()
        found: list[_OpenStorage] = []
        users: dict[int, int] = {}
        dying: dict[int, list[int]] = {}
        begun: dict[int, list[int]] = {}
        for node, turn in sorted(self.made.items(), key=lambda item: (item[1], item[0])):
            begun.setdefault(turn, []).append(node)
            if node not in self._results:
                dying.setdefault(self.last[node], []).append(node)
        for turn in range(self._turns):
            for node in begun.get(turn, ()):
                if node in self._results:
                    found.append(_OpenStorage(len(found), sizes[node], turn, self._turns - 1))
                    continue
                pool = pools.setdefault(self._footprint.kind(node), [])
                number = _taken(pool, found, sizes[node])
                if number is None:
                    number = len(found)
                    found.append(_OpenStorage(number, sizes[node], turn, turn))
                users[node] = number
            for node in dying.get(turn, ()):
                storage = found[users[node]]
                storage.last = max(storage.last, turn)
                insort(
                    pools[self._footprint.kind(node)],
                    (storage.nbytes, storage.number),
                    key=lambda each: each[0],
                )
        return [(each.first, each.last, each.nbytes) for each in found]


def _taken(pool: list[tuple[int, int]], storages: Sequence[_OpenStorage], nbytes: int) -> int | None:
    """The storage of ``pool`` that a value gets, which grows if it is too small; None: it gets a new one."""
    low = bisect_left(pool, nbytes // _RANGE, key=lambda each: each[0])
    fits = bisect_left(pool, nbytes, key=lambda each: each[0])
    if fits < len(pool) and pool[fits][0] <= nbytes * _RANGE:
        return pool.pop(fits)[1]
    if fits > low:
        number = pool.pop(fits - 1)[1]
        storages[number].nbytes = nbytes
        return number
    return None


def _union(sets: Iterable[frozenset[int] | None]) -> frozenset[int]:
    return frozenset[int]().union(*(each for each in sets if each))
