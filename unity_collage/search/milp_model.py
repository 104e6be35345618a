"""The partitioning problem as an integer program, after the definition in ``problem``, but without the order of
kernels.

There is a column for each option (taken or not) and for each free node (left behind or not). If no node is computed
twice, the program is a *set partitioning problem*: each node is covered once, and the other conditions follow.
Otherwise each wanted value is written once, a taken option needs its inputs, and a written value needs a reader.

A transition is charged if an option of one side (a backend or a device) writes a value and one of another side reads
it. This product of two binary variables is linearised in the usual way: ``paid >= written + read - 1``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..index_set import EMPTY, IndexSet, members
from .linear import Model
from .plans import is_usable
from .problem import Option, Problem

Terms = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class PlanModel:
    """The program, and the meaning of its columns."""

    problem: Problem
    model: Model
    options: dict[int, Option]
    """The options, by column."""
    columns: dict[int, int]
    """The columns of the options, by id."""
    left: dict[int, int]
    """The columns of the free nodes, by node."""
    cover_rows: dict[int, int]
    """The rows that demand that a node is computed or a value written, with the node."""


def plan_model(problem: Problem) -> PlanModel:
    """The program of ``problem``."""
    model = Model()
    usable = [option for option in problem.options if is_usable(problem, option)]
    columns = {option.id: model.column(problem.cost(option), integer=True) for option in usable}
    left = {index: model.column(0.0, integer=True) for index in members(problem.free)}
    options = {columns[option.id]: option for option in usable}
    cover = (_add_demand if problem.redundant else _add_cover)(problem, model, options, left)
    if problem.has_transitions:
        _add_transitions(problem, model, options, left)
    _add_exclusions(problem, model, options)
    return PlanModel(problem, model, options, columns, left, cover)


def _add_cover(
    problem: Problem, model: Model, options: dict[int, Option], left: dict[int, int]
) -> dict[int, int]:
    """Add the rows of a problem without redundancy: each node is in one kernel or left behind. Returns the rows."""
    holders: list[Terms] = [[] for _ in problem.sources]
    for column, option in options.items():
        for index in members(option.inside):
            holders[index].append((column, 1.0))
    for index, column in left.items():
        holders[index].append((column, 1.0))
    return {model.row(1.0, terms, 1.0): index for index, terms in enumerate(holders)}


def _add_demand(
    problem: Problem, model: Model, options: dict[int, Option], left: dict[int, int]
) -> dict[int, int]:
    """Add the rows of a problem with redundancy: results and inputs are written, and written values are read.

    At most one of the options with the same last node is taken. So one row demands an input for the sum of all of them,
    which makes fewer and stronger rows. That each node is in some kernel follows from the other rows, but with these
    rows the linear relaxation has a much better bound. Returns the rows that must hold for a node.
    """
    holders, writers, readers = _empty(problem), _empty(problem), _empty(problem)
    asked: dict[tuple[int, int], Terms] = {}
    made = [(column, option.inside, problem.outputs(option)) for column, option in options.items()]
    made += [(column, 1 << index, 1 << index) for index, column in left.items()]
    for column, inside, outputs in made:
        for index in members(inside):
            holders[index].append((column, 1.0))
        for index in members(outputs):
            writers[index].append((column, 1.0))
        for index in members(problem.inputs(inside)):
            readers[index].append((column, 1.0))
            asked.setdefault((inside.bit_length() - 1, index), []).append((column, -1.0))
    cover: dict[int, int] = {}
    for index in members(problem.everything):
        cover[model.row(1.0, holders[index])] = index
        if problem.wanted >> index & 1:
            cover[model.row(1.0, writers[index], 1.0)] = index
        else:
            model.row(-float("inf"), writers[index], 1.0)
            model.row(0.0, readers[index] + _negative(writers[index]))
    for (_, index), terms in asked.items():
        model.row(0.0, writers[index] + terms)
    return cover


def _add_exclusions(problem: Problem, model: Model, options: dict[int, Option]) -> None:
    """Add a column for each pair of backends that exclude each other: 1 if the plan is of the first one's side."""
    for one, other in problem.exclusions:
        side = model.column(0.0, integer=True)
        for column, option in options.items():
            if option.backend == one:
                model.row(0.0, [(side, 1.0), (column, -1.0)])
            elif option.backend == other:
                model.row(-1.0, [(side, -1.0), (column, -1.0)])


def _add_transitions(
    problem: Problem, model: Model, options: dict[int, Option], left: dict[int, int]
) -> None:
    """Add a column for each value and side, and a column with the cost for each transition.

    The first is 1 if the side reads the value, also through nodes left behind.
    """
    readers = _readers(problem, options)
    sides = tuple(dict.fromkeys(side for option in options.values() for side in option.sides))
    written: list[dict[str, Terms]] = [{} for _ in problem.sources]
    for column, option in options.items():
        for index in members(problem.outputs(option)):
            for side in option.sides:
                written[index].setdefault(side, []).append((column, 1.0))
    read: dict[tuple[int, str], int] = {}
    for index in range(len(problem) - 1, -1, -1):
        for side in sides:
            tag = _tag(problem, model, read, left, index, side, readers[index].get(side, []))
            if tag is None:
                continue
            for writer, terms in written[index].items():
                seconds = problem.transition(writer, side, index)
                if seconds > 0.0:
                    paid = model.column(seconds)
                    model.row(-1.0, [(paid, 1.0), (tag, -1.0), *_negative(terms)])


def _tag(
    problem: Problem,
    model: Model,
    read: dict[tuple[int, str], int],
    left: dict[int, int],
    index: int,
    side: str,
    readers: list[Terms],
) -> int | None:
    """The column of a value and a side, which is at least the column of each of its readers; None without
    readers."""
    through = [
        (read[after, side], left[after])
        for after in members(problem.readers[index] & problem.free)
        if (after, side) in read
    ]
    if not readers and not through:
        return None
    tag = read[index, side] = model.column(0.0)
    for terms in readers:
        model.row(0.0, [(tag, 1.0), *_negative(terms)])
    for after, behind in through:
        model.row(-1.0, [(tag, 1.0), (after, -1.0), (behind, -1.0)])
    return tag


def _readers(problem: Problem, options: dict[int, Option]) -> list[dict[str, list[Terms]]]:
    """For each value and side the options that read it, in groups of which at most one option is taken.

    The options of a group contain the same reader of the value. If nodes may be computed twice, they have the same last
    node instead. One row for each group is stronger than one for each option.
    """
    found: list[dict[str, list[Terms]]] = [{} for _ in problem.sources]
    grouped: dict[tuple[int, str, int], Terms] = {}
    for column, option in options.items():
        last = 1 << (option.inside.bit_length() - 1)
        for index in members(problem.inputs(option.inside)):
            groups = last if problem.redundant else problem.readers[index] & option.inside
            for group in members(groups):
                for side in option.sides:
                    grouped.setdefault((index, side, group), []).append((column, 1.0))
    for (index, side, _), terms in grouped.items():
        found[index].setdefault(side, []).append(terms)
    return found


def _empty(problem: Problem) -> list[Terms]:
    return [[] for _ in problem.sources]


def _negative(terms: Terms) -> Terms:
    return [(column, -factor) for column, factor in terms]


def chosen_in(plan: PlanModel, values: list[float]) -> list[Option]:
    """The options that are taken in an integer point."""
    return [option for column, option in plan.options.items() if values[column] > 0.5]


def point_of(plan: PlanModel, chosen: tuple[Option, ...], left: IndexSet = EMPTY) -> dict[int, float]:
    """The integer point of a plan, by column."""
    taken = {plan.columns[option.id] for option in chosen} | {plan.left[index] for index in members(left)}
    return {column: float(column in taken) for column in [*plan.options, *plan.left.values()]}
