"""AnnotateCandidates: find every group of operators that a backend could make one kernel of.

Reads    the dataflow of each function.
Writes   ``collage.candidates`` and ``collage.declined``, for EstimateCosts and SearchPartition.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.target import Target

from ..annotations import CANDIDATES, DECLINED
from ..backends.base import Backend
from ..backends.native.labels import ROUNDING
from ..backends.registry import get, select
from ..cost.asking import forget
from ..errors import CollageError
from ..graph import DataflowGraph, members
from ..graph.prim_funcs import CALL_TIR
from ..graph.steps import before_steps
from ..graph.variants import is_switch, like_of
from ..index_set import EMPTY, IndexSet
from ..lowering.kernel_sizes import why_not_sized
from ..plan.candidate import VIEW, Candidate, CompositePart, DeclinedBinding
from ..rules import CancellingTransposes, Declined, Found
from ..runtime import num_threads
from ..specs import PartitionSpec, gathered
from ..target import current_target, devices_of, is_cuda

Options: TypeAlias = "tuple[tuple[str, str], ...]"
"""Names and values, sorted."""

WINOGRAD = ("winograd2", "winograd4")
"""Rules for convolutions that round differently from the direct sum, by up to 1e-5 of the range."""


@tvm.transform.module_pass(opt_level=0, name="collage.AnnotateCandidates")
@dataclass(frozen=True)
class AnnotateCandidates:
    """Ask every backend which kernels it could make of each function.

    Where ``tvm`` is not among the backends, it gets only what no other backend takes: the named backends are forced,
    and TVM does the rest.
    """

    backends: tuple[str, ...] | None = None
    """Names in preference order; None: the target's ``libs``, else all that are available."""
    specs: tuple[PartitionSpec, ...] = ()
    """More rules than those of the backends, for these backends or for other code generators."""
    without: tuple[str, ...] = ()
    """Names of rules to leave out, such as ``WINOGRAD``."""
    tf32: bool = False
    """Whether kernels may round the operands of float32 products to TensorFloat-32, as some for NVIDIA GPUs do."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        target = current_target()
        if self.tf32 and not is_cuda(target):
            raise CollageError(f"tf32 is for NVIDIA GPUs (cuda), and the target is {target.kind.name}")
        backends = select(self.backends, target)
        forget()  # what was asked about earlier candidates is not asked again
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
        for gvar, func in mod.functions_items():
            if is_partitionable(func):
                graph = DataflowGraph(func, mod)
                specs = gathered(backends, self.specs, graph, target)
                func = annotated(graph, specs, target, self.without, self.tf32, options_by_name(backends))
            functions[gvar] = func
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def is_partitionable(func: ir.BaseFunc) -> TypeGuard[relax.Function]:
    """Whether a function can be partitioned: it computes something, and no pass has made one kernel of it."""
    if not isinstance(func, relax.Function) or is_switch(func):
        return False
    return not any(name in (func.attrs or {}) for name in ("Primitive", "Composite", "Codegen"))


def annotated(
    graph: DataflowGraph,
    specs: Sequence[PartitionSpec],
    target: Target,
    without: Sequence[str] = (),
    tf32: bool = False,
    options: Mapping[str, Options] | None = None,
) -> relax.Function:
    """The function of ``graph`` with its candidates and refusals as attributes; ``options`` of libraries, by backend.

    Two specs of a backend may propose the same bindings by the same rule; that is one candidate. Cancelling transposes
    are candidates without a backend.
    """
    judge = _Judge(graph, frozenset(without), tf32)
    for spec in specs:
        judge.hear(spec.backend, spec.apply(graph, target))
    if all(spec.backend != "tvm" for spec in specs):
        judge.hear("tvm", _left_to_tvm(graph, target, taken(judge.found)))
    found = [*judge.found, *((VIEW, pair) for pair in CancellingTransposes().apply(graph))]
    candidates = tuple(
        _candidate(i, name, proposal, _threads(graph, name, proposal), (options or {}).get(name, ()))
        for i, (name, proposal) in enumerate(dict.fromkeys(found))
    )
    return DECLINED.write(CANDIDATES.write(graph.func, candidates), tuple(judge.declined))


class _Judge:
    """Sorts the answers of rules: proposals that may be kernels are ``found``, others ``declined`` with a reason."""

    def __init__(self, graph: DataflowGraph, without: frozenset[str], tf32: bool) -> None:
        self._graph, self._without, self._tf32 = graph, without, tf32
        self._like, self._stepped = like_of(graph.func), before_steps(node.binding for node in graph.nodes)
        self.found: list[tuple[str, Found]] = []
        """Each proposal with its backend."""
        self.declined: dict[DeclinedBinding, None] = {}

    def hear(self, backend: str, answers: Iterable[Found | Declined]) -> None:
        """Sort the ``answers`` of a rule of ``backend``, without kernels that round to tf32 where that is not asked."""
        for answer in answers:
            if isinstance(answer, Declined):
                refusal = DeclinedBinding(backend, answer.index, answer.reason, answer.condition)
                self.declined[refusal] = None
            elif reason := self._why_not(backend, answer):
                self.declined[DeclinedBinding(backend, answer.inside.bit_length() - 1, reason)] = None
            elif self._tf32 or not answer.rule.startswith(ROUNDING):
                self.found.append((backend, answer))

    def _why_not(self, backend: str, proposal: Found) -> str | None:
        return (
            _why_no_part(self._graph, proposal, backend)
            or _why_inexact(self._graph, proposal, backend, self._stepped)
            or why_not_sized(proposal.sub_graph(self._graph), get(backend), self._like)
            or (f"{proposal.rule} is switched off" if proposal.rule in self._without else None)
        )


def _why_no_part(graph: DataflowGraph, proposal: Found, backend: str) -> str | None:
    """Why a code generator cannot make a kernel of a proposal: it does not get the PrimFuncs of the module."""
    if get(backend).codegen is None:
        return None
    called = [graph.nodes[i].label for i in members(proposal.inside) if graph.nodes[i].op == CALL_TIR]
    return f"{called[0]} is a PrimFunc, which the code generator does not get" if called else None


def _why_inexact(
    graph: DataflowGraph, proposal: Found, backend: str, stepped: Container[relax.Var]
) -> str | None:
    """Why a kernel is not exact enough for values that must not differ in the last bit."""
    nodes = (graph.nodes[i] for i in members(proposal.inside))
    calls = [node.call for node in nodes if node.call is not None and node.var in stepped]
    reason = get(backend).why_inexact(calls) if calls else None
    return reason and f"{reason}, and later operators round or compare the result"


def options_by_name(backends: Iterable[Backend]) -> dict[str, Options]:
    """The options of those backends that have some, by name."""
    return {each.name: each.options for each in backends if each.options}


def _candidate(
    number: int, backend: str, proposal: Found, threads: int | None, options: Options
) -> Candidate:
    return Candidate(
        id=number,
        backend=backend,
        rule=proposal.rule,
        label=proposal.label,
        threads=threads,
        options=options,
        indexes=tuple(members(proposal.inside)),
        hidden=tuple(members(proposal.hidden)),
        composites=tuple(CompositePart(part.label, tuple(members(part.inside))) for part in proposal.nested),
    )


def _threads(graph: DataflowGraph, backend: str, proposal: Found) -> int | None:
    """The most threads of a kernel on a virtual device, or None."""
    last = graph.nodes[proposal.inside.bit_length() - 1]
    device = next(devices_of(last.var.ty), None)
    return None if device is None else threads_on(device.target, backend)


def threads_on(target: Target, backend: str) -> int | None:
    """The most threads of a kernel on a device with fewer cores than the pool has threads; None for others."""
    if backend == VIEW or not get(backend).limits_threads:
        return None
    cores = int(target.attrs.get("num-cores", 0))
    return cores if 0 < cores < num_threads() else None


def taken(found: Iterable[tuple[str, Found]]) -> IndexSet:
    """All nodes that are in some proposal."""
    covered = EMPTY
    for _, proposal in found:
        covered |= proposal.inside
    return covered


def _left_to_tvm(graph: DataflowGraph, target: Target, covered: IndexSet) -> Iterator[Found | Declined]:
    """TVM's answers about the nodes that no other backend takes, on any of the function's targets."""
    for spec in gathered((get("tvm"),), (), graph, target):
        for answer in spec.apply(graph, target):
            inside = answer.inside if isinstance(answer, Found) else 1 << answer.index
            if not inside & covered:
                yield answer
