"""Kernels by rule: each library gets what it takes, in order of preference, and TVM the rest; no costs are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, PLAN
from ..backends.options import name_of
from ..backends.registry import excluding, known
from ..errors import NoPlan
from ..graph import DataflowGraph
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Cost, Costs
from ..plan.decision import plan_of
from ..plan.problem import possible_without_kernels, problem_of, why_no_cover
from ..search import NoCover, Problem
from ..search.greedy import greedy_cover
from .apply import Functions, applied
from .outline import NameSupply

BY_RULE = "rule"
"""The ``algorithm`` of such a plan, and the origin of the values in place of its costs."""

_NO_TIME = "chosen by rule: there was no time to measure any of its kernels"
_TVM = "tvm"


def is_unmeasured(func: relax.Function) -> bool:
    """Whether the annotations of ``func`` have no cost at all, since the time was used up before."""
    if not COSTS.on(func):
        return False
    costs = COSTS.read(func)
    found = [
        costs.by_key[costs.keys[candidate.id]]
        for candidate in CANDIDATES.read(func)
        if candidate.backend != VIEW and candidate.id in costs.keys
    ]
    return any(cost.is_open for cost in found) and all(cost.seconds is None for cost in found)


def applied_unmeasured(
    graph: DataflowGraph, costs: Costs, names: NameSupply
) -> tuple[relax.Function, Functions]:
    """:func:`applied_by_rule` for a function that :func:`is_unmeasured`: without candidates that cannot be made.

    Backends are preferred in the order of their candidates.
    """
    refused = {number for number, key in costs.keys.items() if _is_refused(costs.by_key[key])}
    candidates = [candidate for candidate in CANDIDATES.read(graph.func) if candidate.id not in refused]
    preferred = tuple(dict.fromkeys(found.backend for found in candidates if found.backend != VIEW))
    return applied_by_rule(graph, candidates, names, preferred, _NO_TIME)


def with_unmeasured_by_rule(mod: IRModule) -> IRModule:
    """``mod`` with kernels by rule in the functions that are annotated and unmeasured."""
    unmeasured = {
        gvar: func
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and CANDIDATES.on(func) and is_unmeasured(func)
    }
    if not unmeasured:
        return mod
    functions: Functions = dict(mod.functions_items())
    names = NameSupply(mod)
    for gvar, func in unmeasured.items():
        functions[gvar], outlined = applied_unmeasured(DataflowGraph(func, mod), COSTS.read(func), names)
        functions.update(outlined)
    result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.Normalize()(result)


def _is_refused(cost: Cost) -> bool:
    return cost.seconds is None and not cost.is_open


def applied_by_rule(
    graph: DataflowGraph,
    candidates: Sequence[Candidate],
    names: NameSupply,
    priority: Sequence[str] | None,
    remark: str,
) -> tuple[relax.Function, Functions]:
    """The function of ``graph`` with kernels by rule, its plan with ``remark``, and the functions of the kernels.

    ``priority``: backends in preference order; None: the order of ``unity-collage backends``, TVM last. Raises NoPlan
    if nothing can compile a binding.
    """
    func = graph.func
    libraries = tuple(name for name in known() if name != _TVM)
    order = (*libraries, _TVM) if priority is None else tuple(map(name_of, priority))
    by_id = {candidate.id: candidate for candidate in candidates}
    try:
        solution = greedy_cover(_problem(graph, candidates, order), order)
    except NoCover as error:
        excluded = excluding(candidate.backend for candidate in candidates)
        raise NoPlan(why_no_cover(graph, error.index, candidates, exclusions=excluded)) from None
    result, groups, outlined = applied(graph, [by_id[option.id] for option in solution.chosen], names)
    plan = plan_of(
        graph,
        replace(solution, seconds=0.0, lower_bound=0.0, algorithm=BY_RULE),
        by_id,
        _no_costs(candidates),
        [group.name for group in groups],
        declined=DECLINED.read(func) if DECLINED.on(func) else (),
    )
    return PLAN.write(result, replace(plan, remarks=(remark, *plan.remarks))), outlined


def _problem(graph: DataflowGraph, candidates: Sequence[Candidate], priority: Sequence[str]) -> Problem:
    """The problem of the libraries' candidates, in which TVM gets for free what it can compile."""
    free = possible_without_kernels(graph)
    late = priority[priority.index(_TVM) :] if _TVM in priority else ()
    offered: list[Candidate] = []
    for candidate in candidates:
        inside = candidate.sub_graph(graph).inside
        if candidate.backend == VIEW or (candidate.backend not in (*late, _TVM)) or inside & ~free:
            offered.append(candidate)
    costs = Costs(
        {BY_RULE: Cost(1.0, 1.0, 1.0), VIEW: Cost(0.0)},
        {candidate.id: VIEW if candidate.backend == VIEW else BY_RULE for candidate in offered},
        exclusions=excluding(candidate.backend for candidate in offered),
    )
    return replace(problem_of(graph, offered, costs), free=free)


def _no_costs(candidates: Sequence[Candidate]) -> Costs:
    """Zero costs for all candidates, since none was measured."""
    nothing = Cost(None, origin=BY_RULE, reason="not measured: plans are chosen by rule", bound=0.0)
    return Costs({BY_RULE: nothing}, {candidate.id: BY_RULE for candidate in candidates})
