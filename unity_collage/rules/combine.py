"""Combine: the larger kernels that can be put together from the proposals of another rule.

The regions form the smallest set that contains the proposals and is closed under joining two touching regions: a least
fixed point, which a worklist computes. ``CombinePartitionRule`` of the Collage RFC for Relay does the same; the order
of enumeration and the limits on number and work are ours, since the set may be exponentially large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..graph import DataflowGraph, IndexSet, Limits, Nested, SubGraph, members
from ..graph.union import in_order
from ..index_set import EMPTY
from .base import Declined, Found, Rule, label_of
from .combiners import Combiner
from .region import Region, joined, region
from .tree import Printed

Key = tuple[IndexSet, IndexSet, tuple[Nested, ...]]


@dataclass(frozen=True, slots=True)
class Combine(Printed):
    """The proposals of ``rule``, and the unions of touching regions that one of the combiners joins.

    The limits hold at every step. A region with one exit grows from its exit upwards, one producer after the other, and
    each intermediate region has one exit too. To reach regions by way of wider ones, widen the limits and wrap the rule
    in OnlyValid.
    """

    rule: Rule
    combiners: tuple[Combiner, ...]
    limits: Limits = field(default_factory=lambda: Limits(max_depth=8))
    max_size: int = 12
    """Most nodes inside a union; 0 means no limit."""
    max_unions: int = 32
    """How many unions are offered for one last node, smallest first; the largest one is added. 0 means no limit."""
    max_work: int = 4096
    """Work that is spent for one last node: 1 for a pair of regions, 8 more if their union is checked. 0 means no
    limit."""
    name: str = "combine"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        proposals: list[Found] = []
        for proposal in self.rule.apply(graph):
            yield proposal
            if isinstance(proposal, Found):
                proposals.append(proposal)
        yield from _Enumeration(self, graph, proposals).unions()


class _Enumeration:
    """The unions by last node in ascending order, and for each last node by size.

    Invariant: when the regions that end at node ``n`` are enumerated, all regions that end before ``n`` are known.
    The reason is that a union ends where the later of its two parts ends. Each pair of touching regions is tried
    once: when the second of the two is registered, two indexes (by exit node and by input node) find the first.
    """

    def __init__(self, rule: Combine, graph: DataflowGraph, proposals: Iterable[Found]):
        self._rule = rule
        self._graph = graph
        self._seen: set[Key] = set()
        """Keys that were made or refused. During the enumeration it holds those of the current last node only."""
        self._work = 0
        self._cut_off: set[int] = set()
        """The last nodes of unions that are too large to be offered."""
        self._starts: dict[int, list[tuple[Region, bool]]] = defaultdict(list)
        """By last node, the regions to begin with; True marks a union."""
        self._by_exit: dict[int, list[Region]] = defaultdict(list)
        self._by_input: dict[int, list[Region]] = defaultdict(list)
        for found in proposals:
            self._start(region(graph, found.inside, found.hidden, found.nested))
        self._seeds = EMPTY
        for combiner in rule.combiners:
            for i in members(combiner.seeds(graph)):
                if self._start(region(graph, 1 << i, is_seed=True)):
                    self._seeds |= 1 << i
        self._widening = [c for c in rule.combiners if type(c).widened is not Combiner.widened]

    def _start(self, part: Region) -> bool:
        if part.key in self._seen:
            return False
        self._seen.add(part.key)
        self._starts[part.last].append((part, False))
        return True

    def unions(self) -> Iterator[Found | Declined]:
        for last in range(len(self._graph)):
            yield from self._ending_at(last)

    def _ending_at(self, last: int) -> Iterator[Found | Declined]:
        limit = self._rule.max_unions
        count, offered, overflow = 0, None, False
        pending = [
            (part.size, order, part, union) for order, (part, union) in enumerate(self._starts.pop(last, []))
        ]
        pending.sort(key=lambda entry: entry[:2])
        self._work, self._seen = 0, {part.key for _, _, part, _ in pending}
        order = len(pending)
        while pending:
            _, _, part, is_union = heappop(pending)
            if is_union and limit and count >= limit:
                overflow = True
                continue
            self._register(part)
            if is_union and self._is_offered(part):
                count, offered = count + 1, part
                yield self._found(part)
            for wider in self._wider(part):
                if wider.last == last:
                    heappush(pending, (wider.size, order, wider, True))
                    order += 1
                elif all(wider.key != start.key for start, _ in self._starts[wider.last]):
                    self._starts[wider.last].append((wider, True))
        if overflow or self._is_spent():
            yield from self._overflowed(last, offered)
        if last in self._cut_off:
            reason = f"unions of more than {self._rule.max_size} operators are not offered"
            yield Declined(last, self._rule.name, reason, "limit")

    def _overflowed(self, last: int, offered: Region | None) -> Iterator[Found | Declined]:
        """The largest union that ends at ``last``, grown from the last one ``offered``; and what the limits hide."""
        if offered is None:
            reason = f"unions that end here are not all tried: more than {self._rule.max_work} steps"
            yield Declined(last, self._rule.name, reason, "limit")
            return
        largest = self._largest(offered)
        if largest is not offered and self._is_offered(largest):
            yield self._found(largest)
        reason = "too many unions end here: the smallest and the largest are offered"
        yield Declined(last, self._rule.name, reason, "limit")

    def _register(self, part: Region) -> None:
        for i in members(part.exit):
            self._by_exit[i].append(part)
        for i in members(part.input):
            self._by_input[i].append(part)

    def _wider(self, part: Region) -> Iterator[Region]:
        """The unions of ``part`` with registered regions, each once over the whole enumeration."""
        for i in members(part.input):
            for up in () if self._is_spent() else self._by_exit[i]:
                yield from self._fresh(up, part)
        for i in members(part.exit):
            for down in () if self._is_spent() else self._by_input[i]:
                yield from self._fresh(part, down)
        for combiner in self._widening:
            yield from self._widened(combiner, part)

    def _fresh(self, up: Region, down: Region) -> Iterator[Region]:
        self._work += 1
        if up.inside & down.inside or self._is_spent():
            return
        if self._is_too_large(up.size + down.size):
            if self._joins(up, down):
                self._cut_off.add(max(up.last, down.last))
            return
        nested = in_order((*up.nested, *down.nested)) if up.nested or down.nested else ()
        key = (up.inside | down.inside, up.hidden | down.hidden, nested)
        if key in self._seen or not self._joins(up, down):
            return
        self._seen.add(key)
        self._work += 8
        union = joined(self._graph, up, down, self._rule.limits)
        if union is not None and (union.key == key or union.key not in self._seen):
            self._seen.add(union.key)
            yield union

    def _widened(self, combiner: Combiner, part: Region) -> Iterator[Region]:
        wider = combiner.widened(self._graph, part)
        if wider is None or self._is_too_large(wider[0].bit_count()):
            return
        key = (*wider, part.nested)
        if key in self._seen:
            return
        self._seen.add(key)
        if SubGraph(self._graph, *key).why_not_valid(self._rule.limits) is None:
            yield region(self._graph, *key)

    def _largest(self, part: Region) -> Region:
        """``part`` joined greedily with upstream regions, the largest first, until none can be joined."""
        for i in members(part.input):
            for up in reversed(self._by_exit[i]):
                if up.inside & part.inside or self._is_too_large(up.size + part.size):
                    continue
                union = joined(self._graph, up, part, self._rule.limits) if self._joins(up, part) else None
                if union is not None:
                    return self._largest(union)
        return part

    def _joins(self, up: Region, down: Region) -> bool:
        return any(combiner.joins(self._graph, up, down) for combiner in self._rule.combiners)

    def _is_spent(self) -> bool:
        return bool(self._rule.max_work) and self._work > self._rule.max_work

    def _is_too_large(self, size: int) -> bool:
        return bool(self._rule.max_size) and size > self._rule.max_size

    def _is_offered(self, part: Region) -> bool:
        """Whether ``part`` makes sense as a kernel.

        It must not end in a tuple that it builds itself, nor begin with an element of a tuple that it does not compute.
        """
        nodes = self._graph.nodes
        for i in members(part.inside & self._seeds):
            if nodes[i].op == "tuple" and part.exit >> i & 1:
                return False
            if nodes[i].op == "getitem" and not any(part.inside >> s & 1 for s in nodes[i].inputs):
                return False
        return True

    def _found(self, part: Region) -> Found:
        label = label_of(self._graph, part.inside, part.nested)
        return Found(part.inside, self._rule.name, label, part.hidden, part.nested)
