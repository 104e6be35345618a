"""Matches of the patterns in TVM's global table, checked as ``FuseOpsByPattern`` checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import ir, relax
from tvm.relax.dpl import CallPattern, TupleGetItemPattern, TuplePattern
from tvm.relax.transform import FusionPattern, PatternCheckContext

from ...errors import first_line
from ...graph import DataflowGraph, IndexSet, Limits, Node, SubGraph, index_set, members
from ...rules.base import why_not_static_kernel

_JOINING = (CallPattern, TupleGetItemPattern, TuplePattern)
"""Patterns with a match that belongs to the kernel. All others match an operand, or add a condition to one of these."""


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a pattern of TVM's table: the expression that each part of the pattern has matched."""

    pattern: FusionPattern
    root: Node
    parts: Mapping[Any, relax.Expr]
    inside: IndexSet

    @property
    def annotated(self) -> dict[str, relax.Expr]:
        """The expressions that the pattern annotates, by name."""
        named = self.pattern.annotation_patterns.items()
        return {str(name): self.parts[part] for name, part in named if part in self.parts}


class Matcher:
    """Matches patterns in one graph, and calls their checks as ``FuseOpsByPattern`` does."""

    def __init__(self, graph: DataflowGraph):
        self._graph = graph
        self._definitions = relax.analysis.get_var2val(graph.func)
        self._index_of = {node.value: node.index for node in graph.nodes}
        self._usages_of: dict[int, Mapping[relax.Var, Sequence[relax.Var]]] = {}

    def match(self, pattern: FusionPattern, root: Node) -> Match | None:
        """The match of ``pattern`` that ends in ``root``, or None."""
        if root.call is None:
            return None
        parts = pattern.pattern.extract_matched_expr(root.call, self._definitions)
        if parts is None:
            return None
        joined = (expr for part, expr in parts.items() if isinstance(part, _JOINING))
        return Match(
            pattern, root, parts, index_set(self._index_of[e] for e in joined if e in self._index_of)
        )

    def why_not(self, match: Match) -> str | None:
        """Why a match cannot be a kernel, or None: it is not valid, or the pattern's check refuses it."""
        nodes = [self._graph.nodes[i] for i in members(match.inside)]
        calls = (node for node in nodes if node.call is not None)
        reason = next((r for node in calls if (r := why_not_static_kernel(node))), None)
        reason = reason or SubGraph(self._graph, match.inside).why_not_valid(Limits())
        return reason or self._why_refused(match)

    def _why_refused(self, match: Match) -> str | None:
        check = match.pattern.check
        if check is None:
            return None
        try:
            accepted = check(self._context(match))
        except Exception as error:  # foreign code
            return f"the check of pattern {match.pattern.name} failed: {first_line(error)}"
        return None if accepted else f"the check of pattern {match.pattern.name} says no"

    def _context(self, match: Match) -> PatternCheckContext:
        nodes = (self._graph.nodes[i] for i in members(match.inside))
        return ir.make_node(
            "relax.transform.PatternCheckContext",
            matched_expr=match.root.value,
            annotated_expr=match.annotated,
            matched_bindings={node.var: node.value for node in nodes},
            var_usages=self._usages(match.root.block),
            value_to_bound_var=self._bound_vars,
        )

    def _usages(self, block: int) -> Mapping[relax.Var, Sequence[relax.Var]]:
        if block not in self._usages_of:
            self._usages_of[block] = relax.analysis.udchain(self._graph.func.body.blocks[block])
        return self._usages_of[block]

    @cached_property
    def _bound_vars(self) -> Mapping[relax.Expr, relax.Var]:
        return tvm_ffi.convert({node.value: node.var for node in self._graph.nodes})
