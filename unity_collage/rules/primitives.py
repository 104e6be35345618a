"""PrimitiveChain: one library primitive with what it can absorb before and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..graph import DataflowGraph, IndexSet, Node, SubGraph, members
from .base import Declined, Found, only_reader, why_not_partitionable
from .taken_back import reads_back, taken_back
from .tree import Printed

Step = Any
"""A library's own description of one primitive call; opaque to the rule."""


@dataclass(frozen=True, slots=True)
class PrimitiveChain(Printed):
    """Anchors, grown by the library's own word: what it lowers to one primitive is one candidate.

    Behind the anchor come operators that the primitive takes as bias or post-operation, then layout changes
    of the result; before it, layout changes of operands. Every prefix is a candidate, since a later
    operator may be worth more elsewhere.
    """

    name: str
    anchors: frozenset[str]
    step: Callable[[relax.Call], Step | str]
    """One operator as a primitive, or the reason why not."""
    fused: Callable[[Step, relax.Call, int], Step | str]
    """The step with a call, whose ``args[i]`` is its result, as post-operation, or the reason why not."""
    absorbed_input: Callable[[Step, relax.Expr, relax.Call], Step | str]
    """The step that reads an operand through the layout change that makes it, or the reason why not."""
    absorbed_output: Callable[[Step, relax.Call], Step | str]
    """The step that writes its result through a layout change, or the reason why not."""
    joined: Callable[[Step, relax.Call, int], Step | str] | None = None
    """The step with a concat, of which field ``i`` is its result, or the reason why not; None: it never takes one."""
    why_partial: Callable[[Step], str | None] | None = None
    """Why a step is no kernel as it is, or None: a primitive of several anchors grows from the first to the last of
    them, and some layout changes go together only. None in its place: every step is one."""
    max_absorbed: int = 16
    """How many sets of layout changes are offered before an anchor, the smallest first, and the largest: a concat of
    many fields that are reshaped each has more than can be counted."""
    taken_in: frozenset[str] = frozenset()
    """Operators that a primitive computes while it reads an operand of what stands behind its anchor: always taken
    in, and so are those before them."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.op not in self.anchors or node.call is None:
                continue
            reason = why_not_partitionable(node)
            step = self.step(node.call) if reason is None else reason
            if isinstance(step, str):
                yield Declined(node.index, self.name, step)
                continue
            for inside, begun in self._with_inputs(graph, node, step):
                if self._why_partial(begun) is None:
                    yield self._found(graph, inside)
                yield from self._behind(graph, inside, node, begun)

    def _with_inputs(self, graph: DataflowGraph, anchor: Node, step: Step) -> Iterator[tuple[IndexSet, Step]]:
        """The anchor alone, and with closed sets of layout changes before it."""
        start = 1 << anchor.index, step
        found = dict([start])
        pending = [start]
        for inside, begun in pending:
            for wider, grown in self._widened(graph, inside, begun):
                if wider not in found and len(found) < self.max_absorbed:
                    found[wider] = grown
                    pending.append((wider, grown))
        inside, begun = start
        while (larger := next(self._widened(graph, inside, begun), None)) is not None:
            inside, begun = larger
        found.setdefault(inside, begun)
        yield from found.items()

    def _widened(self, graph: DataflowGraph, inside: IndexSet, step: Step) -> Iterator[tuple[IndexSet, Step]]:
        """The kernel with one more layout change before it."""
        for source in _sole_producers(graph, inside):
            assert source.call is not None
            grown = self.absorbed_input(step, source.var, source.call)
            if not isinstance(grown, str):
                yield inside | 1 << source.index, grown

    def _behind(
        self, graph: DataflowGraph, inside: IndexSet, tail: Node, step: Step, *, writes_through: bool = False
    ) -> Iterator[Found | Declined]:
        """Candidates that go on behind ``tail``; the library's reason where the chain ends.

        Once the result is written through a layout change, only further layout changes may follow.
        """
        reader = only_reader(graph, tail)
        if reader is None or reader.call is None or taken_back(graph, reader) == tail.index:
            return
        if self.joined is not None and reader.op == "relax.concat":
            yield self._joining(graph, inside, tail, reader, step)
            return
        operands = [i for i, arg in enumerate(reader.call.args) if tail.var.same_as(arg)]
        grown = self.absorbed_output(step, reader.call)
        through = not isinstance(grown, str)
        if not through and not writes_through and len(operands) == 1:
            grown = self.fused(step, reader.call, operands[0])
        if isinstance(grown, str):
            yield Declined(reader.index, self.name, f"not behind {tail.op}: {grown}")
            return
        wider, grown = self._taking_in(graph, inside | 1 << reader.index, grown)
        if SubGraph(graph, wider).why_not_convex() is None:
            reason = self._why_partial(grown)
            if reason is None:
                yield self._found(graph, wider)
            elif through:
                yield Declined(reader.index, self.name, f"not behind {tail.op} alone: {reason}")
            yield from self._behind(graph, wider, reader, grown, writes_through=through)

    def _taking_in(self, graph: DataflowGraph, inside: IndexSet, step: Step) -> tuple[IndexSet, Step]:
        """The kernel with the operators ``taken_in`` before its operands, where nobody else needs their results."""
        for source in [node for node in _sole_producers(graph, inside) if node.op in self.taken_in]:
            assert source.call is not None
            grown = self.absorbed_input(step, source.var, source.call)
            if not isinstance(grown, str):
                return self._taking_in(graph, inside | 1 << source.index, grown)
        return inside, step

    def _joining(
        self, graph: DataflowGraph, inside: IndexSet, tail: Node, reader: Node, step: Step
    ) -> Found | Declined:
        """The kernel with the concat behind it, which ends the chain."""
        assert reader.call is not None and self.joined is not None
        whole = reader.call.args[0]
        fields: Sequence[relax.Expr] = whole.fields if isinstance(whole, relax.Tuple) else ()
        places = [i for i, field in enumerate(fields) if tail.var.same_as(field)]
        wider = inside | 1 << reader.index
        grown = self.joined(step, reader.call, places[0]) if len(places) == 1 else "it reads the result twice"
        reason = grown if isinstance(grown, str) else SubGraph(graph, wider).why_not_convex()
        if reason is not None:
            return Declined(reader.index, self.name, f"not behind {tail.op}: {reason}")
        return self._found(graph, wider)

    def _why_partial(self, step: Step) -> str | None:
        return None if self.why_partial is None else self.why_partial(step)

    def _found(self, graph: DataflowGraph, inside: IndexSet) -> Found:
        return Found(inside, self.name, SubGraph(graph, inside).label)


def _sole_producers(graph: DataflowGraph, inside: IndexSet) -> Iterator[Node]:
    """Calls that only ``inside`` reads and does not take back."""
    block = graph.nodes[inside.bit_length() - 1].block
    for source in members(SubGraph(graph, inside).input):
        node = graph.nodes[source]
        read_elsewhere = graph.consumers[source] & ~inside or graph.results >> source & 1
        if read_elsewhere or node.block != block or reads_back(graph, inside, source):
            continue
        if why_not_partitionable(node) is None:
            yield node
