"""Pairs the kernels of two plans that compute the same part of the model, by the names of the model's values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from .plan import Plan, PlannedKernel

Kernels = tuple[PlannedKernel, ...]
Group = tuple[Kernels, Kernels]
"""Kernels of the first plan and of the second; one of them may be empty."""

_MADE_UP = re.compile(r"(lv|gv)\d*(_\d+)*")
"""The names that Relax gives by counting. Two plans may give one name to different values."""

_Place = tuple[int, int]
"""0 or 1 for the plan, and the number of the kernel in it."""


def paired(first: Plan, second: Plan) -> list[Group]:
    """The kernels of both plans in groups that compute the same values, in the order of the first plan.

    First, kernels with the same values form a group. The others are in a group if they have a value in common.
    Names that Relax has counted are compared only where both plans have the same names. Kernels without another name
    are matched by their order and operators.
    """
    if _is_whole(first) != _is_whole(second):
        return [(first.kernels, second.kernels)]
    sides = first.kernels, second.kernels
    keys = _keys(first, second)
    groups = _Groups(sides)
    groups.join_equal(keys)
    groups.join_overlapping(keys)
    groups.join_in_order()
    return groups.found()


def own_names(kernel: PlannedKernel) -> frozenset[str]:
    """The names of a kernel's values that the model gives; all of them where it gives none."""
    return frozenset(name for name in kernel.bindings if not _MADE_UP.fullmatch(name)) or frozenset(
        kernel.bindings
    )


def _is_whole(plan: Plan) -> bool:
    """Whether one kernel is the whole function, as that of another runtime is."""
    return len(plan.kernels) == 1 and not plan.left_behind


def _keys(first: Plan, second: Plan) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """For each kernel of both plans, the names that it can be found by."""
    all_names = [{*plan.left_behind, *_names(plan.kernels)} for plan in (first, second)]
    trusts = all_names[0] == all_names[1]
    found = [
        [
            tuple(name for name in kernel.bindings if trusts or not _MADE_UP.fullmatch(name))
            for kernel in plan.kernels
        ]
        for plan in (first, second)
    ]
    return found[0], found[1]


def _names(kernels: Iterable[PlannedKernel]) -> Iterator[str]:
    for kernel in kernels:
        yield from kernel.bindings


class _Groups:
    """Kernels that are joined step by step (union-find)."""

    def __init__(self, sides: tuple[Kernels, Kernels]) -> None:
        self._sides = sides
        self._places = [(side, number) for side in (0, 1) for number in range(len(sides[side]))]
        self._above: dict[_Place, _Place] = {place: place for place in self._places}
        self._sizes = dict.fromkeys(self._places, 1)

    def join_equal(self, keys: Sequence[Sequence[tuple[str, ...]]]) -> None:
        """Join kernels that have the same names."""
        known: dict[frozenset[str], list[int]] = defaultdict(list)
        for number, key in enumerate(keys[0]):
            known[frozenset(key)].append(number)
        for number, key in enumerate(keys[1]):
            if key and known[frozenset(key)]:
                self._join((0, known[frozenset(key)].pop(0)), (1, number))

    def join_overlapping(self, keys: Sequence[Sequence[tuple[str, ...]]]) -> None:
        """Join kernels that are alone and have a name in common.

        A value that several kernels compute again must not join all of them: such a name counts only between kernels
        that have no other one.
        """
        left = [[n for n in range(len(keys[side])) if self._is_alone((side, n))] for side in (0, 1)]
        holders = [_holders(keys[side], left[side]) for side in (0, 1)]
        shared = [(name, own, holders[1][name]) for name, own in holders[0].items() if name in holders[1]]
        for _, own, others in shared:
            if len(own) == len(others) == 1:
                self._join((0, own[0]), (1, others[0]))
        for _, own, others in shared:
            alone = [
                [(side, n) for n in numbers if self._is_alone((side, n))]
                for side, numbers in ((0, own), (1, others))
            ]
            for pair in zip(*alone, strict=False):
                self._join(*pair)

    def join_in_order(self) -> None:
        """Join kernels that are alone and have the same operators, between the same others."""
        texts = [
            [self._mark((side, number), kernel) for number, kernel in enumerate(self._sides[side])]
            for side in (0, 1)
        ]
        matcher = SequenceMatcher(None, texts[0], texts[1], autojunk=False)
        for block in matcher.get_matching_blocks():
            for offset in range(block.size):
                pair = (0, block.a + offset), (1, block.b + offset)
                if all(map(self._is_alone, pair)):
                    self._join(*pair)

    def _mark(self, place: _Place, kernel: PlannedKernel) -> str:
        """The key of a kernel for comparisons: its group, or its operators."""
        return kernel.label if self._is_alone(place) else f"group {self._root(place)}"

    def found(self) -> list[Group]:
        """The groups; those of the second plan alone come behind the group of the kernel that runs before."""
        members: dict[_Place, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side, number in self._places:
            members[self._root((side, number))][side].append(number)
        where = {number: (one[0][0], -1) for one in members.values() if one[0] for number in one[1]}
        before = (-1, -1)
        for number in range(len(self._sides[1])):
            before = where.setdefault(number, (before[0], number))
        ordered = sorted(members.values(), key=lambda one: (one[0][0], -1) if one[0] else where[one[1][0]])
        return [(self._kernels(0, one[0]), self._kernels(1, one[1])) for one in ordered]

    def _kernels(self, side: int, numbers: Sequence[int]) -> Kernels:
        return tuple(self._sides[side][number] for number in numbers)

    def _is_alone(self, place: _Place) -> bool:
        return self._sizes[self._root(place)] == 1

    def _root(self, place: _Place) -> _Place:
        while self._above[place] != place:
            place = self._above[place]
        return place

    def _join(self, one: _Place, other: _Place) -> None:
        above, below = self._root(one), self._root(other)
        if above != below:
            self._above[below] = above
            self._sizes[above] += self._sizes[below]


def _holders(keys: Sequence[tuple[str, ...]], numbers: Iterable[int]) -> dict[str, list[int]]:
    """The kernels among ``numbers`` that have each name."""
    found: dict[str, list[int]] = defaultdict(list)
    for number in numbers:
        for name in dict.fromkeys(keys[number]):
            found[name].append(number)
    return found
