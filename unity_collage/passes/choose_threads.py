"""ChooseThreads: run small kernels that may be in the plan on one thread, where that is as fast as on all.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts and ConfirmCosts.
Writes   both: the ``threads`` of candidates, and the costs of those.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target
from tvm.tirx import ForKind

from ..annotations import CANDIDATES, COSTS
from ..backends.registry import get
from ..cost.asking import skipped, workloads
from ..cost.model import Capability, CostModel, Workload
from ..errors import MissingCost
from ..graph import DataflowGraph
from ..measure.kernels import NoKernel, lowered_kernel
from ..measure.measured import MeasuredCost
from ..operators.recurrent import steps_of
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Cost, Costs
from ..plan.problem import problem_of
from ..schedule.cpu import CpuTraits
from ..schedule.stage import nodes
from ..search import NoCover
from ..target import current_target, is_cuda
from .confirm_costs import plan_and_near

_LONGEST = 4e-6
"""Seconds.

A kernel that computes longer than this between two barriers takes far longer on one thread. A barrier costs 0.2 us on
two cores, and a few times that on many. It costs more while cores exchange data slowly, but costs must not rely on
that.
"""
_MARGIN = 0.1
"""Only kernels in the plan or near it are tried: the best plan with one costs at most this part of its cost more."""


@tvm.transform.module_pass(opt_level=0, name="collage.ChooseThreads")
@dataclass(frozen=True)
class ChooseThreads:
    """Choose one thread or all threads for each small kernel that may be in the plan, whichever is faster.

    A kernel on all threads waits for them at its end, a recurrent layer after each step. If one thread is late, or
    its data is in another core's cache, all others wait. Whether several threads gain more than that depends on the
    machine. So the kernel on one thread and the kernel on all are timed in turns. One thread wins where the upper end
    of its interval is not above the other's. A thread that is late now and then widens the interval, even if the
    median is low. Kernels that compute longer without a barrier keep all threads, and so do kernels of backends
    without :attr:`unity_collage.backends.base.Backend.limits_threads`.

    Where the cost model cannot compare kernels (a formula cannot), candidates do not change, and the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: self._chosen(func, mod) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _chosen(self, func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
        if not isinstance(func, relax.Function) or not COSTS.on(func):
            return func
        if is_cuda(current_target()) or CpuTraits.of(current_target()).cores < 2:
            return func
        if reason := self.model.why_not(Capability.COMPARE):
            return skipped(func, f"short kernels keep all threads: {reason}")
        costs = COSTS.read(func)
        keys = set(_small(func, costs, workloads(func, self.model, mod)))
        small = [c for c in CANDIDATES.read(func) if costs.keys[c.id] in keys and c.threads is None]
        alone = tuple(replace(c, threads=1) for c in small)
        shared = workloads(CANDIDATES.write(func, tuple(small)), self.model, mod)
        single = workloads(CANDIDATES.write(func, alone), self.model, mod)
        pairs = {  # a tuned kernel has another key: it keeps its schedule
            shared[c.id].key: (shared[c.id], single[c.id])
            for c in small
            if costs.keys[c.id] == shared[c.id].key
        }
        won = dict(self._won(pairs))
        return _with_one_thread(func, costs, won) if won else func

    def _won(self, pairs: Mapping[str, tuple[Workload, Workload]]) -> Iterator[tuple[str, tuple[str, float]]]:
        """For each kernel that is faster on one thread: its key, the key on one thread, and the ratio of the times."""
        for key, (shared, single) in pairs.items():
            if self.model.is_budget_spent():
                return
            if not _is_shared(shared):
                continue
            try:
                found = self.model.compared([shared, single])
            except MissingCost:  # nothing may be measured: the kernel keeps all threads
                continue
            ours, theirs = found[shared.key], found[single.key]
            if ours.seconds and theirs.seconds and theirs.high <= ours.high:
                yield key, (single.key, theirs.seconds / ours.seconds)


def _small(func: relax.Function, costs: Costs, asked: Mapping[int, Workload]) -> list[str]:
    """The keys of kernels in the plan or near it that have many barriers and a backend that can limit their threads."""
    candidates = CANDIDATES.read(func)
    try:
        problem = problem_of(DataflowGraph(func), candidates, costs)
        chosen, near = plan_and_near(problem, costs.keys, _MARGIN)
    except NoCover:  # SearchPartition says why
        return []
    limited = {
        costs.keys[c.id]: asked[c.id].func
        for c in candidates
        if c.backend != VIEW and get(c.backend).limits_threads
    }
    return [
        key
        for key in dict.fromkeys([*chosen, *near])
        if key in limited and (costs.by_key[key].seconds or math.inf) < _LONGEST * meetings(limited[key])
    ]


def meetings(func: relax.Function) -> int:
    """How often the threads of a kernel wait for each other: at its end, and after each step of a recurrent layer."""
    steps: list[int] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            steps.append(steps_of(expr))

    relax.analysis.post_order_visit(func, visit)
    return max(1, sum(steps))


def _is_shared(workload: Workload) -> bool:
    """Whether several threads run the kernel; kernels of other backends than TVM are assumed to be so."""
    if not get(workload.backend).is_fused_by_tvm:
        return True
    try:
        target = Target(json.loads(workload.target)) if workload.target else current_target()
        kernel = lowered_kernel(workload.func, target)
    except NoKernel:
        return False
    return any(loop.kind == ForKind.PARALLEL for loop in nodes(kernel.body, tirx.For))


def _with_one_thread(
    func: relax.Function, costs: Costs, won: Mapping[str, tuple[str, float]]
) -> relax.Function:
    """``func`` with one thread, the new key, and the cost times the given ratio for the candidates with these keys."""

    def limited(candidate: Candidate) -> Candidate:
        return replace(candidate, threads=1) if costs.keys.get(candidate.id) in won else candidate

    keys = {id_: won[key][0] if key in won else key for id_, key in costs.keys.items()}
    by_key = {
        won[key][0] if key in won else key: _times(cost, won[key][1]) if key in won else cost
        for key, cost in costs.by_key.items()
    }
    func = CANDIDATES.write(func, tuple(map(limited, CANDIDATES.read(func))))
    return COSTS.write(func, replace(costs, by_key=by_key, keys=keys))


def _times(cost: Cost, factor: float) -> Cost:
    """``cost`` times ``factor``, so that it stays comparable with the confirmed costs."""
    return replace(
        cost, seconds=(cost.seconds or 0.0) * factor, low=cost.low * factor, high=cost.high * factor
    )
