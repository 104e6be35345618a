"""FusionCone: the groups that a loop compiler fuses, grown upwards from each possible last operator.

Each group is a *fanout-free cone*, a term of logic synthesis (Cong and Ding, "On Area/Depth Trade-Off in LUT-Based FPGA
Technology Mapping", 1994): all readers of a member but the last one are members. TVM's FuseOps makes one group of a
possible cone, by post-dominators and operator kinds. Here smaller cones are offered too, since the operators that they
leave out may be worth more in a neighbouring kernel.

Invariants of every region: one exit, its last node; every path from a member leads to that exit inside the region, so
it is convex; at most one anchor (a reduction, a convolution or a product).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..graph import DataflowGraph, IndexSet, Node, OpKind, SubGraph, members
from ..graph.dataflow import has_kernel
from ..graph.order import read_outside
from ..graph.prim_funcs import CALL_TIR, why_not_fused
from ..index_set import EMPTY, size
from .base import Declined, Found, why_not_partitionable
from .cancelling import PERMUTATION, cancelling_transposes, cancels_inside
from .fields import is_field, with_fields
from .prologue import prologue_of, reads_through
from .tree import Printed

_ANCHORS = (OpKind.REDUCTION, OpKind.OUT_EWISE_FUSABLE)


@dataclass(frozen=True, slots=True)
class FusionCone(Printed):
    """Regions with one exit that TVM's loop fusion makes one kernel of, by operator kind.

    The rules are those of Relay Collage. An anchor is followed by broadcast operators (A -> B). Broadcast operators
    feed a reduction (B -> R). Injective operators feed each other (I -> I). Four are added. A convolution or a product
    takes in the transpose or the channel factors that it reads. It takes in a chain of element-wise operators that only
    it reads. It may be followed by transposes. An opaque PrimFunc is a region by itself. A producer joins only when all
    its readers are inside, so every region is convex and has no taps; one with several results joins with all of them.

    With ``recompute``, a region may also compute a cheap producer for itself that other nodes read too; that producer
    is hidden. Cheap operators are those up to INJECTIVE.
    """

    max_depth: int = 8
    """Nodes on the longest path inside."""
    max_size: int = 12
    """Most nodes inside: LLVM's compile time grows faster than the size of a kernel."""
    max_regions: int = 16
    """How many regions are offered for one exit, smallest first; the largest one is always among them."""
    name: str = "cone"
    recompute: bool = False
    """Whether cheap producers may be computed more than once."""
    max_recomputed: int = 2
    """Most nodes that a region computes again: the hidden ones, and the producers that feed nothing else inside."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        able = self.able(graph)
        pairs = cancelling_transposes(graph)
        apart = [able[node.index] and not pairs >> node.index & 1 for node in graph.nodes]
        for node in graph.nodes:
            reason = self._why_not(graph, node)
            if reason is None:
                found = list(self._regions(graph, node, apart))
                yield from found
                if pairs:  # cancelling transposes separate two layouts: offer regions across them too
                    yield from (each for each in self._regions(graph, node, able) if each not in found)
                continue
            if _stands_alone(node):
                yield Found(1 << node.index, self.name, node.label)
            if (node.call is not None and not node.is_host) or node.op.startswith("call:"):
                yield Declined(node.index, self.name, reason)

    def able(self, graph: DataflowGraph) -> list[bool]:
        """For each node, whether it may be in a region: an operator, or a projection of one."""
        able = [self._why_not(graph, node) is None for node in graph.nodes]
        return [able[node.index] if node.op != "getitem" else is_field(node, able) for node in graph.nodes]

    def _why_not(self, graph: DataflowGraph, node: Node) -> str | None:
        reason = _why_no_kernel(node) or why_not_partitionable(node)
        if reason is None and graph.kinds[node.index] > OpKind.OUT_EWISE_FUSABLE:
            return f"{_name(node)} is opaque to TVM's fusion"
        return reason

    def _regions(self, graph: DataflowGraph, exit_node: Node, able: list[bool]) -> Iterator[Found | Declined]:
        if exit_node.is_host:
            return
        start = 1 << exit_node.index
        seen: dict[IndexSet, None] = {start: None}
        queue = [start]
        for position, region in enumerate(queue):
            if len(seen) >= self.max_regions:
                waiting = queue[position:]
                break
            for wider in self._widened(graph, region, able):
                if wider not in seen:
                    seen[wider] = None
                    queue.append(wider)
        else:
            waiting = []
        largest = self.largest(graph, start, able)
        offered = dict.fromkeys((*seen, largest))
        for region in offered:
            yield Found(region, self.name, SubGraph(graph, region).label)
        if not self.recompute:
            yield from self._beyond_limits(graph, offered, waiting, able)
            return
        again = self._recomputing(graph, offered, able)
        for region, hidden in again.items():
            yield Found(region, self.name, SubGraph(graph, region).label, hidden)
        if len(again) >= self.max_regions:
            reason = f"only {self.max_regions} groups that compute an operator again are offered"
            yield Declined(exit_node.index, self.name, reason, "limit")

    def _beyond_limits(
        self, graph: DataflowGraph, offered: Iterable[IndexSet], waiting: Iterable[IndexSet], able: list[bool]
    ) -> Iterator[Declined]:
        """The limits that keep groups from being offered. ``waiting``: regions that were not widened."""
        *_, largest = offered
        last, known = largest.bit_length() - 1, set(offered)
        if any(wider not in known for region in waiting for wider in self._widened(graph, region, able)):
            reason = f"only the {self.max_regions} smallest groups and the largest one are offered"
            yield Declined(last, self.name, reason, "limit")
        endless = replace(self, max_depth=len(graph), max_size=len(graph))
        if next(endless._widened(graph, max(known, key=size), able), None) is not None:
            reason = f"groups of more than {self.max_size} operators, or {self.max_depth} in a row, are not offered"
            yield Declined(last, self.name, reason, "limit")

    def _recomputing(
        self, graph: DataflowGraph, offered: Iterable[IndexSet], able: list[bool]
    ) -> dict[IndexSet, IndexSet]:
        """Up to ``max_regions`` regions wider than those ``offered``, smallest first, each with its hidden nodes."""
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

    def largest(self, graph: DataflowGraph, region: IndexSet, able: list[bool]) -> IndexSet:
        """The largest region that grows from ``region``."""
        while (wider := next(self._widened(graph, region, able), None)) is not None:
            region = wider
        return region

    def _widened(
        self, graph: DataflowGraph, region: IndexSet, able: list[bool], *, recompute: bool = False
    ) -> Iterator[IndexSet]:
        """``region`` with one more producer, or with the whole prologue that its anchor computes by bands of rows."""
        sub = SubGraph(graph, region)
        for source in members(sub.input):
            wider = region | (_joining(graph, region, source, recompute) if able[source] else EMPTY)
            shared = bool(graph.consumers[source] & ~region or graph.results >> source & 1)
            if (
                wider != region
                and (not shared or recompute)
                and graph.nodes[source].block == graph.nodes[region.bit_length() - 1].block
                and all(able[i] for i in members(wider & ~region))
                and not cancels_inside(graph, region, source)
                and size(wider) <= self.max_size
                and SubGraph(graph, wider).depth <= self.max_depth
                and (not recompute or self._may_recompute(graph, _recomputed(graph, wider)))
            ):
                yield wider

    def _may_recompute(self, graph: DataflowGraph, again: IndexSet) -> bool:
        return size(again) <= self.max_recomputed and all(
            graph.kinds[i] <= OpKind.INJECTIVE and not graph.nodes[i].is_host for i in members(again)
        )


def _why_no_kernel(node: Node) -> str | None:
    """Why TVM makes no kernel of a call that could be fused, or None."""
    if node.call is None:
        return None
    if node.prim is not None:
        reason = why_not_fused(node.call, node.prim)
        return reason and f"{_name(node)}: {reason}"
    return None if has_kernel(node.call) else f"{node.op} has no legalization"


def _stands_alone(node: Node) -> bool:
    """Whether a node that does not fuse is a kernel by itself: a PrimFunc with loops that are not final."""
    return node.prim is not None and _why_no_kernel(node) is None and why_not_partitionable(node) is None


def _name(node: Node) -> str:
    return f"the PrimFunc {node.label}" if node.op == CALL_TIR else node.op


def _exit_of(region: IndexSet) -> IndexSet:
    return 1 << region.bit_length() - 1


def _recomputed(graph: DataflowGraph, region: IndexSet) -> IndexSet:
    """The nodes that ``region`` computes again: those read outside, and those that feed only such nodes inside."""
    found = read_outside(graph, region) & ~_exit_of(region)
    for i in sorted(members(region), reverse=True):
        readers = graph.consumers[i] & region
        if readers and not readers & ~found:
            found |= 1 << i
    return found


def _joining(graph: DataflowGraph, region: IndexSet, source: int, recompute: bool) -> IndexSet:
    """The nodes that join the kernel of ``region`` together with ``source``; empty if ``source`` cannot join."""
    if graph.nodes[source].op == "getitem":
        whole = EMPTY if recompute else with_fields(graph, region, source)
        return whole if whole and _fuses(graph, region, graph.nodes[source].inputs[0]) else EMPTY
    if _fuses(graph, region, source):
        return 1 << source
    if recompute:
        return EMPTY
    anchor = next((i for i in members(region) if graph.kinds[i] is OpKind.OUT_EWISE_FUSABLE), None)
    if anchor is None or graph.upstream[anchor] & region != 1 << anchor or _epilogue_follows(graph, region):
        return EMPTY
    return prologue_of(graph, graph.nodes[anchor], graph.nodes[source])


def _epilogue_follows(graph: DataflowGraph, region: IndexSet) -> bool:
    """Whether an operator behind the region would join it: kernels by bands of rows are offered with their epilogue."""
    last = region.bit_length() - 1
    readers = graph.consumers[last]
    if graph.results >> last & 1 or size(readers) != 1:
        return False
    return graph.kinds[readers.bit_length() - 1] <= OpKind.BROADCAST


def _fuses(graph: DataflowGraph, region: IndexSet, source: int) -> bool:
    """Whether the kinds allow ``source`` to be computed inside the kernel of ``region``."""
    kind = graph.kinds[source]
    anchor = next((i for i in members(region) if graph.kinds[i] in _ANCHORS), None)
    if kind in _ANCHORS:
        behind = all(
            graph.kinds[i] <= OpKind.BROADCAST or graph.nodes[i].op == PERMUTATION for i in members(region)
        )
        return kind is OpKind.OUT_EWISE_FUSABLE and anchor is None and behind
    if anchor is None:
        return True
    if graph.upstream[anchor] >> source & 1 and graph.kinds[anchor] is OpKind.OUT_EWISE_FUSABLE:
        return reads_through(graph.nodes[anchor], graph.nodes[source])
    return kind <= OpKind.BROADCAST
