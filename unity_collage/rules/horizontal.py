"""Horizontal: parallel branches that read one value, as one kernel with several results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tvm import relax

from ..graph import DataflowGraph, IndexSet, Limits, SubGraph, outside_vars
from ..graph.union import disjoint_union
from ..index_set import members
from .base import Declined, Found, Rule, label_of
from .tree import Printed


@dataclass(frozen=True, slots=True)
class Horizontal(Printed):
    """Groups of two or more equal proposals of ``rule`` that read a common value and do not depend on each other.

    Proposals are equal if they have the same label: the products of queries, keys and values, or the 1x1 convolutions
    that an Inception block begins with. Each branch keeps its exits. Single proposals are not offered again.
    """

    rule: Rule
    max_branches: int = 4
    max_groups: int = 16
    """How many groups are offered for one common value, smallest first; the largest one is always among them."""
    name: str = "horizontal"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        branches: dict[tuple[relax.Var, str], dict[IndexSet, SubGraph]] = defaultdict(dict)
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Declined):
                yield proposal
                continue
            sub = proposal.sub_graph(graph)
            if sub.why_not_valid(Limits(max_exits=0)) is None:
                for var in outside_vars(sub):
                    branches[var, proposal.label].setdefault(proposal.inside, sub)
        seen: set[IndexSet] = set()
        for (var, _), subs in branches.items():
            for proposal in self._groups(graph, var, sorted(subs.values(), key=lambda sub: sub.inside)):
                if isinstance(proposal, Declined) or proposal.inside not in seen:
                    yield proposal
                if isinstance(proposal, Found):
                    seen.add(proposal.inside)

    def _groups(
        self, graph: DataflowGraph, var: relax.Var, branches: list[SubGraph]
    ) -> Iterator[Found | Declined]:
        groups = list(islice(self._grown(branches), self.max_groups + 1))
        for group in groups[: self.max_groups]:
            yield self._found(group)
        if len(groups) > self.max_groups:
            largest = self._largest(branches)
            yield self._found(largest)
            reason = f"{len(branches)} branches read {var.name}: {self.max_groups} groups and the largest are offered"
            yield Declined(largest.inside.bit_length() - 1, self.name, reason, "limit")

    def _grown(self, branches: list[SubGraph]) -> Iterator[SubGraph]:
        """All groups of up to ``max_branches`` branches, by the number of branches and then by index."""
        groups = list(enumerate(branches))
        for _ in range(self.max_branches - 1):
            larger: list[tuple[int, SubGraph]] = []
            for last, group in groups:
                for i in range(last + 1, len(branches)):
                    union = _joined_branches(group, branches[i])
                    if union is not None:
                        yield union
                        larger.append((i, union))
            groups = larger

    def _largest(self, branches: list[SubGraph]) -> SubGraph:
        group, count = branches[0], 1
        for branch in branches[1:]:
            union = _joined_branches(group, branch) if count < self.max_branches else None
            if union is not None:
                group, count = union, count + 1
        return group

    def _found(self, group: SubGraph) -> Found:
        label = label_of(group.graph, group.inside, group.nested)
        return Found(group.inside, self.name, label, group.hidden, group.nested)


def _joined_branches(group: SubGraph, branch: SubGraph) -> SubGraph | None:
    """The union of both, if neither needs a value of the other and they are in one block; else None."""
    graph = group.graph
    blocks = {graph.nodes[sub.inside.bit_length() - 1].block for sub in (group, branch)}
    if len(blocks) > 1 or _needs(group, branch) or _needs(branch, group):
        return None
    union = disjoint_union(group, branch)
    return None if isinstance(union, str) else union


def _needs(reader: SubGraph, maker: SubGraph) -> bool:
    upstream = reader.graph.upstream
    return any(upstream[source] & maker.inside for source in members(reader.input))
