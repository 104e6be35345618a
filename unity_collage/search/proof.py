"""A proof that no valid plan costs less than a bound, and an independent check of it.

A proof is a feasible solution of the dual of a linear program; it is checked by adding numbers. *Potentials* are
seconds for each node. The cost of an option pays for the potentials inside it. Each plan covers each node, so a plan
costs at least the sum of all potentials.

*Readings* add the cost of transitions, and the cost of writing values, not only computing them. A reading is seconds
for three things: a value, the side that reads it (a backend, a device, or any), and the last node of the option that
reads it. It relieves that option at the expense of the one that writes the value. Let R be the sum of the readings of a
value by a side. Let T be the transition to the side from the sides of the option that writes the value: 0 from itself,
and for readings by any. Then the option that writes the value is charged what R is above T. The conditions are, for
each option that can be in a plan:

    potentials inside it - its readings + what it is charged for the values that it writes <= its cost and launch

The caller reads the results like an option after the last node that costs nothing.

*Why a plan costs at least the sum of the potentials and of the caller's readings.* Sum the conditions over its
options. An option writes its last node, and each value is written once. So no two options of a plan have one last
node. Hence the plan uses at most R of the readings of a value by a side. If it uses any, the value is written, the plan
pays T, and the writer is charged the rest. So all readings except the caller's are paid for, and the potentials
remain: each node is in an option or left behind. A node that may be left behind has no positive potential. Where
nodes may be computed twice, none has a negative one.

Only values that cannot be left behind have readings, since others may have no writer. A node that may be left behind
and is in no option is a view in every plan: its readers read its operands.

This file shares no code with the searches. It reads only the fields of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import fsum, isfinite

from ..index_set import EMPTY, members
from .problem import Option, Problem

Reading = tuple[int, str, int]
"""A value, the side that reads it (``ANY``: whichever), and the last node of the option that reads it; the caller's
is the number of nodes."""

ANY = ""


@dataclass(frozen=True, slots=True)
class BoundProof:
    """A proof of a lower bound of the cost of every valid plan, as plain data."""

    potentials: tuple[float, ...]
    """Seconds for each node."""
    readings: tuple[tuple[int, str, int, float], ...] = ()
    """For each :data:`Reading` its seconds."""

    @property
    def seconds(self) -> float:
        """The bound that it proves."""
        caller = len(self.potentials)
        return fsum([*self.potentials, *(seconds for _, _, last, seconds in self.readings if last == caller)])


def why_no_proof(problem: Problem, proof: BoundProof) -> str | None:
    """The first condition that ``proof`` violates, or None. ``fsum`` rounds only once, so its sign is exact."""
    if len(proof.potentials) != len(problem.sources):
        return f"{len(proof.potentials)} potentials for {len(problem.sources)} nodes"
    if not all(map(isfinite, (*proof.potentials, *(seconds for _, _, _, seconds in proof.readings)))):
        return "a potential or a reading is not a finite number"
    for node, potential in enumerate(proof.potentials):
        if problem.free >> node & 1 and not potential <= 0:
            return f"node {node} is free, its potential is {potential}"
        if problem.redundant and not potential >= 0:
            return f"node {node} may be computed twice, its potential is {potential}"
    conditions = Conditions(problem)
    if reason := why_wrong_transitions(problem):
        return reason
    for value, backend, last, seconds in proof.readings:
        if not seconds >= 0:
            return f"a reading of node {value} by {backend} is {seconds}"
        if not 0 <= value < len(problem.sources) or problem.free >> value & 1:
            return f"node {value} may be left behind, and has readings"
        if last == len(problem.sources) and (backend != ANY or not conditions.is_wanted(value)):
            return f"the caller does not read node {value}"
    readings = {(value, backend, last): seconds for value, backend, last, seconds in proof.readings}
    if len(readings) != len(proof.readings):
        return "a reading is given twice"
    sums = sums_of(readings)
    for option in filter(conditions.is_possible, problem.options):
        over = conditions.excess(option, proof.potentials, readings, sums)
        if not over <= 0:
            return f"option {option.id} costs {over} s less than the proof says"
    return None


def why_wrong_transitions(problem: Problem) -> str | None:
    """Why the transitions of a problem are not as the definition says, or None."""
    for of_pair in problem.transitions.values():
        if not all(seconds >= 0 for seconds in (of_pair if isinstance(of_pair, tuple) else (of_pair,))):
            return "a transition costs less than nothing"
    return None


def transition(problem: Problem, writer: str, reader: str, value: int) -> float:
    """The seconds of a transition, which the problem has for a pair of sides, or for each value of a pair."""
    if writer == reader:
        return 0.0
    of_pair = problem.transitions.get((writer, reader), 0.0)
    return of_pair[value] if isinstance(of_pair, tuple) else of_pair


def sums_of(readings: Mapping[Reading, float]) -> dict[int, dict[str, list[float]]]:
    """The readings of each value by each side."""
    found: dict[int, dict[str, list[float]]] = {}
    for (value, backend, _), seconds in readings.items():
        found.setdefault(value, {}).setdefault(backend, []).append(seconds)
    return found


class Conditions:
    """What the conditions of a proof say about the options of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        inside = 0
        for option in problem.options:
            inside |= option.inside
        self._readers: list[set[int]] = [set() for _ in problem.sources]
        self._origins: list[frozenset[int]] = []
        """For each node the values that its readers read, if they are the same in every plan."""
        for node, sources in enumerate(problem.sources):
            for source in sources:
                self._readers[source].add(node)
            if not problem.free >> node & 1:
                self._origins.append(frozenset({node}))
            elif inside >> node & 1:
                self._origins.append(frozenset())
            else:
                self._origins.append(frozenset(o for source in sources for o in self._origins[source]))

    def reads(self, option: Option) -> set[int]:
        """The values that an option reads, with readings that relieve it."""
        inside = set(members(option.inside))
        sources = {source for node in inside for source in self._problem.sources[node]} - inside
        return {origin for source in sources for origin in self._origins[source]} - inside

    def writes(self, option: Option) -> set[int]:
        """The values that an option writes."""
        inside, results = set(members(option.inside)), self._problem.results
        border = {n for n in inside if not self._readers[n] or self._readers[n] - inside or results >> n & 1}
        return border - set(members(option.hidden))

    def is_wanted(self, value: int) -> bool:
        """Whether the caller reads a value: a result, or a value that no node reads."""
        return not self._readers[value] or bool(self._problem.results >> value & 1)

    def is_possible(self, option: Option) -> bool:
        """Whether an option can be in a plan: it writes its last node, and no node is computed twice for nothing."""
        if not self._problem.redundant and self.writes(option) != self.writes(replace(option, hidden=EMPTY)):
            return False
        return option.inside.bit_length() - 1 in self.writes(option)

    def excess(
        self,
        option: Option,
        potentials: tuple[float, ...] | list[float],
        readings: Mapping[Reading, float],
        sums: Mapping[int, Mapping[str, list[float]]],
    ) -> float:
        """By how many seconds an option costs less than its condition asks; at most 0 where the condition holds."""
        problem, last = self._problem, option.inside.bit_length() - 1
        terms = [potentials[node] for node in members(option.inside)]
        for value in self.reads(option):
            terms += [-readings.get((value, side, last), 0.0) for side in {ANY, *option.sides}]
        for value in self.writes(option):
            for reader, given in sums.get(value, {}).items():
                paid = [-transition(problem, side, reader, value) for side in option.sides if reader != ANY]
                charged = [*given, *paid]
                if fsum(charged) > 0:
                    terms += charged
        launch = problem.launches.get(option.backend, problem.launch_seconds)
        return fsum([*terms, -option.seconds, -launch])
