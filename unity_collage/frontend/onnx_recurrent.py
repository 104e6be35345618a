"""Imports LSTM, GRU and RNN of ONNX models as the operators of :mod:`unity_collage.operators`.

TVM's importer has none of the three. The equations and the order of the gates are those of the ONNX documentation. The
inputs of all steps are multiplied by their weights in one product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from .. import operators
from ..errors import ModelError, first_line
from ..operators.recurrent import ACTIVATIONS
from ..tvm_private import with_onnx_converters
from .onnx_nodes import Nodes

_CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
"""Our operator for each of ONNX."""
_DOMAIN = "collage"
"""The domain of nodes for our operators: ONNX's checker warns of unknown operators in its own domain."""


def with_recurrent_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with nodes for :func:`converters` in place of LSTM, GRU and RNN; itself if it has none of them.

    Raises ModelError with the reason in one line for a node that is not supported: its number of steps is unknown, or
    it has options that few exporters write.
    """
    if not any(node.op_type in _CELLS for node in model.graph.node):
        return model
    types = _types(model)
    replaced = onnx.ModelProto()
    replaced.CopyFrom(model)
    replaced.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    del replaced.graph.node[:]
    for node in model.graph.node:
        is_cell = node.op_type in _CELLS and node.domain in ("", "ai.onnx")
        replaced.graph.node.extend(_Recurrent.of(node, types).replaced() if is_cell else [node])
    return replaced


@contextmanager
def converters() -> Iterator[None]:
    """Inside the ``with`` block, TVM's importer converts the nodes of :func:`with_recurrent_operators`."""
    ours = {cell: _converter(getattr(operators, cell)) for cell in operators.CELLS}
    with with_onnx_converters(ours):
        yield


def _converter(make: Callable[..., relax.Expr]) -> type:
    def convert(_builder: Any, inputs: Any, attributes: Mapping[str, Any], _params: Any) -> relax.Expr:
        options = {key: value for key, value in attributes.items() if key != "tvm_custom"}
        options["activations"] = [name.decode() for name in options["activations"]]
        return make(*inputs, **options)

    return type(make.__name__, (onnx_frontend.OnnxOpConverter,), {"_impl_v1": staticmethod(convert)})


@dataclass(frozen=True, slots=True)
class _Type:
    """The type of a tensor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _types(model: onnx.ModelProto) -> dict[str, _Type]:
    """The types of the values whose shapes are known, by name."""
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # errors of protobuf and of C++
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
        """The node as a value; raises ModelError for what our operators do not support."""
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        x, r = (types.get(_input(node, position)) for position in (0, 2))
        if x is None or r is None:
            raise ModelError(f"{_title(node)} is not supported: give the model's inputs fixed shapes")
        (steps, batch, _), (directions, _, hidden) = x.shape, r.shape
        found = cls(node, attributes, steps, batch, hidden, directions, r.dtype)
        reason = found._why_not()
        if reason:
            raise ModelError(f"{_title(node)} is not supported: {reason}")
        return found

    def _why_not(self) -> str:
        unknown = sorted(set(self._activations()) - set(ACTIVATIONS))
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

    def replaced(self) -> list[onnx.NodeProto]:
        nodes = Nodes(next(filter(None, self.node.output)))
        found = [self._direction(nodes, direction) for direction in range(self.directions)]
        outputs = [*self.node.output, *[""] * (3 - len(self.node.output))]
        if outputs[0]:
            shape = [self.steps, 1, self.batch, self.hidden]
            nodes.add("Concat", *(nodes.reshape(each, shape) for each in self._states(nodes, found)),
                      output=outputs[0], axis=1)  # fmt: skip
        for row, output in ((self._last_state, outputs[1]), (lambda _direction: self.steps, outputs[2])):
            if output:
                parts = [nodes.rows(each, row(n), row(n) + 1) for n, each in enumerate(found)]
                nodes.add("Concat", *parts, output=output, axis=0)
        return nodes.made

    def _states(self, nodes: Nodes, found: Sequence[str]) -> list[str]:
        """The states of all steps, (steps, batch, hidden), of each direction."""
        return [nodes.rows(each, 0, self.steps) for each in found] if self._keeps_memory() else list(found)

    def _direction(self, nodes: Nodes, direction: int) -> str:
        """The states of all steps, and the last memory after them, if the node has an output for it."""
        x, w, r, b, _, h0, c0 = (_input(self.node, position) for position in range(7))
        gates = operators.CELLS[self._cell()].gates
        rows = gates * self.hidden
        biases = nodes.part(b, direction) if b else nodes.constant(np.zeros(2 * rows, self.dtype))
        of_inputs, of_state = nodes.rows(biases, 0, rows), nodes.rows(biases, rows, 2 * rows)
        products = nodes.add("MatMul", x, nodes.transposed(nodes.part(w, direction)))
        zeros = np.zeros([self.batch, self.hidden], self.dtype)
        state, memory = (nodes.part(v, direction) if v else nodes.constant(zeros) for v in (h0, c0))
        names = self._activations()
        each = len(names) // self.directions
        options: dict[str, Any] = {
            "activations": names[direction * each : (direction + 1) * each],
            "reverse": int(self._goes_back(direction)),
        }
        operands = [state]
        if self._cell() == "lstm":
            operands.append(memory)
            options["keeps_memory"] = int(self._keeps_memory())
        elif self._cell() == "gru":
            resets_first = not self.attributes.get("linear_before_reset")
            options["resets_first"] = int(resets_first)
            # The bias of the new state is an operand, since the product with the state may be reset together with it.
            # The biases of the gates are added to the inputs.
            operands.append(nodes.rows(of_state, 2 * self.hidden, rows))
            of_gates = nodes.rows(of_state, 0, 2 * self.hidden)
            of_state = nodes.add(
                "Concat", of_gates, nodes.constant(np.zeros(self.hidden, self.dtype)), axis=0
            )
        inputs = nodes.add("Add", products, nodes.add("Add", of_inputs, of_state))
        weights = nodes.transposed(nodes.part(r, direction))
        return nodes.add(self._cell(), inputs, weights, *operands, domain=_DOMAIN, **options)

    def _cell(self) -> str:
        return _CELLS[self.node.op_type]

    def _keeps_memory(self) -> bool:
        return len(self.node.output) > 2 and bool(self.node.output[2])

    def _last_state(self, direction: int) -> int:
        """The number of the step that runs last."""
        return 0 if self._goes_back(direction) else self.steps - 1

    def _goes_back(self, direction: int) -> bool:
        return direction == 1 or self.attributes.get("direction") == b"reverse"

    def _activations(self) -> list[str]:
        named = [name.decode() for name in self.attributes.get("activations", [])]
        return named or list(operators.CELLS[self._cell()].activations) * self.directions


def _input(node: onnx.NodeProto, position: int) -> str:
    """The name of an input; empty if the node does not have it."""
    return node.input[position] if position < len(node.input) else ""


def _title(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or next(filter(None, node.output))}"
