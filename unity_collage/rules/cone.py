"""FusionCone: what a loop compiler fuses, grown upwards from each possible last operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..graph import DataflowGraph, IndexSet, Kind, Node, SubGraph, members
from ..graph.dataflow import has_kernel
from ..graph.order import read_outside
from ..index_set import EMPTY, size
from .base import Declined, Found, why_not_partitionable
from .prologue import prologue_of, reads_through
from .taken_back import PERMUTATION, in_pairs, reads_back
from .tree import Printed

_ANCHORS = (Kind.REDUCTION, Kind.OUT_EWISE_FUSABLE)


@dataclass(frozen=True, slots=True)
class FusionCone(Printed):
    """Regions with one exit that TVM's loop fusion makes one kernel of, by operator kind.

    As in Relay Collage: an anchor takes broadcast operators behind it (A -> B), broadcast operators go
    into a reduction (B -> R), injective ones into each other (I -> I). Beyond it, a convolution or a product takes the
    permutation or the factors of channels that it reads, or all that is computed for it alone element by element, and
    permutations behind it. A producer joins only when all its readers are inside, which makes every region convex and
    free of taps.

    With ``recompute`` there are also regions that compute a cheap producer for themselves which others read too:
    the producer is hidden. Cheap is what at most moves elements around, no anchor.
    """

    max_depth: int = 8
    """Longest path inside, in nodes."""
    max_size: int = 12
    """Most nodes inside: LLVM's time grows faster than a kernel's size."""
    max_regions: int = 16
    """How many regions are offered for one exit, smallest first; the largest is always among them."""
    name: str = "cone"
    recompute: bool = False
    """Whether cheap producers may be computed more than once."""
    max_recomputed: int = 2
    """Most nodes inside that are computed for this region only because a hidden one is."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        able = [self._why_not(graph, node) is None for node in graph.nodes]
        pairs = in_pairs(graph)
        apart = [able[node.index] and not pairs >> node.index & 1 for node in graph.nodes]
        for node in graph.nodes:
            reason = self._why_not(graph, node)
            if reason is None:
                found = list(self._regions(graph, node, apart))
                yield from found
                if pairs:  # other layouts are offered besides, in place of nothing
                    yield from (each for each in self._regions(graph, node, able) if each not in found)
            elif node.call is not None and not node.is_host:
                yield Declined(node.index, self.name, reason)

    def _why_not(self, graph: DataflowGraph, node: Node) -> str | None:
        if node.call is not None and not has_kernel(node.call):
            return f"{node.op} has no legalization"
        reason = why_not_partitionable(node)
        if reason is None and graph.kinds[node.index] > Kind.OUT_EWISE_FUSABLE:
            return f"{node.op} is opaque to TVM's fusion"
        return reason

    def _regions(self, graph: DataflowGraph, exit_node: Node, able: list[bool]) -> Iterator[Found]:
        if exit_node.is_host:
            return
        start = 1 << exit_node.index
        seen: dict[IndexSet, None] = {start: None}
        queue = [start]
        for region in queue:
            if len(seen) >= self.max_regions:
                break
            for wider in self._widened(graph, region, able):
                if wider not in seen:
                    seen[wider] = None
                    queue.append(wider)
        largest = self._largest(graph, start, able)
        offered = dict.fromkeys((*seen, largest))
        for region in offered:
            yield Found(region, self.name, SubGraph(graph, region).label)
        if self.recompute:
            for region, hidden in self._recomputing(graph, offered, able).items():
                yield Found(region, self.name, SubGraph(graph, region).label, hidden)

    def _recomputing(
        self, graph: DataflowGraph, offered: Iterable[IndexSet], able: list[bool]
    ) -> dict[IndexSet, IndexSet]:
        """Up to ``max_regions`` regions wider than those ``offered``, with what they hide, smallest first."""
        queue, seen = sorted(offered, key=size), set(offered)
        found: dict[IndexSet, IndexSet] = {}
        for region in queue:
            for wider in self._widened(graph, region, able, recompute=True):
                hidden = read_outside(graph, wider) & ~_exit_of(wider)
                if wider in seen or not hidden:
                    continue
                if len(found) >= self.max_regions:
                    return found
                seen.add(wider)
                queue.append(wider)
                found[wider] = hidden
        return found

    def _largest(self, graph: DataflowGraph, region: IndexSet, able: list[bool]) -> IndexSet:
        while (wider := next(self._widened(graph, region, able), None)) is not None:
            region = wider
        return region

    def _widened(
        self, graph: DataflowGraph, region: IndexSet, able: list[bool], *, recompute: bool = False
    ) -> Iterator[IndexSet]:
        """``region`` with one more producer, or with all that its anchor computes before itself by bands of rows."""
        sub = SubGraph(graph, region)
        for source in members(sub.input):
            wider = region | (_joining(graph, region, source, recompute) if able[source] else EMPTY)
            shared = bool(graph.consumers[source] & ~region or graph.results >> source & 1)
            if (
                wider != region
                and (not shared or recompute)
                and graph.nodes[source].block == graph.nodes[region.bit_length() - 1].block
                and all(able[i] for i in members(wider & ~region))
                and not reads_back(graph, region, source)
                and size(wider) <= self.max_size
                and SubGraph(graph, wider).depth <= self.max_depth
                and (not recompute or self._may_recompute(graph, _recomputed(graph, wider)))
            ):
                yield wider

    def _may_recompute(self, graph: DataflowGraph, again: IndexSet) -> bool:
        return size(again) <= self.max_recomputed and all(
            graph.kinds[i] <= Kind.INJECTIVE and not graph.nodes[i].is_host for i in members(again)
        )


def _exit_of(region: IndexSet) -> IndexSet:
    return 1 << region.bit_length() - 1


def _recomputed(graph: DataflowGraph, region: IndexSet) -> IndexSet:
    """What ``region`` computes beside others: nodes read outside, and those that feed nothing else inside."""
    found = read_outside(graph, region) & ~_exit_of(region)
    for i in sorted(members(region), reverse=True):
        readers = graph.consumers[i] & region
        if readers and not readers & ~found:
            found |= 1 << i
    return found


def _joining(graph: DataflowGraph, region: IndexSet, source: int, recompute: bool) -> IndexSet:
    """What joins the kernel of ``region`` with ``source``; nothing if that cannot."""
    if _fuses(graph, region, source):
        return 1 << source
    if recompute:
        return EMPTY
    anchor = next((i for i in members(region) if graph.kinds[i] is Kind.OUT_EWISE_FUSABLE), None)
    if anchor is None or graph.upstream[anchor] & region != 1 << anchor or _goes_on(graph, region):
        return EMPTY
    return prologue_of(graph, graph.nodes[anchor], graph.nodes[source])


def _goes_on(graph: DataflowGraph, region: IndexSet) -> bool:
    """Whether an operator behind the region would join it: a kernel by bands of rows is offered whole only."""
    last = region.bit_length() - 1
    readers = graph.consumers[last]
    if graph.results >> last & 1 or size(readers) != 1:
        return False
    return graph.kinds[readers.bit_length() - 1] <= Kind.BROADCAST


def _fuses(graph: DataflowGraph, region: IndexSet, source: int) -> bool:
    """Whether the kinds allow ``source`` to be computed inside the kernel of ``region``."""
    kind = graph.kinds[source]
    anchor = next((i for i in members(region) if graph.kinds[i] in _ANCHORS), None)
    if kind in _ANCHORS:
        behind = all(
            graph.kinds[i] <= Kind.BROADCAST or graph.nodes[i].op == PERMUTATION for i in members(region)
        )
        return kind is Kind.OUT_EWISE_FUSABLE and anchor is None and behind
    if anchor is None:
        return True
    if graph.upstream[anchor] >> source & 1 and graph.kinds[anchor] is Kind.OUT_EWISE_FUSABLE:
        return reads_through(graph.nodes[anchor], graph.nodes[source])
    return kind <= Kind.BROADCAST
