"""SearchPartition: the cheapest cover of each function, outlined.

Reads    ``collage.candidates`` and ``collage.costs``.
Writes   each chosen candidate as a private function: those of libraries as TVM's ``MergeCompositeFunctions``
         leaves them (``Codegen``, ``global_symbol``, an inner ``Composite``), those of TVM with ``Primitive``;
         ``collage.plan`` on the function. Removes the attributes that it has used up.
Keeps    what the program computes; bindings that are left behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, PLAN, Candidate, Costs
from ..backends.registry import get, register_codegens
from ..errors import NoPlan
from ..graph import DataflowGraph, Node, Signatures, SubGraph, extract, index_set, outside_vars
from ..graph.dataflow import has_kernel
from ..graph.extract import large_constants
from ..graph.outline import Group, NameSupply, global_var, outline
from ..search import NoCover, Option, Problem, cheapest_cover
from .outlined import external_function, primitive_function
from .plan import plan_of


@tvm.transform.module_pass(opt_level=0, name="collage.SearchPartition")
@dataclass(frozen=True)
class SearchPartition:
    """Choose kernels so that the sum of their prices and launches is the least possible."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                partitioned, outlined = partition(func, names)
                functions.update({gvar: partitioned, **outlined})
            else:
                functions[gvar] = func
        return relax.transform.Normalize()(IRModule(functions, attrs=mod.attrs))


def partition(
    func: relax.Function, names: NameSupply
) -> tuple[relax.Function, dict[relax.GlobalVar, relax.Function]]:
    """``func`` with its cheapest cover outlined, and the new functions."""
    graph = DataflowGraph(func)
    candidates = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
    costs = COSTS.read(func)
    problem = problem_of(graph, candidates.values(), costs)
    try:
        solution = cheapest_cover(problem)
    except NoCover as error:
        raise NoPlan(_why_no_cover(graph, error.index, candidates.values(), costs)) from None
    chosen = [candidates[option.id] for option in solution.chosen]
    groups, outlined = _outlined(graph, chosen, names)
    register_codegens(get(name) for name in dict.fromkeys(c.backend for c in chosen))
    result = outline(graph, groups)
    for annotation in (CANDIDATES, COSTS, DECLINED):
        result = result.without_attr(annotation.name)
    return PLAN.write(result, plan_of(graph, solution, candidates, costs, groups)), outlined


def problem_of(graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs) -> Problem:
    """The search problem: priced candidates, and what may be left behind.

    That is what the VM evaluates for free, and operators for which nobody has a price but TVM has a kernel.
    """
    options = []
    for candidate in candidates:
        seconds = costs.prices[costs.keys[candidate.id]].seconds
        if seconds is not None:
            options.append(Option(candidate.id, index_set(candidate.indexes), seconds))
    priced = 0
    for option in options:
        priced |= option.inside
    free = index_set(
        node.index
        for node in graph.nodes
        if node.is_host or (not priced >> node.index & 1 and _tvm_can(node))
    )
    return Problem(tuple(node.inputs for node in graph.nodes), free, tuple(options), costs.launch_seconds)


_VM_PREFIXES = ("relax.call_", "relax.memory.", "relax.vm.", "relax.builtin.", "relax.shape_of")
"""Operators that ``relax.build`` lowers by itself, without a legalization."""


def _tvm_can(node: Node) -> bool:
    """Whether the binding compiles as it stands."""
    call = node.call
    if call is None or call.op.name.startswith(_VM_PREFIXES) or has_kernel(call):
        return True
    return call.op.get_attr("FCallPacked") is not None


def _why_no_cover(graph: DataflowGraph, index: int, candidates: Iterable[Candidate], costs: Costs) -> str:
    node = graph.nodes[index]
    reasons = [
        f"{c.backend} {c.label}: {costs.prices[costs.keys[c.id]].reason}"
        for c in candidates
        if index in c.indexes
    ]
    why = "; ".join(dict.fromkeys(reasons)) or "no backend takes it and TVM has no legalization for it"
    return f"no kernel for {node.op} (binding {node.var.name}): {why}"


def _outlined(
    graph: DataflowGraph, chosen: Iterable[Candidate], names: NameSupply
) -> tuple[list[Group], dict[relax.GlobalVar, relax.Function]]:
    """Functions for the chosen candidates; equal kernels of TVM share one."""
    signatures = Signatures(graph)
    shared: dict[str, relax.GlobalVar] = {}
    outlined: dict[relax.GlobalVar, relax.Function] = {}
    groups: list[Group] = []
    for candidate in chosen:
        sub = SubGraph(graph, index_set(candidate.indexes))
        args: list[relax.Expr] = list(outside_vars(sub))
        if get(candidate.backend).codegen is None:
            args += large_constants(sub)
            digest = signatures.digest(sub.inside)
            if digest not in shared:
                func = primitive_function(sub)
                shared[digest] = _add(
                    outlined, names.fresh(f"fused_{candidate.label}_{candidate.backend}"), func
                )
            callee = shared[digest]
        else:
            name = names.fresh(f"fused_{candidate.label}_{candidate.backend}")
            func = external_function(extract(sub), candidate.backend, candidate.label, name)
            callee = _add(outlined, name, func)
        groups.append(Group(sub.inside, callee, tuple(args)))
    return groups, outlined


def _add(outlined: dict[relax.GlobalVar, relax.Function], name: str, func: relax.Function) -> relax.GlobalVar:
    gvar = global_var(name, func)
    outlined[gvar] = func
    return gvar
