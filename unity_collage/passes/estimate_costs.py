"""EstimateCosts: put a price beside every candidate.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.costs``, for SearchPartition.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, Candidate, Cost, Costs
from ..cost.caches import weights_in
from ..cost.measured import MeasuredCost
from ..cost.workload import CostModel, Workload
from ..graph import DataflowGraph, Signatures, SubGraph, extract, index_set


@tvm.transform.module_pass(opt_level=0, name="collage.EstimateCosts")
@dataclass(frozen=True)
class EstimateCosts:
    """Ask ``model`` once for each distinct workload and backend.

    A network repeats its layers: sixteen equal convolutions are one question. A candidate that cannot be
    priced keeps its reason and is never chosen.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """Where a price comes from: a measurement, a database of them, or a formula."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        questions = {gvar: workloads(func) for gvar, func in mod.functions_items() if _has_candidates(func)}
        prices = self.model.prices([w for asked in questions.values() for w in asked.values()])
        launch = self.model.launch_seconds() if questions else 0.0
        functions = {
            gvar: COSTS.write(func, answered(questions[gvar], prices, launch)) if gvar in questions else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs)


def _has_candidates(func: ir.BaseFunc) -> bool:
    return isinstance(func, relax.Function) and CANDIDATES.on(func)


def workloads(func: relax.Function) -> dict[int, Workload]:
    """The question that each candidate of ``func`` asks, by candidate id; equal ones share a value."""
    graph = DataflowGraph(func)
    signatures = Signatures(graph)
    place = weights_in(constant_bytes(func))
    made: dict[tuple[str, str], Workload] = {}
    asked: dict[int, Workload] = {}
    for candidate in CANDIDATES.read(func):
        digest = signatures.digest(index_set(candidate.indexes))
        question = made.get((candidate.backend, digest))
        if question is None:
            question = _workload(graph, candidate, digest, place)
            made[candidate.backend, digest] = question
        asked[candidate.id] = question
    return asked


def _workload(graph: DataflowGraph, candidate: Candidate, digest: str, place: str) -> Workload:
    sub = SubGraph(graph, index_set(candidate.indexes))
    alone = extract(sub, lift_constants=True)
    return Workload(digest, candidate.backend, candidate.label, alone, place)


def constant_bytes(func: relax.Function) -> int:
    """Bytes of all distinct tensor constants in ``func``."""
    found: dict[ir.GenericConst, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            found[expr] = math.prod(map(int, expr.value.shape)) * expr.value.dtype.itemsize

    relax.analysis.post_order_visit(func, visit)
    return sum(found.values())


def answered(asked: Mapping[int, Workload], prices: Mapping[str, Cost], launch_seconds: float) -> Costs:
    """The part of ``prices`` that one function asked for."""
    keys = {candidate: workload.key for candidate, workload in asked.items()}
    return Costs({key: prices[key] for key in dict.fromkeys(keys.values())}, keys, launch_seconds)
