"""Rules that propose single nodes; other rules build on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvm import relax

from ..graph import DataflowGraph, OpKind, short_name
from .base import Declined, Found, why_not_static_kernel
from .tree import Printed


@dataclass(frozen=True, slots=True)
class OpPredicate(Printed):
    """Single calls of the operators ``ops`` for which ``why_not`` returns None."""

    name: str
    ops: frozenset[str]
    why_not: Callable[[relax.Call], str | None]

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.op not in self.ops or node.call is None:
                continue
            reason = why_not_static_kernel(node) or self.why_not(node.call)
            if reason is None:
                yield Found(1 << node.index, self.name, short_name(node.op))
            else:
                yield Declined(node.index, self.name, reason)


@dataclass(frozen=True, slots=True)
class OpCallByKind(Printed):
    """Single calls whose kind is at most ``most``; by default every operator that fuses with others."""

    most: OpKind = OpKind.OUT_EWISE_FUSABLE
    name: str = "kind"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.call is None:
                continue
            reason = why_not_static_kernel(node)
            kind = graph.kinds[node.index]
            if reason is None and kind > self.most:
                reason = f"{node.op} is {kind.name}, at most {self.most.name} is asked for"
            if reason is None:
                yield Found(1 << node.index, self.name, node.label)
            else:
                yield Declined(node.index, self.name, reason)


@dataclass(frozen=True, slots=True)
class Host(Printed):
    """Single nodes that the VM evaluates for free: views, tuples, projections, constants, shape arithmetic.

    A plan may leave them behind.
    """

    name: str = "host"

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.is_host:
                yield Found(1 << node.index, self.name, short_name(node.op))
