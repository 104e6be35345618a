"""DFPattern: a fixed shape of operators, written in Relax's dataflow pattern language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax
from tvm.relax.dpl import DFPattern as Pattern
from tvm.relax.dpl import WildcardPattern

from ..graph import DataflowGraph, index_set, members
from .base import Declined, Found, why_not_partitionable


@dataclass(frozen=True, slots=True)
class DFPattern:
    """Every match of a pattern, at every possible root, that ``why_not`` has nothing against."""

    name: str
    pattern: Callable[[], Pattern]
    """Makes the pattern: patterns are made on demand."""
    why_not: Callable[[list[relax.Call]], str | None]
    """Judges the matched calls, in index order."""
    root: str
    """Operator of the pattern's last call; other bindings are not tried."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        pattern = self.pattern()
        definitions = relax.analysis.get_var2val(graph.func)
        values = {node.value: node.index for node in graph.nodes if node.call is not None}
        for node in graph.nodes:
            if node.op != self.root:
                continue
            matched = pattern.extract_matched_expr(node.value, definitions)
            if matched is None:
                continue
            # The matcher looks through variables, so a wildcard matches the call that made its operand.
            calls = (expr for part, expr in matched.items() if not isinstance(part, WildcardPattern))
            inside = index_set(values[expr] for expr in calls if expr in values)
            nodes = [graph.nodes[i] for i in members(inside)]
            reason = next((r for n in nodes if (r := why_not_partitionable(n))), None)
            reason = reason or self.why_not([n.call for n in nodes if n.call is not None])
            if reason is None:
                yield Found(inside, self.name, self.name)
            else:
                yield Declined(node.index, self.name, reason)
