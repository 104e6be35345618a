"""A proof by enumeration: all plans that could be cheaper than a bound are tried, and none is.

Where a linear program proves too little, the checker walks through the partial plans itself, from the last node to the
first. At each value that is wanted it tries every way to make it: an option whose last node it is, or to leave it
behind. Partial plans that want the same values can be completed in the same ways, so only the cheapest is kept
(dynamic programming). Partial plans that cannot become cheaper than the bound are dropped.

*What is relaxed.* Nodes may be computed twice, whether the problem allows it or not, and kernels need not have an
order. So the walk finds each valid plan at its cost, and maybe others that are cheaper: the bound still holds.

*Transitions.* A state has, for each wanted value, the sides that read it: backends and devices. All readers of a value
come after it, so they are known when its writer is chosen, and then the transitions are paid. An option that writes
several values is chosen at its last one. Its other values are written ahead, and the state has their writers.

*What is dropped.* Let the potentials inside each option add up to at most its cost (:mod:`.proof`, without readings).
What is left of their sum after the options chosen so far is a lower bound of the rest. So are the negative costs of all
options together.

This file shares no code with the searches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from ..index_set import IndexSet, members
from .problem import Option, Problem
from .proof import BoundProof, Conditions, transition, why_no_proof

MOST_STATES = 400_000
"""The most partial plans that are examined; more take too long to check."""

_MARGIN = 5e-10
"""A plan counts as cheaper if it is cheaper by this part of the bound; sums of costs are rounded by less."""


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The claim that no plan is cheaper, which the checker verifies by its own enumeration, as plain data."""

    seconds: float
    """The bound."""
    potentials: tuple[float, ...]
    """Potentials of a :class:`.proof.BoundProof` without readings, which shorten the walk."""


def why_not_enumerated(problem: Problem, claim: Enumeration) -> str | None:
    """Why the claim is wrong or cannot be checked, or None."""
    reason = why_no_proof(problem, BoundProof(claim.potentials)) or _why_imprecise(claim)
    if reason is not None:
        return reason
    found = least_seconds(problem, claim)
    if found is None:
        return f"more than {MOST_STATES} partial plans may be cheaper than {claim.seconds} s"
    if found < claim.seconds * (1 - 2 * _MARGIN):
        return f"a plan may cost {found} s, less than {claim.seconds} s"
    return None


def _why_imprecise(claim: Enumeration) -> str | None:
    """Why the walk cannot trust its sums of potentials, or None.

    On the way to a plan each potential is added and subtracted at most twice. A step rounds by at most one part in
    2**53 of the sum of their absolute values.
    """
    rounded = len(claim.potentials) * fsum(map(abs, claim.potentials)) * 2.0**-50
    if rounded <= _MARGIN * abs(claim.seconds):
        return None
    return f"its potentials are too large to be added: the sums are rounded by up to {rounded} s"


def least_seconds(problem: Problem, claim: Enumeration, most: int = MOST_STATES) -> float | None:
    """The cost of the cheapest plan of the relaxed problem, or the bound if none is cheaper; None after ``most``
    partial plans."""
    return _Walk(problem, claim).run(most)


class _State(NamedTuple):
    wanted: IndexSet
    readers: tuple[tuple[int, int], ...]
    """For wanted values the sides that read them and may be charged for it, as bits; by value."""
    ahead: tuple[tuple[int, int], ...]
    """For values that are written ahead the sides of the option that writes them, as bits; by value."""


class _Way(NamedTuple):
    """An option, chosen at its last node."""

    seconds: float
    potential: float
    sides: int
    """Its backend and device, as bits."""
    inputs: tuple[int, ...]
    wants: IndexSet
    """The inputs as a set."""
    others: tuple[int, ...]
    """The other values that it writes."""


class _Walk:
    def __init__(self, problem: Problem, claim: Enumeration) -> None:
        self._problem = problem
        self._limit = claim.seconds * (1 - _MARGIN)
        self._potentials = claim.potentials
        conditions = Conditions(problem)
        possible = [option for option in problem.options if conditions.is_possible(option)]
        names = list(dict.fromkeys(side for option in possible for side in option.sides))
        self._number = {name: number for number, name in enumerate(names)}
        self._wanted = sum(1 << value for value in range(len(problem.sources)) if conditions.is_wanted(value))
        self._ways: list[list[_Way]] = [[] for _ in problem.sources]
        self._paid: list[list[list[float]]] = []
        """By value, writer and reader: the seconds of the transition."""
        for value in range(len(problem.sources)):
            self._paid.append([[transition(problem, a, b, value) for b in names] for a in names])
        self._charged = [
            sum(1 << reader for reader in range(len(names)) if any(row[reader] > 0.0 for row in rows))
            for rows in self._paid
        ]
        for option in possible:
            self._add(option, conditions.writes(option))
        self._least = fsum(min(0.0, way.seconds) for ways in self._ways for way in ways)
        """What the rest costs at least, whichever options are in it."""

    def _add(self, option: Option, writes: set[int]) -> None:
        problem, inside = self._problem, list(members(option.inside))
        last = inside[-1]
        reads = {source for node in inside for source in problem.sources[node]} - set(inside)
        self._ways[last].append(
            _Way(
                option.seconds + problem.launches.get(option.backend, problem.launch_seconds),
                sum(self._potentials[node] for node in inside),
                sum(1 << self._number[side] for side in option.sides),
                tuple(sorted(reads)),
                sum(1 << node for node in reads),
                tuple(sorted(writes - {last})),
            )
        )

    def run(self, most: int) -> float | None:
        start = _State(self._wanted, (), ())
        best, looked_at = self._limit, 0
        layers: dict[int, dict[_State, tuple[float, float]]] = {}
        layers[self._wanted.bit_length() - 1] = {start: (0.0, sum(self._potentials))}
        for value in range(len(self._problem.sources) - 1, -1, -1):
            states = layers.pop(value, {})
            looked_at += len(states)
            if looked_at > most:
                return None
            for state, (spent, rest) in states.items():
                for following, seconds, potential in self._following(value, state):
                    cost, left = spent + seconds, rest - potential
                    if cost + max(self._least, left) >= best:
                        continue
                    if not following.wanted:
                        best = min(best, cost)
                        continue
                    found = layers.setdefault(following.wanted.bit_length() - 1, {})
                    known = found.get(following)
                    if known is None or cost < known[0]:
                        found[following] = (cost, left)
        return best

    def _following(self, value: int, state: _State) -> list[tuple[_State, float, float]]:
        """The states after each way to make ``value``, with the seconds and the potentials that they take."""
        readers, ahead = dict(state.readers), dict(state.ahead)
        mine, wanted = readers.pop(value, 0), state.wanted & ~(1 << value)
        found: list[tuple[_State, float, float]] = []
        if value in ahead:
            writer = ahead.pop(value)
            if _is_wanted_later(wanted, ahead):
                found.append((_state(wanted, readers, ahead), self._pay(value, writer, mine), 0.0))
            return found
        for way in self._ways[value]:
            after = ahead
            if way.others:
                if any(other in ahead for other in way.others):
                    continue  # a value would be written twice
                after = {**ahead, **dict.fromkeys(way.others, way.sides)}
            if not _is_wanted_later(wanted | way.wants, after):
                continue
            more = self._with_reader(readers, way.inputs, way.sides)
            paid = way.seconds + self._pay(value, way.sides, mine)
            found.append((_state(wanted | way.wants, more, after), paid, way.potential))
        if self._problem.free >> value & 1:
            sources = self._problem.sources[value]
            wants = wanted | sum(1 << source for source in sources)
            if _is_wanted_later(wants, ahead):
                more = self._with_reader(readers, sources, mine)
                found.append((_state(wants, more, ahead), 0.0, self._potentials[value]))
        return found

    def _with_reader(self, readers: dict[int, int], values: Sequence[int], sides: int) -> Mapping[int, int]:
        found = readers
        for value in values:
            if charged := sides & self._charged[value]:
                found = {**found, value: found.get(value, 0) | charged}
        return found

    def _pay(self, value: int, writers: int, readers: int) -> float:
        if not readers:
            return 0.0
        rows = [self._paid[value][writer] for writer in members(writers)]
        return sum(row[reader] for row in rows for reader in members(readers))


def _state(wanted: IndexSet, readers: Mapping[int, int], ahead: Mapping[int, int]) -> _State:
    return _State(wanted, tuple(sorted(readers.items())), tuple(sorted(ahead.items())))


def _is_wanted_later(wanted: IndexSet, ahead: Mapping[int, int]) -> bool:
    """Whether each value that is written ahead is wanted, or may still be: later options read smaller values only."""
    last = wanted.bit_length() - 1
    return all(value <= last for value in ahead)
