"""Outlines the chosen candidates: each becomes a private function.

Functions of external backends look like those of TVM's ``MergeCompositeFunctions`` (``Codegen``, ``global_symbol``,
inner ``Composite``); functions of TVM have ``Primitive``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm_ffi import structural_equal

from ..annotations import CANDIDATES, COSTS, DECLINED, LIFTED, PLAN, UNRECOGNISED
from ..backends.registry import get, register_codegens
from ..errors import NoPlan
from ..graph import DataflowGraph, Signatures, members, outside_vars
from ..graph.extract import large_constants
from ..plan.candidate import VIEW, Candidate
from ..plan.decision import plan_of
from ..plan.problem import problem_of
from ..search.plans import solution_of
from ..search.ties import tied_with
from .kernel_sizes import with_sizes_of_its_own
from .outline import Group, NameSupply, global_var, outline
from .outlined import (
    external_function,
    kernel_digest,
    kernel_function,
    primitive_function,
    with_parts_inside,
)
from .tir_hook import NotLowered, calling, lowered_to_tir

Functions = dict[relax.GlobalVar, ir.BaseFunc]
Chosen = Mapping[str, Sequence[int]]
"""Ids of candidates by the name of their function."""


def applied_module(mod: IRModule, chosen: Chosen, origin: str = "given") -> IRModule:
    """``mod`` with the chosen candidates outlined; ``origin`` is the ``algorithm`` of the plans.

    Nothing is searched, and no costs are needed. Raises NoPlan for the id of a candidate that does not exist.
    """
    functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
    names = NameSupply(mod)
    for gvar, func in mod.functions_items():
        if gvar.name_hint in chosen and isinstance(func, relax.Function):
            picked = _picked(gvar.name_hint, func, chosen[gvar.name_hint])
            result, outlined = _applied(DataflowGraph(func, mod), picked, names, origin)
            functions.update({gvar: result, **outlined})
        else:
            functions[gvar] = func
    result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.Normalize()(result)


def _picked(name: str, func: relax.Function, chosen: Sequence[int]) -> list[Candidate]:
    by_id = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
    unknown = [str(number) for number in chosen if number not in by_id]
    if unknown:
        raise NoPlan(f"{name} has no candidates {', '.join(unknown)}: 0 to {len(by_id) - 1} exist")
    return [by_id[number] for number in chosen]


def _applied(
    graph: DataflowGraph, chosen: Sequence[Candidate], names: NameSupply, origin: str
) -> tuple[relax.Function, Functions]:
    func = graph.func
    if not COSTS.on(func):
        result, _, outlined = applied(graph, chosen, names)
        return result, outlined
    candidates = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
    costs = COSTS.read(func)
    problem = problem_of(graph, candidates.values(), costs)
    ids = {candidate.id for candidate in chosen}
    solution = solution_of(problem, [o for o in problem.options if o.id in ids], origin)
    result, groups, outlined = applied(graph, [candidates[o.id] for o in solution.chosen], names)
    plan = plan_of(
        graph,
        solution,
        candidates,
        costs,
        [group.name for group in groups],
        declined=DECLINED.read(func) if DECLINED.on(func) else (),
        ties=tied_with(problem, solution),
    )
    return PLAN.write(result, plan), outlined


def applied(
    graph: DataflowGraph, chosen: Sequence[Candidate], names: NameSupply
) -> tuple[relax.Function, list[Group], Functions]:
    """The function of ``graph`` that calls the chosen kernels, the group of each, and their functions.

    A view becomes another name for its operand.
    """
    groups, outlined = _outlined(graph, chosen, names)
    backends = dict.fromkeys(candidate.backend for candidate in chosen if candidate.backend != VIEW)
    register_codegens(map(get, backends))
    result = outline(graph, groups)
    for annotation in (CANDIDATES, COSTS, DECLINED, UNRECOGNISED):
        result = result.without_attr(annotation.name)
    return result, groups, outlined


def _outlined(
    graph: DataflowGraph, chosen: Sequence[Candidate], names: NameSupply
) -> tuple[list[Group], Functions]:
    """The functions of the chosen candidates; equal candidates share one.

    Weights are arguments of TVM's functions. A library packs them for each function, so its functions are equal only
    if their weights are the same. Attributes are compared as they are: in a digest their numbers have six digits.
    """
    signatures = Signatures(graph)
    shared: dict[tuple[object, ...], list[tuple[list[object], relax.GlobalVar]]] = {}
    outlined: Functions = {}
    groups: list[Group] = []
    for candidate in chosen:
        sub = candidate.sub_graph(graph)
        hint = "_".join(["fused", candidate.label, candidate.backend, *map("_".join, candidate.options)])
        args: list[relax.Expr] = list(outside_vars(sub))
        if candidate.backend == VIEW:
            groups.append(Group(sub, None, tuple(args)))
            continue
        weights = large_constants(sub)
        key: tuple[object, ...] = (candidate.backend, kernel_digest(signatures, graph, candidate))
        if get(candidate.backend).codegen is None:
            args += weights
        else:
            key = (*key, *weights)
        attrs: list[object] = [getattr(graph.nodes[i].call, "attrs", None) for i in members(sub.inside)]
        alike = shared.setdefault(key, [])
        callee = next((gvar for others, gvar in alike if all(map(structural_equal, others, attrs))), None)
        if callee is None:
            name = names.fresh(hint)
            callee = _add(outlined, name, _function(graph, candidate, name, outlined, names))
            alike.append((attrs, callee))
        groups.append(Group(sub, callee, tuple(args)))
    return groups, outlined


def _function(
    graph: DataflowGraph, candidate: Candidate, name: str, outlined: Functions, names: NameSupply
) -> relax.Function:
    """The function of one candidate; a PrimFunc that its backend makes of it is added to ``outlined``."""
    backend = get(candidate.backend)
    if backend.codegen is not None:
        return external_function(kernel_function(graph, candidate), backend.name, candidate.label, name)
    if backend.lower_to_tir is None and candidate.composites:
        inside = with_parts_inside(kernel_function(graph, candidate, lift_constants=True, alone=False))
        return inside.without_attr(LIFTED).with_attr("Primitive", 1)
    if backend.lower_to_tir is None:
        return with_sizes_of_its_own(primitive_function(candidate.sub_graph(graph), candidate.threads))
    func = kernel_function(graph, candidate, lift_constants=True)
    try:
        prim = lowered_to_tir(func, backend)
    except NotLowered as refusal:
        raise NoPlan(f"{backend.name} makes no kernel of {candidate.label}: {refusal}") from None
    return calling(func, _add(outlined, names.fresh(f"{name}_tir"), prim))


def _add(outlined: Functions, name: str, func: ir.BaseFunc) -> relax.GlobalVar:
    gvar = global_var(name, func)
    outlined[gvar] = func
    return gvar
