"""Rules that read TVM's tables: patterns registered for ``FuseOpsByPattern``, and attributes of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tvm import ir, relax
from tvm.relax.backend import get_patterns_with_prefix

from ...errors import first_line
from ...graph import DataflowGraph
from ...graph.calls import op_name
from ...rules import Declined, Found
from ...rules.base import Nested, why_not_static_kernel
from .pattern_match import Match, Matcher

Predicate = Callable[[relax.Call], bool | str | None]


@dataclass(frozen=True, slots=True)
class PatternTable:
    """The matches of the patterns ``<prefix>.*`` of TVM's global table, of each pattern at every binding.

    The table is read when the rule is applied. A match with one exit that the pattern's ``check`` accepts is a
    candidate. Its nodes become one ``Composite`` function with the pattern's name.
    """

    prefix: str

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        matcher = Matcher(graph)
        for pattern in get_patterns_with_prefix(f"{self.prefix}."):
            for node in graph.nodes:
                match = matcher.match(pattern, node)
                if match is not None:
                    yield self._judged(matcher, match)

    def _judged(self, matcher: Matcher, match: Match) -> Found | Declined:
        name = str(match.pattern.name)
        reason = matcher.why_not(match)
        if reason is not None:
            return Declined(match.root.index, name, reason)
        label = name.removeprefix(f"{self.prefix}.")
        return Found(match.inside, "pattern", label, nested=(Nested(match.inside, name),))


@dataclass(frozen=True, slots=True)
class OperatorAttributes:
    """Single calls of operators with an attribute ``target.<name>`` that accepts the call.

    The attribute is a predicate over calls. It accepts by True or None, and refuses by False or a reason.
    """

    name: str

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        table = predicates(self.name)
        for node in graph.nodes:
            if node.call is None or node.op not in table:
                continue
            reason = why_not_static_kernel(node) or self._why_not(table[node.op], node.call)
            if reason is None:
                yield Found(1 << node.index, "operator", node.op.rsplit(".", 1)[-1])
            else:
                yield Declined(node.index, "operator", reason)

    def _why_not(self, predicate: Predicate, call: relax.Call) -> str | None:
        try:
            answer = predicate(call)
        except Exception as error:  # foreign code
            return f"the predicate target.{self.name} of {op_name(call)} failed: {first_line(error)}"
        if answer is None or answer is True:
            return None
        return str(answer) if isinstance(answer, str) else f"target.{self.name} of {op_name(call)} says no"


def predicates(name: str) -> dict[str, Predicate]:
    """The attribute ``target.<name>`` of each operator that has it."""
    key = f"target.{name}"
    # Once one operator has an attribute, has_attr is true for others too; their value is then None.
    found = {
        name: op.get_attr(key) for name, op in _operators(len(ir.Op.list_op_names())) if op.has_attr(key)
    }
    return {op: predicate for op, predicate in found.items() if predicate is not None}


@lru_cache(maxsize=1)
def _operators(count: int) -> list[tuple[str, ir.Op]]:
    """The operators by name while there are ``count``: none is ever removed, and TVM's list is slow to read."""
    found = [(str(name), ir.Op.get(name)) for name in ir.Op.list_op_names()]
    assert len(found) == count
    return found
