"""The smallest state space that is correct for a problem.

If every option writes one value, the set of wanted values is the whole state (:class:`PlainSpace`), for two reasons.
Kernels in the order of their outputs can run, since a kernel reads only values of smaller index than its output. And
without hidden nodes, two kernels do not overlap if both outputs are wanted: every path out of a kernel passes through
its output. Options that write several values, and transitions, need a larger state
(:class:`.general_space.GeneralSpace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..index_set import IndexSet, members, size
from .general_space import GeneralSpace
from .problem import Problem
from .states import DONE, Move, Space, State, Successor, moves_of


def space_of(problem: Problem, potentials: Sequence[float], every: bool = False) -> Space:
    """The smallest state space that is correct for ``problem``; with ``every`` option, or without equal ones."""
    moves = moves_of(problem, potentials, every)
    single = all(size(move.outputs) == 1 for made in moves for move in made)
    if single and not problem.has_transitions:
        return PlainSpace(problem, moves)
    return GeneralSpace(problem, moves)


class PlainSpace:
    """The state space of problems with options that write one value each.

    A state is an int relative to its layer, with bit ``k`` for node ``layer - k``. Graphs are deep and narrow, so the
    int stays small for any number of nodes.
    """

    work = 1

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
