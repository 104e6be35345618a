"""PrimitiveChain: one library primitive with the operators that it can absorb before and behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ..graph import DataflowGraph, IndexSet, Node, SubGraph, members
from .base import Declined, Found, only_reader, why_not_partitionable
from .cancelling import cancels_inside, transpose_cancelled_by
from .tree import Printed

PrimitiveCall = Any
"""A library's own description of one primitive call; opaque to the rule."""


@dataclass(frozen=True, slots=True)
class PrimitiveChain(Printed):
    """Anchors, grown as far as the library can lower the whole to one primitive; each such group is a candidate.

    Behind the anchor come operators that the primitive takes as bias or post-operation, then layout changes of the
    result. Before it come layout changes of operands. Every prefix is a candidate, since a later operator may be worth
    more in another kernel.
    """

    name: str
    anchors: frozenset[str]
    step: Callable[[relax.Call], PrimitiveCall | str]
    """One operator as a primitive call, or the reason why the library cannot take it."""
    fused: Callable[[PrimitiveCall, relax.Call, int], PrimitiveCall | str]
    """The primitive call with an operator, whose ``args[i]`` is its result, as post-operation, or the reason why
    not."""
    absorbed_input: Callable[[PrimitiveCall, relax.Expr, relax.Call], PrimitiveCall | str]
    """The primitive call that reads an operand through the layout change that makes it, or the reason why not."""
    absorbed_output: Callable[[PrimitiveCall, relax.Call], PrimitiveCall | str]
    """The primitive call that writes its result through a layout change, or the reason why not."""
    joined: Callable[[PrimitiveCall, relax.Call, int], PrimitiveCall | str] | None = None
    """The primitive call with a concat, of which field ``i`` is its result, or the reason why not. None if the library
    never takes a concat."""
    why_partial: Callable[[PrimitiveCall], str | None] | None = None
    """Why a primitive call is not yet a complete kernel, or None if it is. A primitive with several anchors grows from
    the first to the last, and some layout changes only work together. If this field is None, every call is complete."""
    max_absorbed: int = 16
    """How many sets of layout changes before an anchor are offered, smallest first; the largest set is added.

    A concat with many reshaped fields has exponentially many sets.
    """
    always_absorbed: frozenset[str] = frozenset()
    """Operators, such as casts, that the primitive computes while it reads the operand of an operator behind its
    anchor. They are always absorbed, and so are such operators before them."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.op not in self.anchors or node.call is None:
                continue
            reason = why_not_partitionable(node)
            step = self.step(node.call) if reason is None else reason
            if isinstance(step, str):
                yield Declined(node.index, self.name, step)
                continue
            starts, is_cut = self._with_inputs(graph, node, step)
            if is_cut:
                reason = f"{self.max_absorbed} sets of layout changes before it and the largest are offered"
                yield Declined(node.index, self.name, reason, "limit")
            for inside, begun in starts.items():
                if self._why_partial(begun) is None:
                    yield self._found(graph, inside)
                yield from self._behind(graph, inside, node, begun)

    def _with_inputs(
        self, graph: DataflowGraph, anchor: Node, step: PrimitiveCall
    ) -> tuple[dict[IndexSet, PrimitiveCall], bool]:
        """The anchor alone, and with closed sets of layout changes before it; and whether there are more sets."""
        start = 1 << anchor.index, step
        found, is_cut = dict([start]), False
        pending = [start]
        for inside, begun in pending:
            for wider, grown in self._widened(graph, inside, begun):
                if wider in found:
                    continue
                if len(found) < self.max_absorbed:
                    found[wider] = grown
                    pending.append((wider, grown))
                else:
                    is_cut = True
        inside, begun = start
        while (larger := next(self._widened(graph, inside, begun), None)) is not None:
            inside, begun = larger
        found.setdefault(inside, begun)
        return found, is_cut

    def _widened(
        self, graph: DataflowGraph, inside: IndexSet, step: PrimitiveCall
    ) -> Iterator[tuple[IndexSet, PrimitiveCall]]:
        """The kernel with one more layout change before it."""
        for source in _sole_producers(graph, inside):
            assert source.call is not None
            grown = self.absorbed_input(step, source.var, source.call)
            if not isinstance(grown, str):
                yield inside | 1 << source.index, grown

    def _behind(
        self,
        graph: DataflowGraph,
        inside: IndexSet,
        tail: Node,
        step: PrimitiveCall,
        *,
        writes_through: bool = False,
    ) -> Iterator[Found | Declined]:
        """Candidates that continue behind ``tail``, and the library's reason where the chain ends.

        Once the result is written through a layout change, only further layout changes may follow.
        """
        reader = only_reader(graph, tail)
        if reader is None or reader.call is None or transpose_cancelled_by(graph, reader) == tail.index:
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
        wider, grown = self._absorbing(graph, inside | 1 << reader.index, grown)
        if SubGraph(graph, wider).why_not_convex() is None:
            reason = self._why_partial(grown)
            if reason is None:
                yield self._found(graph, wider)
            elif through:
                yield Declined(reader.index, self.name, f"not behind {tail.op} alone: {reason}")
            yield from self._behind(graph, wider, reader, grown, writes_through=through)

    def _absorbing(
        self, graph: DataflowGraph, inside: IndexSet, step: PrimitiveCall
    ) -> tuple[IndexSet, PrimitiveCall]:
        """The kernel with the ``always_absorbed`` operators before its operands, if nothing else reads their
        results."""
        for source in [node for node in _sole_producers(graph, inside) if node.op in self.always_absorbed]:
            assert source.call is not None
            grown = self.absorbed_input(step, source.var, source.call)
            if not isinstance(grown, str):
                return self._absorbing(graph, inside | 1 << source.index, grown)
        return inside, step

    def _joining(
        self, graph: DataflowGraph, inside: IndexSet, tail: Node, reader: Node, step: PrimitiveCall
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

    def _why_partial(self, step: PrimitiveCall) -> str | None:
        return None if self.why_partial is None else self.why_partial(step)

    def _found(self, graph: DataflowGraph, inside: IndexSet) -> Found:
        return Found(inside, self.name, SubGraph(graph, inside).label)


def _sole_producers(graph: DataflowGraph, inside: IndexSet) -> Iterator[Node]:
    """Calls that only ``inside`` reads, without transposes that it cancels."""
    block = graph.nodes[inside.bit_length() - 1].block
    for source in members(SubGraph(graph, inside).input):
        node = graph.nodes[source]
        read_elsewhere = graph.consumers[source] & ~inside or graph.results >> source & 1
        if read_elsewhere or node.block != block or cancels_inside(graph, inside, source):
            continue
        if why_not_partitionable(node) is None:
            yield node
