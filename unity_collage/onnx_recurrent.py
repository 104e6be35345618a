"""LSTM, GRU and RNN of an ONNX model as the operators of their definitions, step by step.

TVM's importer has none of the three. The equations, and the order of the gates, are those of the ONNX operators'
documentation; the inputs of all steps meet their weights in one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .errors import ModelError, first_line
from .onnx_cells import GATES, Cell, Nodes

_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
"""Those that are used where a node names none."""
_PLAIN_ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Softsign", "Tanh"})
"""That are operators of ONNX without attributes."""


def with_unrolled_cells(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with other nodes in place of LSTM, GRU and RNN; itself if it has none.

    Raises ModelError with one line for a cell that cannot be unrolled: where the number of steps is not known, or with
    options that few exporters write.
    """
    if not any(node.op_type in GATES for node in model.graph.node):
        return model
    types = _types(model)
    unrolled = onnx.ModelProto()
    unrolled.CopyFrom(model)
    del unrolled.graph.node[:]
    for node in model.graph.node:
        is_cell = node.op_type in GATES and node.domain in ("", "ai.onnx")
        unrolled.graph.node.extend(_Recurrent.of(node, types).unrolled() if is_cell else [node])
    return unrolled


@dataclass(frozen=True, slots=True)
class _Type:
    """Of a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _types(model: onnx.ModelProto) -> dict[str, _Type]:
    """By value, the types whose shapes are known."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # it raises what protobuf and its C++ raise
        raise ModelError(f"the shapes of this model cannot be inferred: {first_line(error)}") from error
    dtype = helper.tensor_dtype_to_np_dtype
    found = {tensor.name: _Type(tuple(tensor.dims), dtype(tensor.data_type)) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[value.name] = _Type(tuple(dim.dim_value for dim in dims), dtype(tensor.elem_type))
    return found


@dataclass(frozen=True, slots=True)
class _Recurrent:
    """An LSTM, GRU or RNN: X (steps, batch, inputs) with W, R, B, h0 and c0 -> Y, Y_h, Y_c."""

    node: onnx.NodeProto
    attributes: Mapping[str, Any]
    steps: int
    batch: int
    hidden: int
    directions: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, node: onnx.NodeProto, types: Mapping[str, _Type]) -> _Recurrent:
        """Raises ModelError if it cannot be unrolled."""
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        x, r = (types.get(_input(node, position)) for position in (0, 2))
        if x is None or r is None:
            raise ModelError(f"{_title(node)} cannot be unrolled: give the model's inputs fixed shapes")
        (steps, batch, _), (directions, _, hidden) = x.shape, r.shape
        found = cls(node, attributes, steps, batch, hidden, directions, r.dtype)
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
        nodes = Nodes(next(filter(None, self.node.output)))
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

    def _direction(self, nodes: Nodes, direction: int) -> tuple[list[str], str]:
        """The states of all steps, in the order of the steps, and the memory behind the last one."""
        x, w, r, b, _, h0, c0 = (_input(self.node, position) for position in range(7))
        gates = GATES[self.node.op_type]
        rows = gates * self.hidden
        biases = nodes.part(b, direction) if b else nodes.constant(np.zeros(2 * rows, self.dtype))
        of_inputs, of_state = (nodes.part(nodes.reshape(biases, [2, rows]), half) for half in range(2))
        if self.node.op_type != "GRU":  # which may reset what the state brings, with its bias
            of_inputs, of_state = nodes.add("Add", of_inputs, of_state), ""
        names = self._activations()
        count_each = len(names) // self.directions
        cell = Cell(
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
        zeros = np.zeros([self.batch, self.hidden], self.dtype)
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
