"""The states of the exact search, in layers, and the moves between them.

A plan is built from the results upwards. A state has the values that are wanted and not made yet (the live values). The
one with the largest index is made next: by an option whose largest output it is, or it is left behind. The inputs of
that move become wanted. A layer has the states with the same next value, and each move leads to a lower layer.

The cost of completing a plan depends only on the state. So of all ways to a state only the cheapest is kept (Bellman's
principle of optimality). The number of states is exponential only in the number of live values, which the post-dfs
order of nodes keeps small.

:mod:`.spaces` and :mod:`.general_space` have two kinds of states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..index_set import IndexSet, members
from .plans import is_usable
from .problem import Option, Problem

DONE = -1
"""The layer of the state in which no value is wanted."""

State = Any
"""A value that only its space can read. It is hashable, and states of one layer can be compared for equality."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A way to make the values ``outputs``: an option, or a node that is left behind, with ``option`` None."""

    option: Option | None
    inside: IndexSet
    outputs: IndexSet
    inputs: IndexSet
    top: int
    """The largest output."""
    seconds: float
    potential: float
    """The sum of the potentials inside, which the lower bound of the remaining cost decreases by."""


class Successor(NamedTuple):
    """The result of a move: the next layer and the state in it, and the cost of the move with its transitions."""

    layer: int
    state: State
    seconds: float
    move: Move


class Space(Protocol):
    """A state space: the states of a problem, in layers by the value that is made next."""

    work: int
    """How many times as long a state takes as one of the smallest space, about."""

    def start(self) -> tuple[int, State]:
        """The layer and the state in which all results are wanted."""
        ...

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        """All moves from a state, in a fixed order."""
        ...


def cheapest_of_equals(problem: Problem) -> dict[int, Option]:
    """For each usable option, by id, the cheapest option with the same effect."""
    charged = problem.charged_sides
    best: dict[tuple[IndexSet, IndexSet, tuple[str, ...]], Option] = {}
    usable = [option for option in sorted(problem.options, key=lambda o: o.id) if is_usable(problem, option)]

    def effect(option: Option) -> tuple[IndexSet, IndexSet, tuple[str, ...]]:
        sides = tuple(side for side in option.sides if side in charged)
        return option.inside, problem.outputs(option), sides

    for option in usable:
        known = best.get(effect(option))
        if known is None or problem.cost(option) < problem.cost(known):
            best[effect(option)] = option
    return {option.id: best[effect(option)] for option in usable}


def moves_of(problem: Problem, potentials: Sequence[float], every: bool = False) -> list[list[Move]]:
    """For each value, the moves of which it is the largest output: with the cheapest option of each effect, or with
    ``every`` usable one."""
    made: list[list[Move]] = [[] for _ in problem.sources]
    equals = cheapest_of_equals(problem)
    usable = (option for option in problem.options if option.id in equals)
    for option in usable if every else dict.fromkeys(equals.values()):
        outputs = problem.outputs(option)
        made[outputs.bit_length() - 1].append(
            Move(
                option=option,
                inside=option.inside,
                outputs=outputs,
                inputs=problem.inputs(option.inside),
                top=outputs.bit_length() - 1,
                seconds=problem.cost(option),
                potential=sum(potentials[index] for index in members(option.inside)),
            )
        )
    for index in members(problem.free):
        here = 1 << index
        made[index].append(Move(None, here, here, problem.inputs(here), index, 0.0, potentials[index]))
    return made
