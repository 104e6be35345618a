"""Lower bounds that are easy to check: proofs from the duals of a linear program.

:mod:`.proof` says which conditions a proof must satisfy. The duals of a solver violate them by rounding errors, so its
numbers are lowered until the conditions hold exactly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf, nextafter

from ..index_set import members
from .linear import Model, Outcome, minimise
from .potentials import potentials_of
from .problem import Option, Problem
from .proof import ANY, BoundProof, Conditions, Reading, sums_of


def lp_potentials(problem: Problem, seconds: float = 10.0) -> tuple[float, ...]:
    """Potentials of a proof without readings. If the time ends, those of ``potentials_of``.

    Raises NoCover for a node that is in no option and must not be left behind.
    """
    quick = repaired(problem, potentials_of(problem))
    best = _from_duals(problem, _relaxation(problem, with_readings=False), seconds)
    return best.potentials if best is not None and best.seconds > quick.seconds else quick.potentials


def lp_proof(problem: Problem, seconds: float = 10.0) -> BoundProof:
    """The proof of the highest bound that linear programming gives, transitions included.

    If the time ends, a proof of a lower bound. Raises NoCover like :func:`lp_potentials`.
    """
    quick = repaired(problem, potentials_of(problem))
    best = _from_duals(problem, _relaxation(problem, with_readings=True), seconds)
    return best if best is not None and best.seconds > quick.seconds else quick


def lp_branch(
    problem: Problem, taken: Sequence[int], dear: float, seconds: float
) -> tuple[BoundProof, dict[int, float], dict[int, float]] | None:
    """A proof for the plans with the options ``taken``, by id, and the part of each option that the program takes.

    The second result is the cost that the proof has for each option taken (:mod:`.branches`). If no plan may exist, a
    node that is not covered costs ``dear`` seconds many times. None if the time was not enough.
    """
    deadline = time.monotonic() + seconds
    for penalty in (None, _MANY * max(dear, 1e-9)):
        relaxation = _relaxation(problem, with_readings=True)
        columns = {option.id: column for column, option in relaxation.options.items()}
        if not columns.keys() >= set(taken):
            return None
        rows = {id_: relaxation.model.row(1.0, [(columns[id_], 1.0)], 1.0) for id_ in taken}
        if penalty is not None:
            _forgive(relaxation, penalty)
        outcome = minimise(relaxation.model, max(0.01, deadline - time.monotonic()))
        if outcome.status == "optimal":
            # At least nothing, launch included: where nodes may be computed twice, no potential is below 0.
            charged = {
                option.id: max(option.seconds - outcome.duals[rows[option.id]], -problem.launch(option))
                for option in problem.options
                if option.id in rows
            }
            options = tuple(replace(o, seconds=charged.get(o.id, o.seconds)) for o in problem.options)
            proof = _proof_of(replace(problem, options=options), relaxation, outcome)
            return proof, charged, {id_: outcome.values[column] for id_, column in columns.items()}
    return None


_MANY = 16.0


def _forgive(relaxation: _Relaxation, penalty: float) -> None:
    """Let each row of a program be short, at a penalty."""
    model = relaxation.model
    for row in (*relaxation.nodes, *relaxation.readings.values()):
        lower, upper, terms = model.rows[row]
        if lower > -inf:
            model.rows[row] = (lower, upper, [*terms, (model.column(penalty, upper=inf), 1.0)])


@dataclass(slots=True)
class _Relaxation:
    """A linear program, and which of its rows have the duals of a proof."""

    model: Model
    nodes: list[int]
    """The row of each node."""
    options: dict[int, Option]
    """The options that can be in a plan, by column."""
    readings: dict[Reading, int] = field(default_factory=dict[Reading, int])
    """The row of each reading."""


def _relaxation(problem: Problem, with_readings: bool) -> _Relaxation:
    """The relaxation of covering each node, and of paying for transitions.

    The options that contain a node add up to one, or to at least one if nodes may be computed twice. For a free node
    there is no lower limit. There is a column for a value, a side that reads it, and the options that write it at one
    cost for this side. It says that the side reads what these write. It is at most as much as they write, and at
    least as much as options of the side with one last node read.
    """
    model = Model()
    holders: list[list[tuple[int, float]]] = [[] for _ in problem.sources]
    columns: dict[int, Option] = {}
    for option in filter(Conditions(problem).is_possible, problem.options):
        column = model.column(problem.cost(option), upper=inf)
        columns[column] = option
        for index in members(option.inside):
            holders[index].append((column, 1.0))
    rows: list[int] = []
    for index, terms in enumerate(holders):
        free, twice = problem.free >> index & 1, problem.redundant
        rows.append(model.row(-inf if free else 1.0, terms, inf if twice else 1.0))
    made = _Relaxation(model, rows, columns)
    if with_readings:
        _add_readings(problem, made, columns)
    return made


def _add_readings(problem: Problem, made: _Relaxation, columns: Mapping[int, Option]) -> None:
    conditions, model = Conditions(problem), made.model
    writers: dict[int, dict[tuple[str, ...], list[int]]] = {}
    readers: dict[int, dict[str, dict[int, list[int]]]] = {}
    for column, option in columns.items():
        last = option.inside.bit_length() - 1
        for value in conditions.writes(option):
            writers.setdefault(value, {}).setdefault(option.sides, []).append(column)
        for value in conditions.reads(option):
            for reader in {ANY, *option.sides}:
                of_reader = readers.setdefault(value, {}).setdefault(reader, {})
                of_reader.setdefault(last, []).append(column)
    for value in range(len(problem)):
        if problem.free >> value & 1:
            continue
        by_writer = writers.get(value, {})
        if problem.redundant:
            writing = [(column, 1.0) for written in by_writer.values() for column in written]
            for last, reading in readers.get(value, {}).get(ANY, {}).items():
                terms = [*writing, *((column, -1.0) for column in reading)]
                made.readings[value, ANY, last] = model.row(0.0, terms)
            if conditions.is_wanted(value):
                made.readings[value, ANY, len(problem)] = model.row(1.0, writing)
        for reader, by_last in readers.get(value, {}).items():
            if reader != ANY:
                _add_crossings(problem, made, (value, reader), by_writer, by_last)


def _add_crossings(
    problem: Problem,
    made: _Relaxation,
    crossing: tuple[int, str],
    writers: Mapping[tuple[str, ...], Sequence[int]],
    readers: Mapping[int, Sequence[int]],
) -> None:
    """Columns for the transitions of a value to the side that reads it, by what they cost.

    ``writers``: the columns of the options that write it, by sides. ``readers``: the columns of those that read it,
    by last node.
    """
    value, reader = crossing
    by_cost: dict[float, list[int]] = {}
    for sides, written in writers.items():
        by_cost.setdefault(problem.crossing(sides, reader, value), []).extend(written)
    if not any(by_cost):
        return
    model = made.model
    crossings = {seconds: model.column(seconds, upper=inf) for seconds in by_cost}
    for seconds, column in crossings.items():
        model.row(0.0, [(column, -1.0), *((writing, 1.0) for writing in by_cost[seconds])])
    for last, reading in readers.items():
        terms = [*((column, 1.0) for column in crossings.values()), *((column, -1.0) for column in reading)]
        made.readings[value, reader, last] = model.row(0.0, terms)


def _from_duals(problem: Problem, relaxation: _Relaxation, seconds: float) -> BoundProof | None:
    """The proof in the duals of the solved program; None if the time was not enough."""
    outcome = minimise(relaxation.model, seconds)
    return _proof_of(problem, relaxation, outcome) if outcome.status == "optimal" else None


def _proof_of(problem: Problem, relaxation: _Relaxation, outcome: Outcome) -> BoundProof:
    readings = {
        reading: outcome.duals[row] for reading, row in relaxation.readings.items() if outcome.duals[row] > 0
    }
    return repaired(problem, [outcome.duals[row] for row in relaxation.nodes], readings)


def repaired(
    problem: Problem, potentials: Sequence[float], readings: Mapping[Reading, float] | None = None
) -> BoundProof:
    """A proof with conditions that hold exactly, made by lowering numbers as little as possible.

    First potentials and the readings of the caller are lowered, which affects no other condition. Lowering another
    reading makes the condition of its reader stricter, so all conditions are checked again. If this does not end, the
    proof has no readings.
    """
    repair = _Repair(problem, potentials, readings or {})
    for _ in range(_MOST_PASSES):
        if repair.passes():
            return BoundProof(
                tuple(repair.potentials),
                tuple((*reading, given) for reading, given in repair.readings.items()),
            )
    return repaired(problem, potentials)


_MOST_PASSES = 20


class _Repair:
    def __init__(
        self, problem: Problem, potentials: Sequence[float], readings: Mapping[Reading, float]
    ) -> None:
        self._problem, self._conditions = problem, Conditions(problem)
        self._options = [o for o in problem.options if self._conditions.is_possible(o)]
        self.potentials, self.readings = list(potentials), dict(readings)
        self._sums = sums_of(readings)
        for index in range(len(problem)):
            if problem.free >> index & 1:
                self.potentials[index] = min(0.0, self.potentials[index])
            if problem.redundant:
                self.potentials[index] = max(0.0, self.potentials[index])

    def passes(self) -> bool:
        """Make every condition hold, one after the other; whether all hold at the end."""
        again = False
        for option in self._options:
            while (excess := self._excess(option)) > 0.0:
                again |= not self._lower(option, excess)
        return not again

    def _excess(self, option: Option) -> float:
        return self._conditions.excess(option, self.potentials, self.readings, self._sums)

    def _lower(self, option: Option, excess: float) -> bool:
        """Lower the largest number in the condition of ``option``; returns whether this affects no other condition."""
        inside = max(members(option.inside), key=lambda index: self.potentials[index])
        charged = [reading for reading in self._charged(option) if self.readings[reading] > 0.0]
        callers = [reading for reading in charged if reading[2] == len(self._problem)]
        if self.potentials[inside] > 0.0 or not charged:
            lowered = _lowered(self.potentials[inside], excess)
            self.potentials[inside] = max(0.0, lowered) if self._problem.redundant else lowered
            return True
        largest = max(callers or charged, key=lambda reading: self.readings[reading])
        self.readings[largest] = max(0.0, _lowered(self.readings[largest], excess))
        self._sums = sums_of(self.readings)
        return bool(callers)

    def _charged(self, option: Option) -> Iterator[Reading]:
        """The readings that ``option`` is charged for: those of a side that are more than its transition."""
        written = self._conditions.writes(option)
        for reading in self.readings:
            value, reader, _ = reading
            if value in written:
                paid = 0.0 if reader == ANY else self._problem.crossing(option.sides, reader, value)
                if fsum([*self._sums[value][reader], -paid]) > 0.0:
                    yield reading


def _lowered(number: float, excess: float) -> float:
    return min(number - excess, nextafter(number, -inf))
