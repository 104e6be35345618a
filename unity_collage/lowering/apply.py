"""ApplyPlan: outline the candidates that somebody has chosen.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.plan`` where there are costs; a private function for each chosen candidate, those of external
         backends as TVM's ``MergeCompositeFunctions`` leaves them (``Codegen``, ``global_symbol``, inner
         ``Composite``), those of TVM with ``Primitive``.
         Removes the attributes of the passes before.
Keeps    what the program computes; bindings that are left behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, PLAN, VIEW, Candidate
from ..backends.registry import get, register_codegens
from ..errors import NoPlan
from ..graph import DataflowGraph, Signatures, outside_vars
from ..graph.extract import large_constants
from ..lowering.outline import Group, NameSupply, global_var, outline
from ..lowering.outlined import external_function, kernel_digest, kernel_function, primitive_function
from ..plan.plan import plan_of
from ..plan.problem import problem_of
from ..search.plans import solution_of
from ..search.ties import tied_with

Functions = dict[relax.GlobalVar, relax.Function]


@tvm.transform.module_pass(opt_level=0, name="collage.ApplyPlan")
@dataclass(frozen=True)
class ApplyPlan:
    """Make kernels of the chosen candidates; nothing is searched and no price is needed."""

    chosen: Mapping[str, Sequence[int]]
    """Ids of candidates by the name of their function."""
    origin: str = "given"
    """Where the plan comes from; its ``algorithm`` in ``collage.plan``."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if gvar.name_hint in self.chosen and isinstance(func, relax.Function):
                result, outlined = self._applied(gvar, func, names)
                functions.update({gvar: result, **outlined})
            else:
                functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(result)

    def _applied(
        self, gvar: relax.GlobalVar, func: relax.Function, names: NameSupply
    ) -> tuple[relax.Function, Functions]:
        graph, chosen = DataflowGraph(func), self._candidates(gvar, func)
        if not COSTS.on(func):
            result, _, outlined = applied(graph, chosen, names)
            return result, outlined
        candidates = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
        costs = COSTS.read(func)
        problem = problem_of(graph, candidates.values(), costs)
        ids = {candidate.id for candidate in chosen}
        solution = solution_of(problem, [o for o in problem.options if o.id in ids], self.origin)
        ordered = [candidates[option.id] for option in solution.chosen]
        result, groups, outlined = applied(graph, ordered, names)
        plan = plan_of(graph, solution, candidates, costs, groups, ties=tied_with(problem, solution))
        return PLAN.write(result, plan), outlined

    def _candidates(self, gvar: relax.GlobalVar, func: relax.Function) -> list[Candidate]:
        by_id = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
        unknown = [str(number) for number in self.chosen[gvar.name_hint] if number not in by_id]
        if unknown:
            raise NoPlan(
                f"{gvar.name_hint} has no candidates {', '.join(unknown)}: 0 to {len(by_id) - 1} exist"
            )
        return [by_id[number] for number in self.chosen[gvar.name_hint]]


def applied(
    graph: DataflowGraph, chosen: Sequence[Candidate], names: NameSupply
) -> tuple[relax.Function, list[Group], Functions]:
    """The function of ``graph`` that calls the chosen kernels, the group of each, and their functions.

    What a view gives back is another name for what it reads.
    """
    groups, outlined = _outlined(graph, chosen, names)
    backends = dict.fromkeys(candidate.backend for candidate in chosen if candidate.backend != VIEW)
    register_codegens(map(get, backends))
    result = outline(graph, groups)
    for annotation in (CANDIDATES, COSTS, DECLINED):
        result = result.without_attr(annotation.name)
    return result, groups, outlined


def _outlined(
    graph: DataflowGraph, chosen: Sequence[Candidate], names: NameSupply
) -> tuple[list[Group], Functions]:
    """Functions for the chosen candidates. Equal ones share one: TVM's whatever their weights, which are arguments,
    those of libraries where their weights are the same, which each function packs for itself."""
    signatures = Signatures(graph)
    shared: dict[tuple[object, ...], relax.GlobalVar] = {}
    outlined: Functions = {}
    groups: list[Group] = []
    for candidate in chosen:
        sub = candidate.sub_graph(graph)
        hint = f"fused_{candidate.label}_{candidate.backend}"
        args: list[relax.Expr] = list(outside_vars(sub))
        if candidate.backend == VIEW:
            groups.append(Group(sub, None, tuple(args)))
            continue
        backend, weights = candidate.backend, large_constants(sub)
        if get(backend).codegen is None:
            args += weights
            key: tuple[object, ...] = (signatures.digest(sub), candidate.threads)
        else:
            key = (backend, kernel_digest(signatures, graph, candidate), *weights)
        if key not in shared:
            name = names.fresh(hint)
            if get(backend).codegen is None:
                func = primitive_function(sub, candidate.threads)
            else:
                func = external_function(kernel_function(graph, candidate), backend, candidate.label, name)
            shared[key] = _add(outlined, name, func)
        callee = shared[key]
        groups.append(Group(sub, callee, tuple(args)))
    return groups, outlined


def _add(outlined: Functions, name: str, func: relax.Function) -> relax.GlobalVar:
    gvar = global_var(name, func)
    outlined[gvar] = func
    return gvar
