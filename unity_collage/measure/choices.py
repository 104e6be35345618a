"""Whether a function leaves a choice: if only one plan is possible, no cost can change it.

There is a choice if

* two candidates have a binding in common, so that it can be computed in two ways;
* a value needs no kernel, since transposes cancel each other, or has one;
* a candidate is of a library: its kernel is checked when it is measured, and if it is refused TVM makes one;
* two candidates could be merged into one call of their backend;
* a kernel is so short, or has so many steps, that it may be faster on one thread than on all;
* two kernels do not wait for each other, so that they may run side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import relax
from tvm.ir import IRModule

from .. import runtime
from ..annotations import CANDIDATES, COSTS
from ..backends.merging import merged_candidates
from ..backends.registry import get
from ..cost.work import work_of
from ..graph import DataflowGraph
from ..index_set import EMPTY, IndexSet, members
from ..lowering.outlined import kernel_function
from ..operators.recurrent import steps_of
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import NOT_NEEDED, Cost, Costs
from ..target import current_target, is_cuda

_SHORT_FLOPS, _SHORT_BYTES = 1e9, 1 << 24
"""On any CPU more work than this between two barriers takes far longer than the 4 us of a barrier."""

_REMARK = "nothing was measured: only one plan is possible"


def why_costs_matter(func: relax.Function, mod: IRModule | None = None) -> str | None:
    """What there is to choose for a function with candidates, or None if only one plan is possible.

    ``mod`` has the PrimFuncs that ``func`` calls.
    """
    candidates = CANDIDATES.read(func)
    if any(candidate.backend == VIEW for candidate in candidates):
        return "transposes that cancel each other need no kernel"
    return next(_choices(DataflowGraph(func, mod), candidates), None)


def without_costs(func: relax.Function) -> Costs:
    """The placeholder costs of a function that leaves no choice."""
    keys = {candidate.id: f"{candidate.backend}:{candidate.id}" for candidate in CANDIDATES.read(func)}
    return Costs(
        {key: Cost(0.0, origin=NOT_NEEDED) for key in keys.values()}, keys, skipped=(_REMARK,) if keys else ()
    )


def has_no_choice(mod: IRModule) -> bool:
    """Whether no function with costs leaves a choice."""
    found = [cost for costs in COSTS.by_function(mod).values() for cost in costs.by_key.values()]
    return bool(found) and all(cost.origin == NOT_NEEDED for cost in found)


def _choices(graph: DataflowGraph, kernels: Sequence[Candidate]) -> Iterator[str]:
    covered = EMPTY
    for candidate in kernels:
        inside = candidate.sub_graph(graph).inside
        if covered & inside:
            yield f"{candidate.backend} {candidate.label} is not the only candidate for its operators"
        covered |= inside
    for candidate in kernels:
        if get(candidate.backend).codegen is not None:
            yield f"{candidate.backend} {candidate.label} may not pass its checks, and then TVM makes that kernel"
    for merged in merged_candidates(graph, kernels, first_id=0):
        yield f"{merged.backend} could compute {merged.label} in one call"
    if runtime.num_threads() < 2 or is_cuda(current_target()):
        return
    for candidate in kernels:
        alone = kernel_function(graph, candidate, lift_constants=True)
        if get(candidate.backend).limits_threads and _is_short(alone):
            yield f"{candidate.backend} {candidate.label} may be faster on one thread"
    if _are_side_by_side(graph, kernels, covered):
        yield "kernels may run side by side"


def _is_short(func: relax.Function) -> bool:
    """Whether the threads of a kernel do little between two barriers, which are at its end and after each step of a
    layer.
    """
    work = work_of(func)
    calls = [binding.value for block in func.body.blocks for binding in block.bindings]
    meetings = max(1, sum(steps_of(call) for call in calls if isinstance(call, relax.Call)))
    nbytes = work.weight_bytes + work.read_bytes + work.written_bytes
    return work.flops < _SHORT_FLOPS * meetings and nbytes < _SHORT_BYTES * meetings


def _are_side_by_side(graph: DataflowGraph, kernels: Sequence[Candidate], covered: IndexSet) -> bool:
    """Whether two kernels, or operators in none, do not wait for each other."""
    units = [candidate.sub_graph(graph).inside for candidate in kernels]
    units += [1 << node.index for node in graph.nodes if not node.is_host and not covered >> node.index & 1]
    upstream: list[IndexSet] = []
    for node in graph.nodes:
        upstream.append(1 << node.index | _union(upstream[index] for index in node.inputs))
    before = [_union(upstream[index] for index in members(unit)) for unit in units]
    return any(
        not before[j] & units[i] and not before[i] & units[j] for j in range(len(units)) for i in range(j)
    )


def _union(sets: Iterator[IndexSet]) -> IndexSet:
    found = EMPTY
    for each in sets:
        found |= each
    return found
