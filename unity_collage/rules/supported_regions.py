"""SupportedRegions: parts of a function that a compiler of whole graphs could take, chosen by rule and not as subsets.

*Maximal regions.* The level of a node is the largest number of refused operators on a path to it that lie between
operators that are taken. Along a path levels do not fall, so the nodes of a level are convex, and so are
their connected parts.

*Boundaries.* Nodes of a region in index order have a boundary where only one value is read after it: between the
layers of a chain, and between residual blocks. The nodes between two boundaries, with cheap ones added to the step
before, are a *step* of the region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm import relax

from ..graph import DataflowGraph, Limits, Node, OpKind, Signatures, SubGraph, outside_vars
from ..graph.order import read_outside
from ..index_set import EMPTY, IndexSet, members, size
from .base import Declined, Found, label_of, only_reader, why_not_partitionable, why_not_static_kernel
from .tree import Printed

_VALID = Limits(max_exits=0, allow_taps=True)
_SHORT_LABEL = 4
"""The most operators that a label spells out."""

Family = Iterator[IndexSet]


@dataclass(frozen=True, slots=True)
class SupportedRegions(Printed):
    """The largest regions of operators that are taken, their parts, and single expensive operators.

    * ``largest``: regions that no larger one contains, also cut at the calls that ``is_cut``;
    * ``blocks``: steps with several expensive operators, the periods of what repeats, and aligned runs of 2, 4, 8, ...
      steps;
    * ``single``: each expensive operator alone, and with the cheap ones behind it.

    Equal computations count once: a network repeats its layers.
    """

    why_not: Callable[[relax.Call], str | None]
    """Why a call is not taken, or None; a function of a module."""
    expensive: frozenset[str]
    """Operators that are worth a kernel by themselves."""
    is_cut: Callable[[relax.Call], bool]
    """Whether other backends are usually better at a call; a function of a module."""
    max_size: int = 512
    """The most nodes of a region."""
    max_each: int = 16
    """How many different computations each of the three families has."""
    name: str = "region"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        able = EMPTY
        for node in graph.nodes:
            reason = self._why_not(node)
            if reason is None:
                able |= 1 << node.index
            elif node.call is not None:
                yield Declined(node.index, self.name, reason)
        if able:
            yield from _Regions(self, graph, able).offered()

    def _why_not(self, node: Node) -> str | None:
        if node.op in ("tuple", "getitem"):
            return None if node.in_dataflow else "not in a dataflow block"
        if node.call is None:
            return f"{node.op} is not an operator"
        return why_not_partitionable(node) or why_not_static_kernel(node) or self.why_not(node.call)


class _Regions:
    """The regions of one graph."""

    def __init__(self, rule: SupportedRegions, graph: DataflowGraph, able: IndexSet) -> None:
        self._rule, self._graph, self._able = rule, graph, able
        self._signatures = Signatures(graph)
        self._seen: set[IndexSet] = set()

    def offered(self) -> Iterator[Found | Declined]:
        cut = self._able
        for node in self._graph.nodes:
            if node.call is not None and self._rule.is_cut(node.call):
                cut &= ~(1 << node.index)
        largest = [*connected(self._graph, self._able), *connected(self._graph, cut)]
        yield from self._limited("largest", iter(largest))
        yield from self._limited("blocks", self._blocks(largest))
        yield from self._limited("single", self._single())

    def _limited(self, family: str, proposed: Family) -> Iterator[Found | Declined]:
        """The valid regions of a family: those of the first few computations, and a refusal for the others."""
        digests: set[str] = set()
        hidden = EMPTY
        left_out = 0
        for inside in proposed:
            whole = self._closed(inside)
            if not whole or whole in self._seen:
                continue
            self._seen.add(whole)
            sub = SubGraph(self._graph, whole)
            last = whole.bit_length() - 1
            if reason := self._why_no_region(sub):
                yield Declined(last, self._rule.name, f"{_label(sub)}: {reason}", "validity")
                continue
            if size(whole) > self._rule.max_size:
                reason = f"a region of {size(whole)} operators, at most {self._rule.max_size} are offered"
                yield Declined(last, self._rule.name, reason, "limit")
                continue
            digest = self._signatures.digest(sub)
            if digest not in digests and len(digests) == self._rule.max_each:
                hidden, left_out = hidden | 1 << last, left_out + 1
                continue
            digests.add(digest)
            yield Found(whole, self._rule.name, _label(sub))
        if hidden:
            reason = f"{left_out} more regions ({family}), {self._rule.max_each} different ones are offered"
            yield Declined(hidden.bit_length() - 1, self._rule.name, reason, "limit")

    def _closed(self, inside: IndexSet) -> IndexSet:
        """``inside`` without views at its ends, and such that no tuple crosses its border."""
        graph, before = self._graph, None
        while inside != before:
            before = inside
            for index in members(inside):
                node = graph.nodes[index]
                if node.op == "getitem" and not any(inside >> source & 1 for source in node.inputs):
                    inside &= ~(1 << index)
            for index in members(read_outside(graph, inside)):
                node = graph.nodes[index]
                is_field = node.op == "getitem" and any(inside >> source & 1 for source in node.inputs)
                if node.is_host and not is_field and not graph.consumers[index] & inside:
                    inside &= ~(1 << index)
                elif isinstance(node.var.ty, relax.TupleType):
                    readers = members(graph.consumers[index] & self._able)
                    inside |= sum(1 << each for each in readers if graph.nodes[each].op == "getitem")
        return inside

    def _why_no_region(self, sub: SubGraph) -> str | None:
        graph = self._graph
        if all(graph.nodes[index].is_host for index in members(sub.inside)):
            return "no kernel, the VM evaluates it for free"
        if any(not isinstance(var.ty, relax.TensorType) for var in outside_vars(sub)):
            return "an operand is not a tensor"
        if any(isinstance(graph.nodes[index].var.ty, relax.TupleType) for index in members(sub.exit)):
            return "a tuple is read outside"
        return sub.why_not_valid(_VALID)

    def _single(self) -> Family:
        graph = self._graph
        for node in graph.nodes:
            if node.op not in self._rule.expensive or not self._able >> node.index & 1:
                continue
            inside, last = 1 << node.index, node
            yield inside
            while (reader := only_reader(graph, last)) is not None and self._is_cheap(reader):
                inside, last = inside | 1 << reader.index, reader
            yield inside

    def _is_cheap(self, node: Node) -> bool:
        return bool(self._able >> node.index & 1) and self._graph.kinds[node.index] <= OpKind.BROADCAST

    def _blocks(self, regions: Sequence[IndexSet]) -> Family:
        for region in regions:
            steps = self._steps(region)
            names = [self._signatures.digest(SubGraph(self._graph, step)) for step in steps]
            yield from (step for step in steps if self._count_expensive(step) > 1)
            for begin, end in periods(names):
                yield _union(steps[begin:end])
            width = 2
            while width < len(steps):
                for begin in range(0, len(steps), width):
                    yield _union(steps[begin : begin + width])
                width *= 2

    def _count_expensive(self, inside: IndexSet) -> int:
        return sum(self._graph.nodes[index].op in self._rule.expensive for index in members(inside))

    def _steps(self, region: IndexSet) -> list[IndexSet]:
        """The nodes between the boundaries of a region; those without an expensive operator join the step before."""
        steps: list[IndexSet] = []
        for step in between_boundaries(self._graph, region):
            if steps and not (self._count_expensive(step) and self._count_expensive(steps[-1])):
                steps[-1] |= step
            else:
                steps.append(step)
        return steps


def connected(graph: DataflowGraph, able: IndexSet) -> list[IndexSet]:
    """The connected parts of each level of the nodes ``able``, by first node: convex, and as large as the levels let
    them be."""
    levels: list[int] = []
    part_of: dict[int, int] = {}
    for node in graph.nodes:
        mine = able >> node.index & 1
        read = [levels[source] + (mine and not able >> source & 1) for source in node.inputs]
        levels.append(max(read, default=0))
        if mine:
            part_of[node.index] = node.index
            for source in node.inputs:
                same = levels[source] == levels[-1] and graph.nodes[source].block == node.block
                if source in part_of and same:
                    one, other = _root(part_of, source), _root(part_of, node.index)
                    part_of[max(one, other)] = min(one, other)
    parts: dict[int, IndexSet] = {}
    for index in part_of:
        root = _root(part_of, index)
        parts[root] = parts.get(root, EMPTY) | 1 << index
    return [parts[root] for root in sorted(parts)]


def _root(part_of: dict[int, int], index: int) -> int:
    while part_of[index] != index:
        part_of[index] = part_of[part_of[index]]
        index = part_of[index]
    return index


def between_boundaries(graph: DataflowGraph, region: IndexSet) -> list[IndexSet]:
    """The nodes of ``region`` in index order, cut where at most one of its values is read behind the cut."""
    last_read: dict[int, int] = {}
    for index in members(region):
        for source in graph.nodes[index].inputs:
            if region >> source & 1:
                last_read[source] = index
    parts: list[IndexSet] = []
    here, alive = EMPTY, set[int]()
    for index in members(region):
        here |= 1 << index
        alive = {each for each in alive if last_read[each] > index}
        if index in last_read:
            alive.add(index)
        if len(alive) <= 1:
            parts.append(here)
            here = EMPTY
    return parts if not here else [*parts, here]


def periods(names: Sequence[str]) -> list[tuple[int, int]]:
    """The periods of immediate repetitions in ``names``, as ``(begin, end)``, shortest periods first.

    ``a b c b c d`` has the periods ``(1, 3)`` and ``(3, 5)``. Periods that are repeats themselves are left out.
    """
    found: list[tuple[int, int]] = []
    for width in range(1, len(names) // 2 + 1):
        begin = 0
        while begin + 2 * width <= len(names):
            one = names[begin : begin + width]
            count = 1
            while list(names[begin + count * width : begin + (count + 1) * width]) == list(one):
                count += 1
            if count > 1 and not _repeats(one):
                found += [(begin + n * width, begin + (n + 1) * width) for n in range(count)]
                begin += count * width
            else:
                begin += 1
    return found


def _repeats(names: Sequence[str]) -> bool:
    """Whether ``names`` are a shorter period several times."""
    count = len(names)
    return any(
        count % width == 0 and all(names[i] == names[i % width] for i in range(count))
        for width in range(1, count)
    )


def _union(parts: Sequence[IndexSet]) -> IndexSet:
    found = EMPTY
    for part in parts:
        found |= part
    return found


def _label(sub: SubGraph) -> str:
    """The operators of a short region; of a long one how many, and the first and the last."""
    labels = [sub.graph.nodes[index].label for index in members(sub.inside)]
    if len(labels) <= _SHORT_LABEL:
        return label_of(sub.graph, sub.inside)
    return f"{len(labels)} operators {labels[0]}...{labels[-1]}"
