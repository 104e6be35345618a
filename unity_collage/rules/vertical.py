"""Vertical: consecutive anchors as one kernel, with the cheap operators between them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..graph import DataflowGraph, Limits, OpKind, SubGraph
from ..graph.union import disjoint_union
from ..index_set import IndexSet, members
from .base import Declined, Found, Rule, label_of, only_reader
from .tree import Printed

_VALID = Limits()


@dataclass(frozen=True, slots=True)
class Vertical(Printed):
    """A chain of proposals, one of each of the ``stages``: two convolutions, or product, softmax, product.

    Between two stages there may be up to ``max_between`` operators that only the next one reads, such as the scale and
    the mask of attention. The whole has one exit. Single stages are not offered again.
    """

    stages: tuple[Rule, ...]
    between: OpKind = OpKind.BROADCAST
    """The largest kind of the operators between stages."""
    max_between: int = 2
    max_kernels: int = 32
    """How many kernels are offered for one last node, in index order."""
    name: str = "vertical"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        stages: list[list[SubGraph]] = []
        for rule in self.stages:
            stages.append([])
            for proposal in rule.apply(graph):
                if isinstance(proposal, Declined):
                    yield proposal
                else:
                    stages[-1].append(proposal.sub_graph(graph))
        following = [_by_input(stage) for stage in stages[1:]]
        seen: set[IndexSet] = set()
        kernels: Counter[int] = Counter()
        for start in stages[0]:
            for whole in self._continued(start, start, following):
                last = whole.inside.bit_length() - 1
                kernels[last] += whole.inside not in seen
                if whole.inside in seen or kernels[last] > self.max_kernels + 1:
                    continue
                seen.add(whole.inside)
                yield self._judged(whole, within=kernels[last] <= self.max_kernels)

    def _continued(
        self, begun: SubGraph, stage: SubGraph, following: list[dict[int, list[SubGraph]]]
    ) -> Iterator[SubGraph]:
        """``begun``, which ends with ``stage``, continued by each possible choice of the ``following`` stages."""
        if not following:
            yield begun
            return
        for glued, tail in self._glued(begun, stage.exit.bit_length() - 1):
            for follower in following[0].get(tail, ()):
                union = disjoint_union(glued, follower)
                if not isinstance(union, str):
                    yield from self._continued(union, follower, following[1:])

    def _glued(self, begun: SubGraph, tail: int) -> Iterator[tuple[SubGraph, int]]:
        """``begun`` with none, one, ... of the cheap operators that follow it, and the node where it then ends."""
        yield begun, tail
        graph = begun.graph
        for _ in range(self.max_between):
            reader = only_reader(graph, graph.nodes[tail])
            if reader is None or graph.kinds[reader.index] > self.between:
                return
            tail = reader.index
            longer = disjoint_union(begun, SubGraph(graph, 1 << tail))
            if isinstance(longer, str):
                return
            begun = longer
            yield begun, tail

    def _judged(self, whole: SubGraph, *, within: bool) -> Found | Declined:
        label = label_of(whole.graph, whole.inside, whole.nested)
        last = whole.inside.bit_length() - 1
        if not within:
            return Declined(last, self.name, f"more than {self.max_kernels} kernels end here", "limit")
        if reason := whole.why_not_valid(_VALID):
            return Declined(last, self.name, f"{label}: {reason}", "validity")
        return Found(whole.inside, self.name, label, whole.hidden, whole.nested)


def _by_input(stage: list[SubGraph]) -> dict[int, list[SubGraph]]:
    found: dict[int, list[SubGraph]] = defaultdict(list)
    for sub in stage:
        for source in members(sub.input):
            found[source].append(sub)
    return found
