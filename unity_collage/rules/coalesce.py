"""Coalescing: kernels that touch and are of one kind become one, as far as the plan stays a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..graph import DataflowGraph, IndexSet, Limits, Nested, SubGraph, disjoint_union
from ..graph.order import Unit, why_no_order
from ..index_set import EMPTY, first_n, members
from .base import Declined, Found, Rule, label_of
from .tree import Printed


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a plan."""

    inside: IndexSet
    tag: str
    """Whose it is: only kernels of one tag are merged."""
    hidden: IndexSet = EMPTY
    nested: tuple[Nested, ...] = ()

    def sub_graph(self, graph: DataflowGraph) -> SubGraph:
        return SubGraph(graph, self.inside, self.hidden, self.nested)


def coalesce(graph: DataflowGraph, kernels: Sequence[Kernel], limits: Limits) -> tuple[Kernel, ...]:
    """``kernels`` with touching ones of one tag merged, again and again, by index.

    A merged kernel is valid within ``limits``, and the whole remains a plan whose kernels can run one after
    the other. Pairwise convexity would not do: of a -> b, a -> d, c -> b, c -> d both {a,d} and {c,b} are convex,
    but each waits for the other. Kernels that have no order to begin with are given back as they are.
    """
    plan = sorted(kernels, key=lambda kernel: kernel.inside)
    if why_not_plan(graph, plan) is not None:
        return tuple(plan)
    while _sweep(graph, plan, limits):
        pass
    return tuple(sorted(plan, key=lambda kernel: kernel.inside))


def _sweep(graph: DataflowGraph, plan: list[Kernel], limits: Limits) -> bool:
    """Lets each kernel swallow its readers, in place; whether anything has changed."""
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


def why_not_plan(graph: DataflowGraph, kernels: Sequence[Kernel]) -> str | None:
    """Why the kernels, with each other node computed alone, cannot run one after the other, or None."""
    units = (Unit(kernel.inside, kernel.inside & ~kernel.hidden) for kernel in kernels)
    return why_no_order(graph, units, first_n(len(graph)))


def _merged(
    graph: DataflowGraph, plan: list[Kernel], position: int, limits: Limits
) -> Iterator[tuple[Kernel, Kernel]]:
    """The kernels that the one at ``position`` can swallow, and what the two become."""
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
        whole = Kernel(union.inside, first.tag, union.hidden, union.nested)
        rest = [kernel for kernel in plan if kernel is not first and kernel is not other]
        if why_not_plan(graph, [*rest, whole]) is None:
            yield other, whole


@dataclass(frozen=True, slots=True)
class MaxCoalesce(Printed):
    """The largest kernels that proposals of ``rule`` grow into when touching ones are merged.

    Of proposals that overlap the largest counts, of equal ones the first. Nothing smaller is offered: this is what
    greedy partitioners do with a whole network, and a Union with ``rule`` offers both.
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

    def _apart(self, graph: DataflowGraph, proposals: list[Found]) -> list[Kernel]:
        """Proposals that share no node and can run one after the other, which single nodes always can."""
        taken, kernels = EMPTY, list[Kernel]()
        for found in sorted(proposals, key=lambda found: -found.inside.bit_count()):
            kernel = Kernel(found.inside, self.name, found.hidden, found.nested)
            alone = found.inside.bit_count() == 1
            if not found.inside & taken and (alone or why_not_plan(graph, [*kernels, kernel]) is None):
                taken |= found.inside
                kernels.append(kernel)
        return kernels
