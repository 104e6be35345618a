"""SubGraph: some nodes of a DataflowGraph with their border, and whether they may become one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..index_set import EMPTY, IndexSet, is_subset, members, size, to_text
from .dataflow import DataflowGraph, used_vars
from .dataflow import short_name as short_name
from .kinds import OpKind
from .nested import Nested, why_not_nested
from .order import read_outside, reads


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a rule sets for its sub-graphs."""

    max_depth: int = 0
    """Nodes on the longest path inside; 0 means no limit."""
    max_exits: int = 1
    """How many inside values may be read from outside; 0 means no limit."""
    allow_taps: bool = False
    """Whether an exit may also be read inside."""


@dataclass(frozen=True)
class SubGraph:
    """The nodes ``inside`` of ``graph``."""

    graph: DataflowGraph
    inside: IndexSet
    hidden: IndexSet = EMPTY
    """Inside nodes that outside nodes read too, with values that this kernel does not write.

    The outside readers get these values from another kernel, so the nodes are computed more than once.
    """
    nested: tuple[Nested, ...] = ()
    """Parts of the inside that are separate functions within the kernel, by first node."""

    @cached_property
    def entry(self) -> IndexSet:
        """Inside nodes that read something from outside (another node or a parameter)."""
        found = EMPTY
        for i in members(self.inside):
            if self._reads_outside(i):
                found |= 1 << i
        return found

    @cached_property
    def exit(self) -> IndexSet:
        """Inside nodes that outside nodes read or that the function returns, without the hidden ones."""
        return read_outside(self.graph, self.inside) & ~self.hidden

    @cached_property
    def input(self) -> IndexSet:
        """Outside nodes that feed the inside."""
        return reads(self.graph, self.inside)

    @cached_property
    def output(self) -> IndexSet:
        """Outside nodes that the inside feeds."""
        found = EMPTY
        for i in members(self.inside):
            found |= self.graph.consumers[i]
        return found & ~self.inside

    @cached_property
    def depth(self) -> int:
        """Nodes on the longest path inside."""
        depth: dict[int, int] = {}
        for i in members(self.inside):
            sources = self.graph.nodes[i].inputs
            depth[i] = 1 + max((depth[s] for s in sources if s in depth), default=0)
        return max(depth.values(), default=0)

    @cached_property
    def kind(self) -> OpKind:
        """The largest kind inside."""
        return max((self.graph.kinds[i] for i in members(self.inside)), default=OpKind.ELEMENTWISE)

    @cached_property
    def label(self) -> str:
        """Operator names in index order: ``conv2d+add+relu``."""
        return "+".join(self.graph.nodes[i].label for i in members(self.inside))

    def why_not_valid(self, limits: Limits) -> str | None:
        """The first condition that fails, or None if the nodes may be one kernel."""
        return (
            self._why_empty()
            or self._why_wrong_block()
            or self._why_too_many_exits(limits)
            or self._why_too_deep(limits)
            or self._why_tapped(limits)
            or self.why_not_convex()
            or why_not_nested(self.graph, self.inside, self.nested)
        )

    def why_not_convex(self) -> str | None:
        """Why the sub-graph is not convex, or None: a path leaves it and comes back.

        A path cannot leave from a hidden node, because the kernel does not write its value.
        """
        upstream = self.graph.upstream
        for outside in members(self.input):
            if upstream[outside] & self.exit:
                return f"not convex: {self._name(outside)} lies on a path from inside to inside"
        return None

    def _why_empty(self) -> str | None:
        if not self.inside:
            return "no nodes"
        if not is_subset(self.hidden, self.inside):
            return f"hidden nodes {to_text(self.hidden & ~self.inside)} are not inside"
        if self.hidden and not self.exit:
            return "every value that is read outside is hidden, so nothing would be written"
        return None

    def _why_wrong_block(self) -> str | None:
        nodes = [self.graph.nodes[i] for i in members(self.inside)]
        if len({node.block for node in nodes}) > 1:
            return "nodes of different dataflow blocks"
        if not nodes[0].in_dataflow:
            return "not in a dataflow block"
        return None

    def _why_too_many_exits(self, limits: Limits) -> str | None:
        if limits.max_exits and size(self.exit) > limits.max_exits:
            return f"{size(self.exit)} exits {to_text(self.exit)}, at most {limits.max_exits} allowed"
        return None

    def _why_too_deep(self, limits: Limits) -> str | None:
        if limits.max_depth and self.depth > limits.max_depth:
            return f"depth {self.depth}, at most {limits.max_depth} allowed"
        return None

    def _why_tapped(self, limits: Limits) -> str | None:
        if limits.allow_taps:
            return None
        for i in members(self.exit):
            if self.graph.consumers[i] & self.inside:
                return f"tap: {self._name(i)} is read both inside and outside"
        return None

    def _name(self, index: int) -> str:
        return f"{self.graph.nodes[index].var.name} ({self.graph.nodes[index].label})"

    def _reads_outside(self, index: int) -> bool:
        inside, index_of = self.inside, self.graph.index_of
        for var in used_vars(self.graph.nodes[index].value):
            source = index_of.get(var)
            if source is None or not inside >> source & 1:
                return True
        return False
