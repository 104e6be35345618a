"""The smallest state space that is right for a problem.

While every option writes one value the wanted set is the whole state (:class:`PlainSpace`): kernels in the order
of their outputs cannot wait for each other, and without hidden nodes no two that are both wanted overlap. Options that
write several values, and transitions, need more (:class:`.general_space.GeneralSpace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..index_set import IndexSet, members, size
from .general_space import GeneralSpace
from .problem import Problem
from .states import DONE, Move, Space, State, Successor, moves_of


def space_of(problem: Problem, potentials: Sequence[float]) -> Space:
    """The smallest space that is right for ``problem``."""
    moves = moves_of(problem, potentials)
    single = all(size(move.outputs) == 1 for made in moves for move in made)
    if single and not any(problem.transitions.values()):
        return PlainSpace(problem, moves)
    return GeneralSpace(problem, moves)


class PlainSpace:
    """States of problems whose options write one value each.

    A state is an int relative to its layer, bit ``k`` for node ``layer - k``: graphs are deep and narrow, so it has
    few bits however many nodes there are.
    """

    def __init__(self, problem: Problem, moves: list[list[Move]]):
        self._wanted = problem.wanted
        self._moves = [
            [(_relative(move.inputs, move.top), move.seconds, move) for move in made] for made in moves
        ]

    def start(self) -> tuple[int, State]:
        top = self._wanted.bit_length() - 1
        return top, _relative(self._wanted, top)

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        rest = state ^ 1
        for inputs, seconds, move in self._moves[layer]:
            wanted = rest | inputs
            if not wanted:
                yield Successor(DONE, 0, seconds, move)
                continue
            passed = (wanted & -wanted).bit_length() - 1
            yield Successor(layer - passed, wanted >> passed, seconds, move)


def _relative(indexes: IndexSet, top: int) -> int:
    result = 0
    for index in members(indexes):
        result |= 1 << (top - index)
    return result
