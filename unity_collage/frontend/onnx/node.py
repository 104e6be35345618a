"""A node of an ONNX graph, as its converter sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np
import onnx
from onnx import helper
from tvm import ir, relax

from ...errors import ModelError
from ...graph.shapes import dtype_of
from .arrays import array_of, constant_of, numpy_dtype
from .values import Dim, Value, dims_of

Converted = relax.Expr | Value | Sequence[relax.Expr | Value | None]
"""What a converter returns: the node's result, or all its results in order."""


class NodeRefused(ModelError):
    """A node cannot be converted; the text is the reason, without the node."""


@dataclass(slots=True, eq=False)
class OnnxNode:
    """An operator with its operands.

    A converter reads attributes and operands here, emits Relax, and returns the last expressions without emitting them:
    they get the names of the node's results.
    """

    proto: onnx.NodeProto
    inputs: Sequence[Value | None]
    version: int
    """The version of the operator set that the node is from."""
    importer: Any
    """The :class:`~.graph.GraphImporter` that converts it."""
    attributes: Mapping[str, onnx.AttributeProto]
    scope: Any
    """The :class:`~.graph.GraphScope` in which the node is; sub-graphs of the node read names from it."""

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def title(self) -> str:
        """The name of the node in messages."""
        named = self.proto.name or next((name for name in self.proto.output if name), "")
        domain = f"{self.proto.domain}." if self.proto.domain else ""
        return f"{domain}{self.op} {named!r}"

    @property
    def builder(self) -> relax.BlockBuilder:
        """The builder of the function that is being imported."""
        return self.importer.builder

    def refuse(self, reason: str) -> NoReturn:
        """Raise NodeRefused: the node cannot be converted."""
        raise NodeRefused(reason)

    # Results

    def is_asked(self, position: int) -> bool:
        """Whether the node has a name for this result."""
        return position < len(self.proto.output) and bool(self.proto.output[position])

    # Operands

    def has(self, position: int) -> bool:
        """Whether an optional operand is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Value:
        """An operand, known now or not."""
        found = self.inputs[position] if position < len(self.inputs) else None
        if found is None:
            self.refuse(f"its operand {position} is missing")
        return found

    def __getitem__(self, position: int) -> relax.Expr:
        """An operand as an expression."""
        return self.value(position).tensor(self.builder)

    def optional(self, position: int) -> relax.Expr | None:
        """An operand as an expression; None where it is not given."""
        return self[position] if self.has(position) else None

    def operands(self) -> list[relax.Expr]:
        """All operands that are given."""
        return [self[position] for position in range(len(self.inputs)) if self.has(position)]

    def numbers(self, position: int) -> np.ndarray | None:
        """The elements of an operand, if all are known numbers now."""
        return self.value(position).numbers if self.has(position) else None

    def needed(self, position: int, what: str) -> np.ndarray:
        """The elements of an operand that must be known now; ``what`` names it in the refusal."""
        found = self.numbers(position)
        if found is None:
            self.refuse(f"{what} is computed when the program runs; it must be a constant")
        return found

    def sizes(self, position: int) -> list[Dim]:
        """The elements of a vector of sizes: known, or symbolic sizes that stand for what the program computes."""
        value = self.value(position)
        if value.known is not None:
            return [
                item if isinstance(item, ir.Expr) else int(item) for item in value.known.reshape(-1).tolist()
            ]
        expr = value.tensor(self.builder)
        length = value.shape[0] if value.rank else 1
        if not isinstance(length, int):
            self.refuse(f"the length of its operand {position} is not known")
        if value.rank != 1:
            expr = self.emit(relax.op.reshape(expr, (length,)))
        if value.dtype != "int64":
            expr = self.emit(relax.op.astype(expr, "int64"))
        fresh = [self.importer.fresh_size() for _ in range(length)]
        shape = self.emit(relax.op.tensor_to_shape(expr))
        self.builder.match_cast(shape, relax.ShapeType(fresh))
        return fresh

    def size(self, position: int) -> Dim:
        """A scalar of sizes, as :meth:`sizes` reads a vector."""
        return self.sizes(position)[0]

    def shape(self, position: int = 0) -> list[Dim]:
        """The sizes of an operand."""
        return self.value(position).shape

    def static_shape(self, position: int = 0) -> list[int]:
        """The sizes of an operand, which must be numbers."""
        shape = self.shape(position)
        fixed = [dim for dim in shape if isinstance(dim, int)]
        if len(fixed) < len(shape):
            given = ", ".join(map(str, shape))
            self.refuse(
                f"the sizes ({given}) of its operand {position} are not fixed; fix them with shapes= or --shape"
            )
        return fixed

    def rank(self, position: int = 0) -> int:
        """The number of dimensions of an operand."""
        return self.value(position).rank

    def dtype(self, position: int = 0) -> str:
        """The element type of an operand, such as ``float32``."""
        return self.value(position).dtype

    def axis(self, value: int, rank: int | None = None) -> int:
        """An axis of the first operand, counted from the front."""
        rank = self.rank() if rank is None else rank
        if not -max(rank, 1) <= value < max(rank, 1):
            self.refuse(f"the axis {value} is outside of a tensor of rank {rank}")
        return value % rank if rank else 0

    # Attributes

    @overload
    def attribute(self, name: str) -> Any: ...
    @overload
    def attribute(self, name: str, default: Any) -> Any: ...
    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute: int, float, str, lists of them, or an array for a tensor; ``default`` where it is not given."""
        found = self.attributes.get(name)
        if found is None:
            return default
        value = helper.get_attribute_value(found)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, onnx.TensorProto):
            return array_of(value, self.importer.files)
        if found.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            return list(value)
        return [item.decode() for item in value] if found.type == onnx.AttributeProto.STRINGS else value

    def required(self, name: str) -> Any:
        """An attribute that must be given."""
        if name not in self.attributes:
            self.refuse(f"it has no attribute {name}")
        return self.attribute(name)

    def integers(self, name: str, position: int) -> list[int] | None:
        """Integers that are an attribute in old operator sets and an operand in new ones; None where neither is given.

        The operand must be known now.
        """
        if name in self.attributes:
            value = self.attribute(name)
            return [value] if isinstance(value, int) else list(value)
        if not self.has(position):
            return None
        return [int(item) for item in self.needed(position, f"its operand {name}").reshape(-1)]

    # Emitting

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind an intermediate result to a variable."""
        return self.importer.emit(expr)

    def constant(self, value: Any, dtype: str) -> ir.GenericConst:
        """A constant."""
        return constant_of(np.asarray(value).astype(numpy_dtype(dtype)))

    def cast(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """``expr``, a variable or a constant, with another element type; itself if it has this one."""
        return expr if dtype_of(expr) == dtype else self.emit(relax.op.astype(expr, dtype))

    def reshaped(self, expr: relax.Expr, shape: Sequence[Dim]) -> relax.Var:
        """``expr`` with another shape. Relax reads a size of 0 as "as before", which is not meant here."""
        if any(isinstance(size, int) and size == 0 for size in shape):
            return self.emit(relax.op.zeros(relax.ShapeExpr(list(shape)), dtype_of(expr)))
        return self.emit(relax.op.reshape(expr, list(shape)))

    def dims(self, expr: relax.Expr) -> list[Dim]:
        """The sizes of a variable or constant."""
        return dims_of(expr)


def with_resolved_attributes(node: OnnxNode) -> onnx.NodeProto:
    """The node with attributes that refer to no others."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    for name, attribute in node.attributes.items():
        copy = proto.attribute.add()
        copy.CopyFrom(attribute)
        copy.name, copy.ref_attr_name = name, ""
    return proto
