"""Partition rules: frozen values that propose sub-graphs and give a reason for each refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tvm
from tvm import ir, relax

from ..graph import DataflowGraph, IndexSet, Nested, Node, SubGraph, members
from ..index_set import EMPTY, first_inside, size


@dataclass(frozen=True, slots=True)
class Found:
    """These nodes could be one kernel."""

    inside: IndexSet
    rule: str
    label: str
    hidden: IndexSet = EMPTY
    """Nodes that the kernel computes without writing their values, although other kernels read them too
    (:class:`SubGraph`).
    """
    nested: tuple[Nested, ...] = ()
    """Disjoint parts of the inside, by first node. If empty, the whole is one part named ``label``."""

    def sub_graph(self, graph: DataflowGraph) -> SubGraph:
        return SubGraph(graph, self.inside, self.hidden, self.nested)


@dataclass(frozen=True, slots=True)
class Declined:
    """The rule looked at this node and refused it."""

    index: int
    rule: str
    reason: str
    condition: str = "predicate"
    """What failed: ``predicate``, a check of the rule; ``validity``, the shape of the sub-graph (:class:`SubGraph`);
    ``limit`` or ``target``."""


class Rule(Protocol):
    """Proposes sub-graphs of a graph. Rules are values: they compare, hash and print (:class:`Printed`) by content."""

    def apply(self, graph: DataflowGraph) -> Iterator[Found | Declined]:
        """All proposals and refusals, in a fixed order."""
        ...


def label_of(graph: DataflowGraph, inside: IndexSet, nested: tuple[Nested, ...] = ()) -> str:
    """The label of a set of nodes: operator names in index order, and the labels of its parts."""
    parts = {first_inside(part.inside): part for part in nested}
    names: list[str] = []
    for i in members(inside):
        if i in parts:
            names.append(parts[i].label)
        elif not any(part.inside >> i & 1 for part in nested):
            names.append(graph.nodes[i].label)
    return "+".join(names)


def why_not_static_kernel(node: Node) -> str | None:
    """Why no backend can make a kernel with static sizes of this node alone, or None."""
    reason = why_not_partitionable(node)
    return reason or next((r for value in (node.var, *node.operands) if (r := why_not_static(value))), None)


def why_not_partitionable(node: Node) -> str | None:
    """Why no backend can make a kernel of this node alone, or None.

    Its sizes may be known only when the program runs.
    """
    if not node.in_dataflow:
        return "not in a dataflow block"
    if node.op.startswith("call:"):
        return f"it calls the function {node.op[5:]}, which is not opened"
    if node.call is None:
        return f"{node.op} is not an operator"
    if node.changed_by:
        return f"{node.changed_by} changes an operand in place afterwards, so it stays where it is"
    for value in (node.var, *node.operands):
        reason = why_not_shaped(value)
        if reason is not None:
            return reason
    return None


def only_reader(graph: DataflowGraph, node: Node) -> Node | None:
    """The only reader of ``node``; None if it has several or none, or if the function returns it."""
    readers = graph.consumers[node.index]
    if graph.results >> node.index & 1 or size(readers) != 1:
        return None
    reader = graph.nodes[readers.bit_length() - 1]
    return reader if reader.block == node.block and why_not_partitionable(reader) is None else None


def why_not_static(value: relax.Expr) -> str | None:
    """Why the shape of ``value`` is not known at compile time, or None. Shapes and prim expressions count by value."""
    return _why_not(value, _why_not_constant)


def why_not_shaped(value: relax.Expr) -> str | None:
    """Why ``value`` has no shape, not even a symbolic one, or None."""
    return _why_not(value, lambda _name, _values: None)


_WhyNotExtents = Callable[[str, Sequence[ir.Expr]], "str | None"]


def _why_not(value: relax.Expr, why_not_extents: _WhyNotExtents) -> str | None:
    if isinstance(value, relax.Tuple):
        return next((reason for field in value.fields if (reason := _why_not(field, why_not_extents))), None)
    name = value.name if isinstance(value, relax.Var) else "argument"
    return _why_not_type(name, value.ty, why_not_extents)


def _why_not_type(name: str, ty: ir.Type, why_not_extents: _WhyNotExtents) -> str | None:
    if isinstance(ty, relax.TupleType):
        return next((r for field in ty.fields if (r := _why_not_type(name, field, why_not_extents))), None)
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return f"the shape of {name} is not known"
        if not isinstance(ty.shape, relax.ShapeExpr):
            return f"the shape of {name} is a variable"
        return why_not_extents(name, ty.shape.values)
    if isinstance(ty, relax.ShapeType):
        return (
            f"{name} is a shape of unknown values" if ty.values is None else why_not_extents(name, ty.values)
        )
    if isinstance(ty, (relax.ObjectType, relax.FuncType)):
        return f"{name} is not a tensor"
    return None


def _why_not_constant(name: str, values: Sequence[ir.Expr]) -> str | None:
    if all(isinstance(value, tvm.tirx.IntImm) for value in values):
        return None
    shown = (str(v.value) if isinstance(v, tvm.tirx.IntImm) else str(v) for v in values)
    return f"{name} has no static shape: ({', '.join(shown)})"
