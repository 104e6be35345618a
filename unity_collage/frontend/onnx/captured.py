"""Values that a private function for a sub-graph reads from the graph around it: its parameters, and the arguments of
calls.

A function of Relax has its own symbolic sizes. So the outer sizes are a parameter of it, a shape, and every outer
value is renamed to the sizes inside. Values that are known while importing are constants inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from tvm import ir, relax, tirx

from ...graph.shapes import tensor_type
from ..renaming import renamed
from .names import safe
from .values import Dim, Value


@dataclass(frozen=True, slots=True)
class Captured:
    """Outer values by name, and the parameters of a function for them."""

    values: Mapping[str, Value]
    tensors: tuple[relax.Var, ...]
    """The outer variables that become parameters."""
    sizes: tuple[ir.Var, ...]
    """The outer symbolic sizes that become a parameter of shape type."""

    @classmethod
    def of(cls, values: Mapping[str, Value], others: Iterable[Value] = ()) -> Captured:
        """``others`` are not captured, but have outer sizes in their shapes."""
        given = [value.expr for value in values.values() if value.known is None]
        tensors = dict.fromkeys(expr for expr in given if isinstance(expr, relax.Var))
        sizes: dict[ir.Var, None] = {}
        for value in (*values.values(), *others):
            for item in value.shape if value.known is None else value.known.reshape(-1):
                if isinstance(item, ir.Expr):
                    sizes |= dict.fromkeys(tirx.analysis.undefined_vars(item))
        return cls(values, tuple(tensors), tuple(sizes))

    def arguments(self) -> list[relax.Expr]:
        """The arguments of a call from outside."""
        return _with_sizes(self.tensors, self.sizes)

    def inside(self) -> Inside:
        """New parameters for one function."""
        inner = {size: tirx.Var(size.name, size.ty) for size in self.sizes}
        params = {var: relax.Var(var.name, renamed(tensor_type(var), inner)) for var in self.tensors}
        sizes = [relax.Var("sizes", relax.ShapeType(list(inner.values())))] if inner else []
        return Inside(self.values, params, inner, sizes)


@dataclass(slots=True)
class Inside:
    """The values of a :class:`Captured` inside one function."""

    outside: Mapping[str, Value]
    tensors: Mapping[relax.Var, relax.Var]
    sizes: Mapping[ir.Var, ir.Var]
    shape: Sequence[relax.Var]
    _values: dict[str, Value] = field(default_factory=dict)

    @property
    def params(self) -> list[relax.Var]:
        """The parameters for the captured values, in the order of :meth:`Captured.arguments`."""
        return [*self.tensors.values(), *self.shape]

    def arguments(self) -> list[relax.Expr]:
        """The arguments of a call from inside to a function with the same parameters."""
        return _with_sizes(tuple(self.tensors.values()), tuple(self.sizes.values()))

    def values(self) -> dict[str, Value]:
        """The captured values by name, as they are inside."""
        return {name: self._value(name, value) for name, value in self.outside.items()}

    def _value(self, name: str, value: Value) -> Value:
        if name not in self._values:
            self._values[name] = self._made(value)
        return self._values[name]

    def _made(self, value: Value) -> Value:
        if isinstance(value.expr, relax.Var) and value.known is None:
            return Value(value.dtype, expr=self.tensors[value.expr])
        if value.known is None or value.known.dtype != object:
            return Value(value.dtype, value.known, value.expr)
        return Value.of(self._object_array(value.known), value.dtype)

    def _object_array(self, known: np.ndarray) -> np.ndarray:
        made = np.empty(known.size, object)
        made[:] = [renamed(item, self.sizes) for item in known.reshape(-1)]
        return made.reshape(known.shape)

    def dims(self, outside: Iterable[Dim | None], fresh: Any) -> list[Dim]:
        """Outer sizes as they are inside; in place of None, the result of ``fresh()``."""
        return [fresh() if dim is None else renamed(dim, self.sizes) for dim in outside]

    def seen_outside(self, dims: Iterable[Dim]) -> list[Dim | None]:
        """Sizes inside as they are outside; None for those that are known inside only."""
        back = {inner: outer for outer, inner in self.sizes.items()}
        return [
            renamed(dim, back)
            if isinstance(dim, int) or all(var in back for var in tirx.analysis.undefined_vars(dim))
            else None
            for dim in dims
        ]

    def parameter(self, name: str, dtype: str, dims: Iterable[Dim | None], fresh: Any) -> relax.Var:
        """A further parameter, with its outer sizes given; None: a size of its own."""
        return relax.Var(safe(name), relax.TensorType(self.dims(dims, fresh), dtype))


def _with_sizes(tensors: Sequence[relax.Expr], sizes: Sequence[ir.Var]) -> list[relax.Expr]:
    return [*tensors, *([relax.ShapeExpr(list(sizes))] if sizes else [])]


def free_names(graph: onnx.GraphProto) -> list[str]:
    """The names that a graph reads from the graphs around it, in order; its nodes may stand in any order."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    bound.update(name for proto in graph.node for name in proto.output)
    free: dict[str, None] = {}
    for proto in graph.node:
        read = [*proto.input, *(name for inner in sub_graphs(proto) for name in free_names(inner))]
        free |= dict.fromkeys(name for name in read if name and name not in bound)
    free |= dict.fromkeys(value.name for value in graph.output if value.name not in bound)
    return list(free)


def sub_graphs(proto: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs that a node has as attributes."""
    kinds = onnx.AttributeProto
    return [
        graph
        for attribute in proto.attribute
        if attribute.type in (kinds.GRAPH, kinds.GRAPHS)
        for graph in (*([attribute.g] if attribute.type == kinds.GRAPH else ()), *attribute.graphs)
    ]
