"""Collects the nodes and constants of an ONNX graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tvm import ir, relax

from ..errors import CollageError
from ..graph.shapes import dtype_of, shape_of
from ..reference.literals import is_literal, literal
from ..reference.values import dtype_of as dtype_named
from ..reference.values import tensor_value

OPSET = 18
"""The version of ONNX's operators that is written: old enough for all inference runtimes that are supported."""


class NotExported(CollageError):
    """A function has no counterpart in ONNX; the text is the reason."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a name in TVM."""
    dtype = dtype_named(name)
    assert dtype is not None
    return dtype


def element_type(name: str) -> int:
    """ONNX's number of an element type; raises NotExported for those that it lacks."""
    try:
        return helper.np_dtype_to_tensor_dtype(numpy_dtype(name))
    except (KeyError, TypeError, ValueError) as error:
        raise NotExported(f"ONNX has no tensors of {name}") from error


@dataclass(slots=True, eq=False)
class Writer:
    """A graph that is being written. Values are names in it."""

    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    values: dict[relax.Expr, Any] = field(default_factory=dict[relax.Expr, Any])
    """What variables and constants stand for: a name, or a list for a tuple."""
    _taken: set[str] = field(default_factory=set[str])

    def name(self, hint: str) -> str:
        """A new unique name."""
        found, number = hint, 1
        while found in self._taken:
            found, number = f"{hint}_{number}", number + 1
        self._taken.add(found)
        return found

    def value(self, expr: relax.Expr) -> Any:
        """What an operand stands for: a name, or a list of such for a tuple."""
        if expr in self.values:
            return self.values[expr]
        if isinstance(expr, ir.GenericConst):
            self.values[expr] = self.constant(tensor_value(expr.value))
            return self.values[expr]
        if isinstance(expr, relax.Tuple):
            return [self.value(field) for field in expr.fields]
        raise NotExported(f"an operand is a {type(expr).__name__}")

    def operand(self, expr: relax.Expr) -> str:
        """The name of a tensor."""
        found = self.value(expr)
        if not isinstance(found, str):
            raise NotExported("an operand is a tuple")
        return found

    def operands(self, call: relax.Call) -> list[str]:
        """The names of the operands of a call, all of which are tensors."""
        return [self.operand(arg) for arg in call.args]

    def constant(self, array: np.ndarray) -> str:
        """A new constant."""
        name = self.name("constant")
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def numbers(self, values: Iterable[int]) -> str:
        """A vector of 64-bit integers."""
        return self.constant(np.array(list(values), np.int64))

    def scalar(self, value: float, dtype: str) -> str:
        """A scalar."""
        return self.constant(np.array(value).astype(numpy_dtype(dtype)))

    def node(self, op: str, *operands: str, results: int = 1, **attributes: Any) -> Any:
        """Adds a node; the result is the name of its result, or a list of the names of several."""
        names = [self.name(op.lower()) for _ in range(results)]
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op, list(operands), names, **given))
        return names[0] if results == 1 else names

    # What several operators need

    def transposed(self, value: str, order: Sequence[int]) -> str:
        """``value`` with its axes in another order; itself where that is the same."""
        if list(order) == list(range(len(order))):
            return value
        return self.node("Transpose", value, perm=list(order))

    def reshaped(self, value: str, shape: Sequence[int]) -> str:
        """``value`` with another shape."""
        return self.node("Reshape", value, self.numbers(shape))


def static_shape(of: relax.Expr | ir.Type) -> tuple[int, ...]:
    """The sizes of a tensor; raises NotExported where they are not known."""
    shape = shape_of(of)
    if shape is None:
        raise NotExported("its sizes are known only when the program runs")
    return shape


def rank_of(expr: relax.Expr) -> int:
    """The number of dimensions of a tensor."""
    return len(static_shape(expr))


def number(expr: Any) -> Any:
    """A literal argument: a number, or a tuple of them."""
    if not is_literal(expr):
        raise NotExported("an argument is computed when the program runs")
    return literal(expr, {})


def floats(expr: relax.Expr) -> str:
    """The element type of a tensor of floats; raises NotExported for others."""
    dtype = dtype_of(expr)
    if not dtype.startswith(("float", "bfloat")):
        raise NotExported(f"it computes {dtype}")
    return dtype
