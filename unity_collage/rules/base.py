"""What a partition rule is: a frozen value that proposes sub-graphs, and says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import tvm
from tvm import ir, relax

from ..graph import DataflowGraph, IndexSet, Limits, Node, SubGraph


@dataclass(frozen=True, slots=True)
class Found:
    """These nodes could be one kernel."""

    inside: IndexSet
    rule: str
    label: str


@dataclass(frozen=True, slots=True)
class Declined:
    """The rule looked at this node and refused it."""

    index: int
    rule: str
    reason: str


class Rule(Protocol):
    """Proposes sub-graphs of a graph. Rules compare, hash and print as the values they are."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        """All proposals and refusals, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class Union:
    """What any of the rules proposes."""

    rules: tuple[Rule, ...]

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for rule in self.rules:
            yield from rule.apply(graph)


@dataclass(frozen=True, slots=True)
class OnlyValid:
    """What ``rule`` proposes, as far as it is within ``limits``; the rest is declined at its last node."""

    rule: Rule
    limits: Limits = field(default_factory=Limits)

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for proposal in self.rule.apply(graph):
            if isinstance(proposal, Declined):
                yield proposal
                continue
            reason = SubGraph(graph, proposal.inside).why_not_valid(self.limits)
            if reason is None:
                yield proposal
            else:
                last = proposal.inside.bit_length() - 1
                yield Declined(last, proposal.rule, f"{proposal.label}: {reason}")


@dataclass(frozen=True, slots=True)
class OpPredicate:
    """Single calls of the operators ``ops`` that ``why_not`` has nothing against."""

    name: str
    ops: frozenset[str]
    why_not: Callable[[relax.Call], str | None]

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        for node in graph.nodes:
            if node.op not in self.ops or node.call is None:
                continue
            reason = why_not_partitionable(node) or self.why_not(node.call)
            if reason is None:
                yield Found(1 << node.index, self.name, node.op.rsplit(".", 1)[-1])
            else:
                yield Declined(node.index, self.name, reason)


def why_not_partitionable(node: Node) -> str | None:
    """Why no kernel can be made of this node alone, whatever the backend, or None."""
    if not node.in_dataflow:
        return "not in a dataflow block"
    if node.call is None:
        return f"{node.op} is not an operator"
    for value in (node.var, *node.call.args):
        reason = why_not_static(value)
        if reason is not None:
            return reason
    return None


def why_not_static(value: relax.Expr) -> str | None:
    """Why the shape of ``value`` is not known now, or None. Shape and prim expressions count by their content."""
    if isinstance(value, relax.Tuple):
        return next((reason for field in value.fields if (reason := why_not_static(field))), None)
    name = value.name if isinstance(value, relax.Var) else "argument"
    return _why_not_static_type(name, value.ty)


def _why_not_static_type(name: str, ty: ir.Type) -> str | None:
    if isinstance(ty, relax.TupleType):
        return next((r for field in ty.fields if (r := _why_not_static_type(name, field))), None)
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return f"the shape of {name} is not known"
        if not isinstance(ty.shape, relax.ShapeExpr):
            return f"the shape of {name} is a variable"
        return _why_not_constant(name, ty.shape.values)
    if isinstance(ty, relax.ShapeType):
        return (
            f"{name} is a shape of unknown values"
            if ty.values is None
            else _why_not_constant(name, ty.values)
        )
    if isinstance(ty, (relax.ObjectType, relax.FuncType)):
        return f"{name} is no tensor"
    return None


def _why_not_constant(name: str, values: list[ir.Expr]) -> str | None:
    if all(isinstance(value, tvm.tirx.IntImm) for value in values):
        return None
    shown = (str(v.value) if isinstance(v, tvm.tirx.IntImm) else str(v) for v in values)
    return f"{name} has no static shape: ({', '.join(shown)})"
