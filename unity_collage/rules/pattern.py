"""DFPattern: a fixed shape of operators, written in Relax's dataflow pattern language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax
from tvm.relax.dpl import DFPattern as Pattern

from ..graph import DataflowGraph, IndexSet, Node, index_set, members
from .alternatives import is_structure, matches, tried
from .base import Declined, Found, why_not_static_kernel
from .tree import Printed


@dataclass(frozen=True, slots=True)
class DFPattern(Printed):
    """Every match of a pattern, at every possible root, for which ``why_not`` returns None.

    Matches may overlap, and a root may have several: one for each side of ``|`` and each order of commutative operands
    that matches other nodes (:func:`matches`). The inside has the calls, tuples and projections that the pattern spells
    out. A value that a wildcard matches, even one with a type condition, is outside. Where a pattern has more
    alternatives than are tried, each root is declined for that limit.
    """

    name: str
    pattern: Callable[[], Pattern]
    """Builds the pattern on demand."""
    why_not: Callable[[list[relax.Call]], str | None]
    """Checks the matched calls, in index order."""
    root: str
    """The operator of the pattern's last call; other bindings are not tried."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        roots = [node for node in graph.nodes if node.op == self.root]
        if not roots:
            return
        alternatives, untried = tried(self.pattern())
        definitions = relax.analysis.get_var2val(graph.func)
        values = {node.value: node.index for node in graph.nodes}
        for node in roots:
            found = (
                index_set(values[e] for part, e in match.items() if is_structure(part) and e in values)
                for match in matches(alternatives, node.value, definitions)
            )
            for inside in dict.fromkeys(found):
                reason = self._why_not(graph, inside)
                if reason is None:
                    yield Found(inside, self.name, self.name)
                else:
                    yield Declined(node.index, self.name, reason)
            if untried is not None and _why_no_part(node) is None:
                yield Declined(node.index, self.name, untried, "limit")

    def _why_not(self, graph: DataflowGraph, inside: IndexSet) -> str | None:
        nodes = [graph.nodes[i] for i in members(inside)]
        reason = next((r for node in nodes if (r := _why_no_part(node))), None)
        return reason or self.why_not([node.call for node in nodes if node.call is not None])


def _why_no_part(node: Node) -> str | None:
    if node.op in ("tuple", "getitem"):
        return None if node.in_dataflow else "not in a dataflow block"
    return why_not_static_kernel(node)
