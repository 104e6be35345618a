"""Coalescing: touching kernels with one tag are merged while the plan keeps an order to run in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..graph import DataflowGraph, IndexSet, Limits, Nested, SubGraph, disjoint_union
from ..graph.order import NodeGroup, why_no_order
from ..index_set import EMPTY, first_n, members
from .base import Declined, Found, Rule, label_of
from .tree import Printed


@dataclass(frozen=True, slots=True)
class TaggedKernel:
    """One kernel of a plan, with a tag."""

    inside: IndexSet
    tag: str
    """Its backend, for instance: only kernels with equal tags are merged."""
    hidden: IndexSet = EMPTY
    nested: tuple[Nested, ...] = ()

    def sub_graph(self, graph: DataflowGraph) -> SubGraph:
        return SubGraph(graph, self.inside, self.hidden, self.nested)


def coalesce(
    graph: DataflowGraph, kernels: Sequence[TaggedKernel], limits: Limits
) -> tuple[TaggedKernel, ...]:
    """``kernels``, by index, after merging touching kernels of one tag until no merge is left.

    Each merged kernel is valid within ``limits``, and all kernels can still run one after the other. Convexity of each
    kernel is not enough for that (:func:`~unity_collage.graph.order.why_no_order`). Kernels that cannot be ordered to
    begin with are returned unchanged.
    """
    plan = sorted(kernels, key=lambda kernel: kernel.inside)
    if why_not_plan(graph, plan) is not None:
        return tuple(plan)
    while _sweep(graph, plan, limits):
        pass
    return tuple(sorted(plan, key=lambda kernel: kernel.inside))


def _sweep(graph: DataflowGraph, plan: list[TaggedKernel], limits: Limits) -> bool:
    """Merge each kernel with its readers, in place; returns whether anything changed."""
    before, position = len(plan), 0
    while position < len(plan):
        merged = next(_merged(graph, plan, position, limits), None)
        if merged is None:
            position += 1
        else:
            other, whole = merged
            plan[position] = whole
            plan.remove(other)
            position = plan.index(whole)
    return len(plan) < before


def why_not_plan(graph: DataflowGraph, kernels: Sequence[TaggedKernel]) -> str | None:
    """Why the kernels, with each other node computed alone, cannot run one after the other, or None."""
    groups = (NodeGroup(kernel.inside, kernel.inside & ~kernel.hidden) for kernel in kernels)
    return why_no_order(graph, groups, first_n(len(graph)))


def _merged(
    graph: DataflowGraph, plan: list[TaggedKernel], position: int, limits: Limits
) -> Iterator[tuple[TaggedKernel, TaggedKernel]]:
    """The kernels that can be merged into the one at ``position``, each with the merged kernel."""
    first = plan[position]
    upper = first.sub_graph(graph)
    readers = EMPTY
    for i in members(upper.exit):
        readers |= graph.consumers[i]
    for other in plan:
        if other.tag != first.tag or other is first or not other.inside & readers:
            continue
        union = disjoint_union(upper, other.sub_graph(graph))
        if isinstance(union, str) or union.why_not_valid(limits) is not None:
            continue
        whole = TaggedKernel(union.inside, first.tag, union.hidden, union.nested)
        rest = [kernel for kernel in plan if kernel is not first and kernel is not other]
        if why_not_plan(graph, [*rest, whole]) is None:
            yield other, whole


@dataclass(frozen=True, slots=True)
class MaxCoalesce(Printed):
    """The largest kernels that result from merging touching proposals of ``rule``.

    Where proposals overlap, the largest one is taken, and the first of equally large ones. Smaller kernels are not
    offered, as in greedy partitioners such as ``partition_for_*``; a Union with ``rule`` offers both.
    """

    rule: Rule
    limits: Limits = field(default_factory=lambda: Limits(max_exits=0, allow_taps=True))
    name: str = "coalesce"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        proposals: list[Found] = []
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Declined):
                yield proposal
            else:
                proposals.append(proposal)
        for kernel in coalesce(graph, self._apart(graph, proposals), self.limits):
            label = label_of(graph, kernel.inside, kernel.nested)
            yield Found(kernel.inside, self.name, label, kernel.hidden, kernel.nested)

    def _apart(self, graph: DataflowGraph, proposals: list[Found]) -> list[TaggedKernel]:
        """Proposals that share no node and can run one after the other; single nodes always can."""
        taken, kernels = EMPTY, list[TaggedKernel]()
        for found in sorted(proposals, key=lambda found: -found.inside.bit_count()):
            kernel = TaggedKernel(found.inside, self.name, found.hidden, found.nested)
            alone = found.inside.bit_count() == 1
            if not found.inside & taken and (alone or why_not_plan(graph, [*kernels, kernel]) is None):
                taken |= found.inside
                kernels.append(kernel)
        return kernels
