"""Linear and integer programs as lists, and the only interface to HiGHS.

Costs are scaled to a mean of 1 for the solver, because HiGHS uses absolute tolerances and costs are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import highspy
import numpy as np


@dataclass(slots=True)
class Model:
    """Minimise the cost over columns ``0 <= x <= upper`` with rows ``lower <= sum of terms <= upper``."""

    costs: list[float] = field(default_factory=list[float])
    upper: list[float] = field(default_factory=list[float])
    integer: list[bool] = field(default_factory=list[bool])
    rows: list[tuple[float, float, list[tuple[int, float]]]] = field(
        default_factory=list[tuple[float, float, list[tuple[int, float]]]]
    )

    def column(self, cost: float, upper: float = 1.0, integer: bool = False) -> int:
        """Add a column; returns its number."""
        self.costs.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.costs) - 1

    def row(self, lower: float, terms: Iterable[tuple[int, float]], upper: float = float("inf")) -> int:
        """Add a row; returns its number. ``terms`` may name a column several times."""
        summed: dict[int, float] = {}
        for column, factor in terms:
            summed[column] = summed.get(column, 0.0) + factor
        self.rows.append((lower, upper, list(summed.items())))
        return len(self.rows) - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of HiGHS."""

    status: str
    """``optimal``, ``infeasible`` or ``stopped``."""
    values: list[float]
    """The values of the columns; empty without a feasible point."""
    bound: float
    """A lower bound of the cost of every feasible point."""
    duals: list[float]
    """The dual values of the rows, if no column is an integer."""
    visited: int
    """Nodes of the branch-and-bound tree."""


def minimise(model: Model, seconds: float, start: dict[int, float] | None = None) -> Outcome:
    """Solve ``model`` on one thread within ``seconds``; ``start`` is a feasible point, by integer column.

    HiGHS 1.15 sometimes reports the start as optimal without a search, with a bound far below it. Then the model is
    solved again, without the start and without presolve.
    """
    scale = sum(model.costs) / max(1, sum(cost > 0.0 for cost in model.costs)) or 1.0
    solver = _solver(model, seconds, scale)
    if start:
        columns = np.array(list(start), dtype=np.int32)
        solver.setSolution(len(start), columns, np.array(list(start.values()), dtype=np.float64))
    solver.run()
    left = seconds - solver.getRunTime()
    if any(model.integer) and _contradicts_itself(solver):
        solver = _solver(model, left, scale)
        solver.setOptionValue("presolve", "off")
        solver.run()
    return _outcome(solver, any(model.integer), scale)


def _solver(model: Model, seconds: float, scale: float) -> highspy.Highs:
    solver = highspy.Highs()
    for option, value in _OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.setOptionValue("time_limit", max(0.01, seconds))
    solver.passModel(_program(model, scale))
    return solver


def _contradicts_itself(solver: highspy.Highs) -> bool:
    """Whether a point is reported as optimal although it is far from the bound."""
    info = solver.getInfo()
    gap = info.objective_function_value - info.mip_dual_bound
    return solver.getModelStatus() == highspy.HighsModelStatus.kOptimal and gap > _FAR * max(
        1.0, info.objective_function_value
    )


_FAR = 1e-4
"""A relative gap from which point and bound contradict each other, since no gap was allowed."""
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 1e-7,
}


def _program(model: Model, scale: float) -> highspy.HighsLp:
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(model.costs), len(model.rows)
    program.col_cost_ = np.array(model.costs) / scale
    program.col_lower_, program.col_upper_ = np.zeros(len(model.costs)), np.array(model.upper)
    program.row_lower_ = np.array([row[0] for row in model.rows])
    program.row_upper_ = np.array([row[1] for row in model.rows])
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.concatenate([[0], np.cumsum([len(row[2]) for row in model.rows])]).astype(np.int32)
    matrix.index_ = np.array([column for row in model.rows for column, _ in row[2]], dtype=np.int32)
    matrix.value_ = np.array([factor for row in model.rows for _, factor in row[2]], dtype=np.float64)
    if any(model.integer):
        kinds = highspy.HighsVarType
        program.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in model.integer]
    return program


def _outcome(solver: highspy.Highs, integer: bool, scale: float) -> Outcome:
    status, info, solution = solver.getModelStatus(), solver.getInfo(), solver.getSolution()
    name = "stopped"
    if status == highspy.HighsModelStatus.kOptimal or status == highspy.HighsModelStatus.kModelEmpty:
        name = "optimal"
    elif status == highspy.HighsModelStatus.kInfeasible:
        name = "infeasible"
    feasible = name == "optimal" or info.primal_solution_status == int(
        highspy.SolutionStatus.kSolutionStatusFeasible
    )
    bound = info.mip_dual_bound if integer else info.objective_function_value if name == "optimal" else 0.0
    return Outcome(
        status=name,
        values=[float(value) for value in solution.col_value] if feasible else [],
        bound=max(0.0, float(bound) * scale) if name != "infeasible" else 0.0,
        duals=[float(dual) * scale for dual in solution.row_dual],
        visited=max(0, int(info.mip_node_count)),
    )
