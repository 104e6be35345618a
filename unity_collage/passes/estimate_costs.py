"""EstimateCosts: put a price beside every candidate.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.costs``, for SearchPartition; ``collage.schedules`` of the module, for FuseRemaining, if kernels
         were tuned.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, VIEW, Candidate, Cost, Costs
from ..cost.model import CostModel, Overheads, Workload, evict_bytes, overheads_of
from ..cost.tuned import Tunable, tuned_costs
from ..errors import CollageError
from ..graph import DataflowGraph, Signatures
from ..graph.dataflow import used_vars
from ..graph.shapes import nbytes_of
from ..lowering.outlined import kernel_digest, kernel_function
from ..measure.measured import MeasuredCost
from ..schedule.tuned import SCHEDULES


@tvm.transform.module_pass(opt_level=0, name="collage.EstimateCosts")
@dataclass(frozen=True)
class EstimateCosts:
    """Ask ``model`` once for each distinct workload and backend.

    A network repeats its layers: sixteen equal convolutions are one question. A candidate that cannot be
    priced keeps its reason and is never chosen.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """Where a price comes from: a measurement, a database of them, or a formula."""
    tune_trials: int = 0
    """So many schedules MetaSchedule tries for each kernel of TVM that could then be part of a cheaper plan."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        questions = {
            gvar: workloads(func, self.model) for gvar, func in mod.functions_items() if _has_candidates(func)
        }
        prices = self.model.prices([w for asked in questions.values() for w in asked.values()])
        _warn_if_nothing_is_priced(prices)
        backends = dict.fromkeys(w.backend for asked in questions.values() for w in asked.values())
        charged = overheads_of(self.model, list(backends)) if questions else Overheads()
        schedules: dict[str, str] = {}
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
        for gvar, func in mod.functions_items():
            if gvar in questions:
                costs = answered(func, questions[gvar], prices, charged)
                costs, found = self._tuned(func, costs, questions[gvar])
                func, schedules = COSTS.write(func, costs), schedules | found
            functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return result.with_attr(SCHEDULES, schedules) if schedules else result

    def _tuned(
        self, func: relax.Function, costs: Costs, asked: Mapping[int, Workload]
    ) -> tuple[Costs, dict[str, str]]:
        if not self.tune_trials:
            return costs, {}
        if not isinstance(self.model, Tunable):
            raise CollageError(
                f"kernels cannot be tuned: {type(self.model).__name__} cannot price what is tuned"
            )
        return tuned_costs(func, costs, asked, self.model, self.tune_trials)


def _warn_if_nothing_is_priced(prices: Mapping[str, Cost]) -> None:
    if prices and all(cost.seconds is None for cost in prices.values()):
        reason = next(iter(prices.values())).reason
        warnings.warn(
            f"no kernel could be priced, all is left to TVM; the first reason: {reason}", stacklevel=3
        )


def _has_candidates(func: ir.BaseFunc) -> bool:
    return isinstance(func, relax.Function) and CANDIDATES.on(func)


def workloads(func: relax.Function, model: CostModel) -> dict[int, Workload]:
    """The question that each candidate of ``func`` asks ``model``, by candidate id; equal ones share a value.

    Views ask none.
    """
    graph = DataflowGraph(func)
    signatures = Signatures(graph)
    behind = evict_bytes(model, working_set(func))
    made: dict[tuple[str, str], Workload] = {}
    asked: dict[int, Workload] = {}
    for candidate in CANDIDATES.read(func):
        if candidate.backend == VIEW:
            continue
        digest = kernel_digest(signatures, graph, candidate)
        question = made.get((candidate.backend, digest))
        if question is None:
            question = _workload(graph, candidate, digest, behind)
            made[candidate.backend, digest] = question
        asked[candidate.id] = question
    return asked


def _workload(graph: DataflowGraph, candidate: Candidate, digest: str, behind: int) -> Workload:
    alone = kernel_function(graph, candidate, lift_constants=True)
    return Workload(digest, candidate.backend, candidate.title, alone, behind)


def working_set(func: relax.Function) -> int:
    """About how many bytes a run of ``func`` touches: all distinct constants, and the most that lives at once of
    other tensors, which memory planning lets the others have too."""
    constants: dict[ir.GenericConst, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            constants[expr] = nbytes_of(expr)

    relax.analysis.post_order_visit(func, visit)
    return sum(constants.values()) + _most_alive(func)


def _most_alive(func: relax.Function) -> int:
    """The most bytes that parameters and bound tensors, from where they are made to where they are last read, have at
    once."""
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    last: dict[relax.Var, int] = dict.fromkeys(used_vars(func.body.body), len(bindings))
    for at, binding in reversed([*enumerate(bindings)]):
        for var in used_vars(binding.value):
            last.setdefault(var, at)
    changes = [0] * (len(bindings) + 2)
    for at, var in enumerate([*func.params, *(binding.var for binding in bindings)], -len(func.params)):
        if var in last:
            changes[max(at, 0)] += nbytes_of(var)
            changes[last[var] + 1] -= nbytes_of(var)
    return max(accumulate(changes))


def answered(
    func: relax.Function, asked: Mapping[int, Workload], prices: Mapping[str, Cost], charged: Overheads
) -> Costs:
    """The part of ``prices`` that one function asked for."""
    keys = {candidate: workload.key for candidate, workload in asked.items()}
    return costs_of(func, {key: prices[key] for key in dict.fromkeys(keys.values())}, keys, charged)


def costs_of(
    func: relax.Function, prices: Mapping[str, Cost], keys: Mapping[int, str], charged: Overheads
) -> Costs:
    """Prices with what a plan pays besides; views are called by nobody and cost nothing."""
    views = {candidate.id: VIEW for candidate in CANDIDATES.read(func) if candidate.backend == VIEW}
    free = {VIEW: Cost(0.0, origin="formula")} if views else {}
    launches = {**charged.launches, **dict.fromkeys(free, 0.0)}
    return Costs(
        {**prices, **free}, {**keys, **views}, charged.launch_seconds, launches, dict(charged.transitions)
    )
