"""LSTM, GRU and RNN of an ONNX model as the operators of their definitions, step by step.

TVM's importer has none of the three. The equations, and the order of the gates, are those of the ONNX operators'
documentation; the inputs of all steps meet their weights in one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .errors import ModelError, first_line

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
"""Those that are used where a node names none."""
_PLAIN_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Softsign", "Tanh"})
"""That are operators of ONNX without attributes."""


def with_unrolled_cells(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with other nodes in place of LSTM, GRU and RNN; itself if it has none.

    Raises ModelError with one line for a cell that cannot be unrolled: where the number of steps is not known, or with
    options that few exporters write.
    """
    if not any(node.op_type in _GATES for node in model.graph.node):
        return model
    shapes = _shapes(model)
    unrolled = onnx.ModelProto()
    unrolled.CopyFrom(model)
    del unrolled.graph.node[:]
    for node in model.graph.node:
        made = _Recurrent.of(node, shapes).unrolled() if node.op_type in _GATES else [node]
        unrolled.graph.node.extend(made)
    return unrolled


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes that are known, by value."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # it raises what protobuf and its C++ raise
        raise ModelError(f"the shapes of this model cannot be inferred: {first_line(error)}") from error
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[value.name] = tuple(dim.dim_value for dim in dims)
    return found


@dataclass(slots=True)
class _Nodes:
    """Nodes in the making, whose values are called after ``prefix``."""

    prefix: str
    made: list[onnx.NodeProto] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    def add(self, op: str, *inputs: str, output: str = "", **attributes: object) -> str:
        output = output or f"{self.prefix}/{op}_{next(self._numbers)}"
        self.made.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        return self.add("Constant", value=numpy_helper.from_array(value))

    def part(self, value: str, index: int, axis: int = 0) -> str:
        """``value[index]`` along ``axis``, which goes."""
        return self.add("Gather", value, self.constant(np.array(index, "int64")), axis=axis)

    def reshape(self, value: str, shape: Sequence[int], output: str = "") -> str:
        return self.add("Reshape", value, self.constant(np.array(shape, "int64")), output=output)

    def transposed(self, value: str) -> str:
        return self.add("Transpose", value, perm=[1, 0])


@dataclass(frozen=True, slots=True)
class _Cell:
    """One direction of a node: what it multiplies its state by, and its activations."""

    nodes: _Nodes
    weights: str
    """(hidden, gates x hidden)"""
    bias: str
    """What is added to products with them, (gates x hidden); empty where the inputs have it."""
    activations: Sequence[str]
    gates: int
    hidden: int
    resets_first: bool
    """GRU: whether the state is reset before its product (``linear_before_reset=0``)."""

    def step(self, kind: str, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """The state and the memory behind one step; ``inputs`` is (batch, gates x hidden), with their bias."""
        steps = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}
        return steps[kind](inputs, state, memory)

    def _rnn(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ht = f(Xt W + Wb + Ht-1 R + Rb)."""
        total = self.nodes.add("Add", inputs, self._product(state))
        return self.nodes.add(self.activations[0], total), memory

    def _lstm(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ct = ft Ct-1 + it ct; Ht = ot h(Ct); gates in the order i, o, f, c."""
        add, (f, g, h) = self.nodes.add, self.activations
        total = add("Add", inputs, self._product(state))
        admitted, shown, kept = (add(f, self._gate(total, number)) for number in range(3))
        memory = add("Add", add("Mul", kept, memory), add("Mul", admitted, add(g, self._gate(total, 3))))
        return add("Mul", shown, add(h, memory)), memory

    def _gru(self, inputs: str, state: str, memory: str) -> tuple[str, str]:
        """Ht = (1 - zt) ht + zt Ht-1 = ht + zt (Ht-1 - ht); gates in the order z, r, h."""
        add, (f, g) = self.nodes.add, self.activations
        product = self._product(state)
        kept, reset = (
            add(f, add("Add", self._gate(inputs, number), self._gate(product, number))) for number in range(2)
        )
        if self.resets_first:
            new = self._gate(self._product(add("Mul", reset, state)), 2)
        else:
            new = add("Mul", reset, self._gate(product, 2))
        new = add(g, add("Add", self._gate(inputs, 2), new))
        return add("Add", new, add("Mul", kept, add("Sub", state, new))), memory

    def _gate(self, values: str, number: int) -> str:
        """(batch, hidden) of (batch, gates x hidden)."""
        if self.gates == 1:
            return values
        return self.nodes.part(self.nodes.reshape(values, [-1, self.gates, self.hidden]), number, axis=1)

    def _product(self, state: str) -> str:
        found = self.nodes.add("MatMul", state, self.weights)
        return self.nodes.add("Add", found, self.bias) if self.bias else found


@dataclass(frozen=True, slots=True)
class _Recurrent:
    """An LSTM, GRU or RNN: X (steps, batch, inputs) with W, R, B, h0 and c0 -> Y, Y_h, Y_c."""

    node: onnx.NodeProto
    attributes: Mapping[str, Any]
    steps: int
    batch: int
    hidden: int
    directions: int

    @classmethod
    def of(cls, node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> _Recurrent:
        """Raises ModelError if it cannot be unrolled."""
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        x, r = (shapes.get(_input(node, position), ()) for position in (0, 2))
        if len(x) != 3 or len(r) != 3:
            raise ModelError(f"{_title(node)} cannot be unrolled: give the model's inputs fixed shapes")
        found = cls(node, attributes, x[0], x[1], r[2], r[0])
        reason = found._why_not()
        if reason:
            raise ModelError(f"{_title(node)} cannot be unrolled: {reason}")
        return found

    def _why_not(self) -> str:
        unknown = sorted(set(self._activations()) - _PLAIN_ACTIVATIONS)
        reasons = {
            "it has lengths of sequences": bool(_input(self.node, 4)),
            "it has peepholes": bool(_input(self.node, 7)),
            "it is clipped": "clip" in self.attributes,
            "its gates are coupled (input_forget)": bool(self.attributes.get("input_forget")),
            "its batch comes first (layout=1)": bool(self.attributes.get("layout")),
            "its sequences are empty": self.steps == 0,
            f"its activations are {', '.join(unknown)}": bool(unknown),
        }
        return next((reason for reason, applies in reasons.items() if applies), "")

    def unrolled(self) -> list[onnx.NodeProto]:
        nodes = _Nodes(next(filter(None, self.node.output)))
        states, memories = [], []
        for direction in range(self.directions):
            found, memory = self._direction(nodes, direction)
            states.append(found)
            memories.append(memory)
        outputs = [*self.node.output, *[""] * (3 - len(self.node.output))]
        last = [found[0 if self._goes_back(number) else -1] for number, found in enumerate(states)]
        if outputs[0]:
            shape = [self.steps, 1, self.batch, self.hidden]
            sequences = [nodes.reshape(nodes.add("Concat", *found, axis=0), shape) for found in states]
            nodes.add("Concat", *sequences, output=outputs[0], axis=1)
        for values, output in ((last, outputs[1]), (memories, outputs[2])):
            if output:
                parts = [nodes.reshape(value, [1, self.batch, self.hidden]) for value in values]
                nodes.add("Concat", *parts, output=output, axis=0)
        return nodes.made

    def _direction(self, nodes: _Nodes, direction: int) -> tuple[list[str], str]:
        """The states of all steps, in the order of the steps, and the memory behind the last one."""
        x, w, r, b, _, h0, c0 = (_input(self.node, position) for position in range(7))
        gates = _GATES[self.node.op_type]
        rows = gates * self.hidden
        biases = nodes.part(b, direction) if b else nodes.constant(np.zeros(2 * rows, np.float32))
        of_inputs, of_state = (nodes.part(nodes.reshape(biases, [2, rows]), half) for half in range(2))
        if self.node.op_type != "GRU":  # which may reset what the state brings, with its bias
            of_inputs, of_state = nodes.add("Add", of_inputs, of_state), ""
        names = self._activations()
        count_each = len(names) // self.directions
        cell = _Cell(
            nodes,
            nodes.transposed(nodes.part(r, direction)),
            of_state,
            names[direction * count_each : (direction + 1) * count_each],
            gates,
            self.hidden,
            resets_first=not self.attributes.get("linear_before_reset"),
        )
        products = nodes.add("MatMul", x, nodes.transposed(nodes.part(w, direction)))
        inputs = nodes.add("Add", products, of_inputs)
        zeros = np.zeros([self.batch, self.hidden], np.float32)
        state, memory = (nodes.part(v, direction) if v else nodes.constant(zeros) for v in (h0, c0))
        found: dict[int, str] = {}
        for step in sorted(range(self.steps), reverse=self._goes_back(direction)):
            state, memory = cell.step(self.node.op_type, nodes.part(inputs, step), state, memory)
            found[step] = state
        return [found[step] for step in range(self.steps)], memory

    def _goes_back(self, direction: int) -> bool:
        return direction == 1 or self.attributes.get("direction") == b"reverse"

    def _activations(self) -> list[str]:
        named = [name.decode() for name in self.attributes.get("activations", [])]
        return named or _ACTIVATIONS[self.node.op_type] * self.directions


def _input(node: onnx.NodeProto, position: int) -> str:
    """The name of an input, empty if it is not there."""
    return node.input[position] if position < len(node.input) else ""


def _title(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or next(filter(None, node.output))}"
