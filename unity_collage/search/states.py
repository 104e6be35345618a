"""What the exact search walks over: states in layers, and the moves between them.

A plan is built from the results upwards. A state holds the values that are wanted and not made yet; the one with the
largest index is made next, by an option whose largest output it is, or left behind. Its inputs are then wanted in turn.
What a state costs from here on depends on nothing else, so equal states merge, whatever led to them.

Two kinds of states are in :mod:`.spaces` and :mod:`.general_space`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..index_set import IndexSet, members
from .plans import is_usable
from .problem import Option, Problem

DONE = -1
"""The layer of the state that wants nothing."""

State = Any
"""Opaque but to its space; hashable, and comparable for equality within one layer."""


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One way to make the values ``outputs``; ``option`` is None for a node that is left behind."""

    option: Option | None
    inside: IndexSet
    outputs: IndexSet
    inputs: IndexSet
    top: int
    """The largest output."""
    seconds: float
    potential: float
    """What the lower bound falls by: the potentials of the inside."""


class Successor(NamedTuple):
    """Where a move leads: the layer and the state in it, and what it costs with its transitions."""

    layer: int
    state: State
    seconds: float
    move: Move


class Space(Protocol):
    """The states of a problem, in layers by the value that is made next."""

    def start(self) -> tuple[int, State]:
        """Layer and state in which all results are wanted."""
        ...

    def successors(self, layer: int, state: State) -> Iterator[Successor]:
        """All moves from a state, in a fixed order."""
        ...


def cheapest_of_equals(problem: Problem) -> dict[int, Option]:
    """For each option that can be in a plan, the cheapest one with the same effect, by id."""
    tagged = any(problem.transitions.values())
    best: dict[tuple[IndexSet, IndexSet, str], Option] = {}
    usable = [option for option in sorted(problem.options, key=lambda o: o.id) if is_usable(problem, option)]

    def effect(option: Option) -> tuple[IndexSet, IndexSet, str]:
        return option.inside, problem.outputs(option), option.backend if tagged else ""

    for option in usable:
        known = best.get(effect(option))
        if known is None or problem.cost(option) < problem.cost(known):
            best[effect(option)] = option
    return {option.id: best[effect(option)] for option in usable}


def moves_of(problem: Problem, potentials: Sequence[float]) -> list[list[Move]]:
    """The moves that make each value last of their outputs."""
    made: list[list[Move]] = [[] for _ in problem.sources]
    for option in dict.fromkeys(cheapest_of_equals(problem).values()):
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
