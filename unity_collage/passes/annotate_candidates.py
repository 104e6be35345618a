"""AnnotateCandidates: every (sub-graph, backend) pair that could become one kernel.

Reads    the dataflow of each function.
Writes   ``collage.candidates`` and ``collage.declined``, for EstimateCosts and SearchPartition.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import CANDIDATES, DECLINED, Candidate, Refusal
from ..backends.base import Backend
from ..backends.registry import get, select
from ..graph import DataflowGraph, members
from ..index_set import EMPTY, IndexSet
from ..rules import Declined, Found
from ..target import current_target


@tvm.transform.module_pass(opt_level=0, name="collage.AnnotateCandidates")
@dataclass(frozen=True)
class AnnotateCandidates:
    """Ask every backend what it could make of each function.

    Where ``tvm`` is not among the backends it is offered only what no other backend takes: the backends
    named are forced, TVM does the rest.
    """

    backends: tuple[str, ...] | None = None
    """Names, in preference order; None: the target's ``libs``, else all that are available."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        target = current_target()
        backends = select(self.backends, target)
        functions = {
            gvar: annotated(func, backends, target) if is_partitionable(func) else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs)


def is_partitionable(func: tvm.ir.BaseFunc) -> bool:
    """Whether a function is still whole: not what some pass has already made one kernel of."""
    if not isinstance(func, relax.Function):
        return False
    return not any(name in (func.attrs or {}) for name in ("Primitive", "Composite", "Codegen"))


def annotated(func: relax.Function, backends: Sequence[Backend], target: Target) -> relax.Function:
    """``func`` with its candidates and refusals as attributes."""
    graph = DataflowGraph(func)
    found: list[tuple[str, Found]] = []
    declined: dict[Refusal, None] = {}
    for backend in backends:
        for proposal in backend.rule(target).apply(graph):
            if isinstance(proposal, Declined):
                declined[Refusal(backend.name, proposal.index, proposal.reason)] = None
            else:
                found.append((backend.name, proposal))
    if all(backend.name != "tvm" for backend in backends):
        found += [("tvm", rest) for rest in _left_to_tvm(graph, target, taken(found))]
    distinct = dict.fromkeys((name, proposal) for name, proposal in found)
    candidates = tuple(
        Candidate(i, name, proposal.rule, proposal.label, tuple(members(proposal.inside)))
        for i, (name, proposal) in enumerate(distinct)
    )
    return DECLINED.write(CANDIDATES.write(func, candidates), tuple(declined))


def taken(found: Iterable[tuple[str, Found]]) -> IndexSet:
    """All nodes in any proposal."""
    covered = EMPTY
    for _, proposal in found:
        covered |= proposal.inside
    return covered


def _left_to_tvm(graph: DataflowGraph, target: Target, covered: IndexSet) -> Iterable[Found]:
    for proposal in get("tvm").rule(target).apply(graph):
        if isinstance(proposal, Found) and not proposal.inside & covered:
            yield proposal
