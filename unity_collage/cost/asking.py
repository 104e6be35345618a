"""The workloads of a function's candidates for a cost model, and the candidates' costs from its replies."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import accumulate

from cachetools import LRUCache, cached
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COMPILED_AS, COSTS
from ..backends.registry import excluding, get
from ..graph import DataflowGraph, Signatures
from ..graph.dataflow import used_vars
from ..graph.devices import without_devices
from ..graph.prim_funcs import prim_funcs_called
from ..graph.rounded_scales import with_rounded_scales
from ..graph.shapes import nbytes_of
from ..graph.variants import like_of, twin
from ..lowering.outlined import kernel_digest, kernel_function
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Cost, Costs
from ..target import current_target, device_target, fields_of
from .model import CostModel, Overheads, Workload


def workloads(func: relax.Function, model: CostModel, mod: IRModule | None = None) -> dict[int, Workload]:
    """The workload of each candidate of ``func``, by candidate id; equal workloads are one value.

    ``mod`` has the PrimFuncs that ``func`` calls. Views have no workload. Kernels with free sizes are asked for at the
    sizes of the sample that ``func`` names.
    """
    prims = prim_funcs_called(func, mod)
    return dict(_workloads(func, model.evict_bytes(working_set(twin(func))), prims))


def _question(func: relax.Function, behind: int, prims: IRModule) -> tuple[Hashable, ...]:
    """The part of ``func`` that its workloads depend on: other attributes are left out."""
    called = tuple((gvar.name_hint, prim) for gvar, prim in prims.functions_items())
    sizes = tuple(like_of(func).items())
    return func.body, CANDIDATES.encoded(func), sizes, behind, called, str(current_target())


_REMEMBERED = 32
"""How many answers are remembered. Passes ask in turn about each variant of a model, and about one function at each
sample size: with fewer, all answers would be made again each time.
"""


@cached(LRUCache[tuple[Hashable, ...], Mapping[int, Workload]](maxsize=_REMEMBERED), _question)
def _workloads(func: relax.Function, behind: int, prims: IRModule) -> Mapping[int, Workload]:
    """The workloads with ``behind`` bytes read before each kernel; each pass that measures asks for them again."""
    func = with_rounded_scales(func)
    placed = DataflowGraph(twin(func), prims)
    graph = DataflowGraph(without_devices(placed.func), prims)
    signatures = Signatures(graph)
    free = DataflowGraph(without_devices(func), prims) if placed.func is not func else None
    made: dict[tuple[str, str, str], Workload] = {}
    asked: dict[int, Workload] = {}
    for candidate in CANDIDATES.read(func):
        if candidate.backend == VIEW:
            continue
        digest = kernel_digest(signatures, graph, candidate)
        compiled = None if free is None else _with_free_sizes(free, candidate)
        if compiled is not None:
            digest = _digest_at(digest, compiled)
        target = _target_of(placed, candidate)
        question = made.get((candidate.backend, digest, target))
        if question is None:
            computation = signatures.digest(candidate.sub_graph(graph))
            question = _workload(graph, candidate, digest, behind, computation, compiled, target)
            made[candidate.backend, digest, target] = question
        asked[candidate.id] = question
    return asked


def forget() -> None:
    """Forget the functions that were asked about: they hold the weights of their models."""
    _workloads.cache.clear()


def _workload(
    graph: DataflowGraph,
    candidate: Candidate,
    digest: str,
    behind: int,
    computation: str,
    compiled: relax.Function | None,
    target: str,
) -> Workload:
    alone = kernel_function(graph, candidate, lift_constants=True)
    if compiled is not None:
        alone = alone.with_attr(COMPILED_AS, compiled)
    return Workload(
        digest, candidate.backend, candidate.title, alone, behind, computation=computation, target=target
    )


def _target_of(graph: DataflowGraph, candidate: Candidate) -> str:
    """The target of a kernel as JSON: that of its values' virtual device; empty for the one in scope.

    The cost of a kernel does not depend on the number of its device, so its workload names none.
    """
    target = device_target(graph.nodes[candidate.indexes[-1]].var.ty)
    return "" if target is None or fields_of(target) == fields_of(current_target()) else str(target)


def _with_free_sizes(graph: DataflowGraph, candidate: Candidate) -> relax.Function | None:
    """The function with free sizes of which TVM makes the kernel; None where its sizes are static.

    Native kernels are made for the sizes of a call, as they are for static ones.
    """
    if not get(candidate.backend).is_fused_by_tvm:
        return None
    func = kernel_function(graph, candidate, lift_constants=True)
    return func if relax.analysis.defined_symbolic_vars(func) else None


def _digest_at(digest: str, compiled: relax.Function) -> str:
    """The digest of a kernel with free sizes that is measured at the sizes of the kernel with this digest."""
    shapes = [str(param.ty) for param in compiled.params]
    return hashlib.sha256("\n".join([digest, *shapes]).encode()).hexdigest()[:24]


def working_set(func: relax.Function) -> int:
    """About how many bytes a run of ``func`` touches.

    These are all distinct constants, and the most bytes of other tensors that are alive at once.
    """
    constants: dict[ir.GenericConst, int] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            constants[expr] = nbytes_of(expr)

    relax.analysis.post_order_visit(func, visit)
    return sum(constants.values()) + _most_alive(func)


def _most_alive(func: relax.Function) -> int:
    """The most bytes of parameters and bound tensors at once; each is alive from its binding to its last read."""
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
    func: relax.Function, asked: Mapping[int, Workload], costs: Mapping[str, Cost], overheads: Overheads
) -> Costs:
    """The costs of one function, which asked for the workloads ``asked``."""
    keys = {candidate: workload.key for candidate, workload in asked.items()}
    return costs_of(func, {key: costs[key] for key in dict.fromkeys(keys.values())}, keys, overheads)


def costs_of(
    func: relax.Function, by_key: Mapping[str, Cost], keys: Mapping[int, str], overheads: Overheads
) -> Costs:
    """Costs with the overheads of a plan; views are not called and cost nothing."""
    views = {candidate.id: VIEW for candidate in CANDIDATES.read(func) if candidate.backend == VIEW}
    free = {VIEW: Cost(0.0, origin="formula")} if views else {}
    launches = {**overheads.launches, **dict.fromkeys(free, 0.0)}
    return Costs(
        {**by_key, **free},
        {**keys, **views},
        overheads.launch_seconds,
        launches,
        {pair: tuple(points) for pair, points in overheads.transitions.items()},
        excluding(candidate.backend for candidate in CANDIDATES.read(func)),
        tuple(f"transitions of {name} count as free: {why}" for name, why in overheads.unknown.items()),
    )


def skipped(func: relax.Function, reason: str) -> relax.Function:
    """``func`` with a note in its costs that a step was left out, and the reason."""
    costs = COSTS.read(func)
    return COSTS.write(func, replace(costs, skipped=(*costs.skipped, reason)))
