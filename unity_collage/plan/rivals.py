"""The kernels of an explanation: what each one reads, its rivals, its margin and its runner-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..graph import index_set, members
from ..index_set import EMPTY, IndexSet
from ..search import Option, Problem, Solution, Through
from .explanation import ExplainedCandidate, ExplainedKernel, Verdict

_ROUNDING = 1e-9
"""Two plans whose costs differ by at most this part are equally cheap: another order of summing differs by as much."""


def cheapest_seconds(solution: Solution) -> float:
    """The cost of the cheapest plan, from which ties were settled."""
    return solution.seconds - solution.tie_seconds


def difference(seconds: float, chosen: float) -> float:
    """How much more a plan costs than the chosen one; 0 where only the order of summing differs."""
    return 0.0 if abs(seconds - chosen) <= _ROUNDING * chosen else seconds - chosen


def explained_kernels(
    problem: Problem,
    solution: Solution,
    candidates: Sequence[ExplainedCandidate],
    withouts: Mapping[int, Through],
    functions: Sequence[str],
    ties: Mapping[int, tuple[tuple[int, ...], ...]],
) -> Iterable[ExplainedKernel]:
    """The kernels of ``solution`` in their order; the arguments are those of :func:`.regrets.explanation_of`."""
    writers = _writers(problem, solution)
    for number, rivals in enumerate(_rivals(solution.chosen, candidates)):
        option = solution.chosen[number]
        reads = EMPTY
        inputs = tuple(members(problem.inputs(option.inside)))
        for source in inputs:
            reads |= writers[source]
        kernel = ExplainedKernel(
            candidate=option.id,
            function=functions[number] if functions else "",
            reads=tuple(members(reads)),
            inputs=inputs,
            rivals=tuple(rival.id for rival in rivals),
            ties=ties.get(option.id, ()),
        )
        yield _with_margin(kernel, rivals, cheapest_seconds(solution), withouts.get(option.id))


def _with_margin(
    kernel: ExplainedKernel, rivals: Sequence[ExplainedCandidate], seconds: float, without: Through | None
) -> ExplainedKernel:
    """``kernel`` with its margin, by which the cheapest plan ``without`` it costs more, and a rival in that plan.

    Some rival is in that plan, and no rival in it has a regret above the margin.
    """
    if without is None:
        return kernel
    margin = difference(without.seconds, seconds)
    within = [r for r in rivals if r.regret is not None and r.regret <= margin + _ROUNDING * seconds]
    most = max((rival.regret or 0.0 for rival in within), default=0.0)
    first = next((r.id for r in within if (r.regret or 0.0) >= most - _ROUNDING * seconds), None)
    return replace(kernel, runner_up=first, margin=margin, exact=without.exact)


def _writers(problem: Problem, solution: Solution) -> list[IndexSet]:
    """For each node, the kernels that write its value; for one left behind, those that write what it reads."""
    found = [EMPTY] * len(problem)
    for number, option in enumerate(solution.chosen):
        for index in members(problem.outputs(option)):
            found[index] |= 1 << number
    for index in members(solution.left_behind):
        for source in problem.sources[index]:
            found[index] |= found[source]
    return found


def _rivals(
    chosen: Sequence[Option], candidates: Sequence[ExplainedCandidate]
) -> list[list[ExplainedCandidate]]:
    """For each chosen kernel, the other candidates that compute some binding of it, the least regret first."""
    owners: dict[int, IndexSet] = {}
    for number, option in enumerate(chosen):
        for index in members(option.inside):
            owners[index] = owners.get(index, EMPTY) | 1 << number
    found: list[list[tuple[tuple[float, bool, int], ExplainedCandidate]]] = [[] for _ in chosen]
    for candidate in candidates:
        if candidate.regret is None or candidate.verdict is Verdict.CHOSEN:
            continue
        shared = EMPTY
        for index in candidate.bindings:
            shared |= owners.get(index, EMPTY)
        for number in members(shared):
            differs = index_set(candidate.bindings) != chosen[number].inside
            found[number].append(((candidate.regret, differs, candidate.id), candidate))
    return [[rival for _, rival in sorted(each, key=lambda item: item[0])] for each in found]
