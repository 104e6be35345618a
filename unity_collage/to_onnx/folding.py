"""Folding: writes a graph again with each transpose moved down as far as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Order = tuple[int, ...]
"""Axis ``i`` of a transposed value is axis ``order[i]`` of its source, as in ``Transpose``."""

Move = Callable[["Folding", onnx.NodeProto, Sequence[str], Order], bool]
"""Writes a node before the transpose of its first operand; whether that is possible."""

_ELEMENTWISE = frozenset(
    {
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
        "BitwiseXor", "Cast", "Ceil", "Clip", "Cos", "Cosh", "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Floor",
        "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mul",
        "Neg", "Not", "Or", "Pow", "PRelu", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
        "Sin", "Sinh", "Softplus", "Sqrt", "Sub", "Tan", "Tanh", "Where", "Xor",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Pending:
    """A value that is a transpose of ``source``, and is written only if a node needs it in this order."""

    source: str
    order: Order


@dataclass(slots=True, eq=False)
class Folding:
    """Takes the nodes of a graph in order, and collects those of the folded one."""

    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, onnx.TensorProto]
    moves: Mapping[str, Move]
    """How operators that are not element-wise are written before a transpose of their first operand."""
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    _pending: dict[str, _Pending] = field(default_factory=dict[str, _Pending])
    _same: dict[str, str] = field(default_factory=dict[str, str])
    """Values that are other names of values."""
    _written: dict[tuple[str, Order], str] = field(default_factory=dict[tuple[str, Order], str])
    """The transposes that were written, by source and order."""

    def add(self, node: onnx.NodeProto) -> None:
        """Write ``node``, or remember what it is a transpose of."""
        names = [self._same.get(name, name) for name in node.input]
        if node.op_type == "Transpose":
            self._transpose(names[0], node)
        elif not self._moved(node, names):
            self._write(node, [self._in_order(name) for name in names])

    def _transpose(self, name: str, node: onnx.NodeProto) -> None:
        order = tuple(attribute(node, "perm"))
        pending = self._pending.get(name)
        source = name if pending is None else pending.source
        if pending is not None:
            order = tuple(pending.order[axis] for axis in order)
        if order == tuple(range(len(order))):
            self._same[node.output[0]] = source
        elif source in self.constants:
            self._same[node.output[0]] = self._constant_in(source, order)
        else:
            self._pending[node.output[0]] = _Pending(source, order)

    def _moved(self, node: onnx.NodeProto, names: Sequence[str]) -> bool:
        """Whether ``node`` was written before the transpose of its operand."""
        first = next((self._pending[name] for name in names if name in self._pending), None)
        if first is None:
            return False
        if node.op_type in _ELEMENTWISE or node.op_type == "Concat":
            return self._joined(node, names, first.order)
        if names[0] not in self._pending:
            return False
        way = self.moves.get(node.op_type)
        return way is not None and way(self, node, [first.source, *names[1:]], first.order)

    def _joined(self, node: onnx.NodeProto, names: Sequence[str], order: Order) -> bool:
        """An operator of several operands, all of which have to be in the order of the source."""
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(self._shape(names[1])) > 0:
            return False
        operands = [self._before(name, order, node.op_type != "Concat") for name in names]
        if any(operand is None for operand in operands):
            return False
        attributes = {"axis": order[axis_of(node, len(order))]} if node.op_type == "Concat" else {}
        self.put_behind(node, [operand for operand in operands if operand is not None], order, **attributes)
        return True

    def _before(self, name: str, order: Order, broadcasts: bool) -> str | None:
        """The value whose transpose to ``order`` is ``name``; None where that is not known."""
        pending = self._pending.get(name)
        if pending is not None and pending.order == order:
            return pending.source
        if not name:
            return name
        if name not in self.shapes and pending is None:
            return None
        shape = self._shape(name)
        if broadcasts and np.prod(shape, dtype=np.int64) == 1 and len(shape) <= len(order):
            return self._in_order(name)
        if name in self.constants and broadcasts and len(shape) < len(order):
            return self._constant_in(name, order, (1,) * (len(order) - len(shape)))
        if len(shape) != len(order):
            return None
        back = inverse(order)
        if name in self.constants:
            return self._constant_in(name, back)
        if pending is not None:
            return self._in(pending.source, tuple(pending.order[axis] for axis in back))
        return self._in(name, back)

    def put_behind(
        self, node: onnx.NodeProto, names: Sequence[str], order: Order, **attributes: object
    ) -> None:
        """Write ``node`` for operands before their transpose; its results are then transposes to ``order``."""
        made = onnx.NodeProto()
        made.CopyFrom(node)
        del made.input[:], made.output[:]
        made.input.extend(names)
        for name, value in attributes.items():
            kept = [each for each in made.attribute if each.name != name]
            del made.attribute[:]
            made.attribute.extend([*kept, helper.make_attribute(name, value)])
        for output in node.output:
            if not output:
                made.output.append("")
                continue
            source = f"{output}/before"
            made.output.append(source)
            shape = self.shapes.get(output)
            if shape is not None:
                self.shapes[source] = tuple(shape[axis] for axis in inverse(order))
            if order == tuple(range(len(order))):
                self._same[output] = source
            else:
                self._pending[output] = _Pending(source, order)
        self.nodes.append(made)

    def as_other_name(self, node: onnx.NodeProto, names: Sequence[str]) -> None:
        """Write ``node`` for other operands, with the results that it has."""
        self._write(node, names)

    def numbers(self, name: str) -> list[int] | None:
        """The integers of a constant vector; None for values that are computed."""
        tensor = self.constants.get(name)
        return None if tensor is None else [int(each) for each in numpy_helper.to_array(tensor).reshape(-1)]

    def constant(self, hint: str, values: Sequence[int]) -> str:
        """A new constant vector of 64-bit integers."""
        name = f"{hint}/{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.array(values, np.int64), name)
        self.shapes[name] = (len(values),)
        return name

    def _shape(self, name: str) -> tuple[int, ...]:
        pending = self._pending.get(name)
        if pending is None:
            return self.shapes.get(name, ())
        shape = self.shapes.get(pending.source, ())
        return tuple(shape[axis] for axis in pending.order) if shape else (0,) * len(pending.order)

    def _in_order(self, name: str) -> str:
        """``name`` as a value that is written."""
        pending = self._pending.get(name)
        return name if pending is None else self._in(pending.source, pending.order, name)

    def _in(self, source: str, order: Order, wanted: str | None = None) -> str:
        """The transpose of ``source``, written once."""
        if order == tuple(range(len(order))):
            return source
        if (source, order) not in self._written:
            name = wanted or f"{source}/{'_'.join(map(str, order))}"
            self.nodes.append(helper.make_node("Transpose", [source], [name], perm=list(order)))
            self._written[source, order] = name
            if source in self.shapes:
                self.shapes[name] = tuple(self.shapes[source][axis] for axis in order)
        return self._written[source, order]

    def _constant_in(self, name: str, order: Order, ones: tuple[int, ...] | None = None) -> str:
        """A constant with its axes in another order; with ``ones`` before its axes, the one before that order."""
        made = f"{name}/{'_'.join(map(str, order))}{'' if ones is None else f'/{len(ones)}'}"
        if made not in self.constants:
            array = numpy_helper.to_array(self.constants[name])
            if ones is not None:
                array, order = array.reshape((*ones, *array.shape)), inverse(order)
            array = np.ascontiguousarray(array.transpose(order))
            self.constants[made] = numpy_helper.from_array(array, made)
            self.shapes[made] = array.shape
        return made

    def _write(self, node: onnx.NodeProto, names: Sequence[str]) -> None:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        del made.input[:]
        made.input.extend(names)
        self.nodes.append(made)


def inverse(order: Order) -> Order:
    """The order that puts axes back."""
    return tuple(order.index(axis) for axis in range(len(order)))


def axis_of(node: onnx.NodeProto, rank: int) -> int:
    default = -1 if node.op_type in ("Softmax", "LogSoftmax") else 0
    return int(attribute(node, "axis", default)) % rank


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else helper.get_attribute_value(found)
