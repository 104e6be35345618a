"""Programs of one plan in which some of the offloaded kernels are left to TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.target import Target

from ...annotations import CANDIDATES
from ...errors import CollageError
from ...feedback.builder import finished
from ...graph import DataflowGraph, index_set
from ...lowering.build import build
from ...plan.candidate import VIEW, Candidate
from ...plan.given import GivenKernel
from ...plan.names import binding_names
from ...plan.plan import Plan
from ...plan.problem import possible_without_kernels
from ...program import Program
from ...sessions.whole_model import WHOLE
from ..matching import named_candidates, views_beside

_TVM = "tvm"
_WHERE = "the plan"


@dataclass(frozen=True, slots=True)
class OffloadedKernel:
    """A kernel of a plan that is not TVM's, and that TVM could make instead."""

    function: str
    candidate: Candidate
    bindings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartialPrograms:
    """Makes programs of a plan; they take the inputs of the ``whole`` program."""

    whole: Program
    annotated: IRModule
    """The module whose functions have the kernels of the plan as candidates, and no others."""
    kernels: tuple[OffloadedKernel, ...]
    """Those that can be left out, ordered by backend and then as they run: halves of them are often a backend each."""
    always: Mapping[str, tuple[int, ...]]
    """The ids of the candidates that every program has, by function."""
    target: Target

    @staticmethod
    def of(whole: Program, prepared: IRModule, target: Target) -> PartialPrograms:
        """The programs for the plan of ``whole``; ``prepared`` has the candidates of its model.

        Raises CollageError if its kernels are not among the candidates, as with other options.
        """
        functions: dict[Any, Any] = dict(prepared.functions_items())
        kernels: list[OffloadedKernel] = []
        always: dict[str, tuple[int, ...]] = {}
        named = {gvar.name_hint: gvar for gvar in functions}
        for name, plan in (whole.plan or {}).items():
            if not plan.kernels:
                continue
            if name not in named or not CANDIDATES.on(functions[named[name]]):
                raise CollageError(f"the program has kernels in {name}, and the model has no such function")
            graph = DataflowGraph(functions[named[name]], prepared)
            chosen = candidates_of_plan(graph, plan)
            functions[named[name]] = CANDIDATES.write(graph.func, chosen)
            free = _replaceable(graph, name, chosen)
            kernels += free
            off = {kernel.candidate.id for kernel in free}
            always[name] = tuple(candidate.id for candidate in chosen if candidate.id not in off)
        annotated = IRModule(functions, attrs=prepared.attrs, global_infos=prepared.global_infos)
        kernels.sort(key=lambda kernel: kernel.candidate.backend)
        return PartialPrograms(whole, annotated, tuple(kernels), always, target)

    def program(self, kernels: Sequence[OffloadedKernel]) -> Program:
        """The program in which these kernels are left to their backends, and TVM makes all others."""
        choice = {
            name: (*ids, *(kernel.candidate.id for kernel in kernels if kernel.function == name))
            for name, ids in self.always.items()
        }
        with self.target:
            executable = build(finished(self.annotated, choice, self.target), self.target)
        whole = self.whole
        return Program(
            executable,
            whole.input_names,
            signature=whole.signature,
            target=self.target,
            threads=whole.threads,
        )

    def graph_of(self, kernel: OffloadedKernel) -> DataflowGraph:
        """The graph that contains the candidate of a kernel."""
        return DataflowGraph(self.annotated[kernel.function], self.annotated)


def candidates_of_plan(graph: DataflowGraph, plan: Plan) -> tuple[Candidate, ...]:
    """The candidates of the kernels of a plan, in its order, then views; their ids count from 0.

    Raises CollageError for a kernel that is none of the candidates.
    """
    if other := next((kernel.backend for kernel in plan.kernels if kernel.label == WHOLE), None):
        raise CollageError(f"{other} runs the whole model, so its kernels are not known")
    given = [GivenKernel(k.backend, k.bindings, k.label, k.threads) for k in plan.kernels]
    chosen = named_candidates(graph, given, _WHERE)
    covered = index_set(index for candidate in chosen for index in candidate.indexes)
    together = (*chosen, *views_beside(graph, covered))
    return tuple(replace(candidate, id=number) for number, candidate in enumerate(together))


def _replaceable(graph: DataflowGraph, name: str, chosen: Sequence[Candidate]) -> list[OffloadedKernel]:
    """The kernels of backends that TVM could make too: it can compile each of their bindings as it is."""
    names, free = binding_names(graph), possible_without_kernels(graph)
    return [
        OffloadedKernel(name, candidate, tuple(names[index] for index in candidate.indexes))
        for candidate in chosen
        if candidate.backend not in (_TVM, VIEW) and not index_set(candidate.indexes) & ~free
    ]


def annotated_with(passes: Sequence[tvm.transform.Pass], imported: IRModule, target: Target) -> IRModule:
    """An imported module after ``passes``, under the target."""
    with target:
        return tvm.transform.Sequential(list(passes), name="collage.bisect")(imported)
