"""An ONNX model as a module of torch as a user might write it: weights in buffers, shapes as Python's numbers.

The graph is evaluated once on the inputs at hand. What does not depend on their values is kept: it is a constant, a
shape, or computed from those. The other calls of torch are recorded as a ``torch.fx.GraphModule``, code without
branches, which ``torch.compile`` traces in one graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import torch  # pyright: ignore[reportMissingImports]
from onnx import numpy_helper
from torch import fx  # pyright: ignore[reportMissingImports]
from torch.fx.proxy import GraphAppendingTracer  # pyright: ignore[reportMissingImports]

from unity_collage.errors import ModelError

from .call import Call, Value, attributes_of, title
from .operators import OPERATORS

OLDEST_OPERATORS = 13
"""Before this version Softmax flattened its operand, and Squeeze had attributes for operands."""


def graph_module(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> fx.GraphModule:
    """``model`` for inputs of these shapes, which it takes in the order of ``inputs``; returns a tuple.

    Raises ModelError, which names the operator, for what has no function here.
    """
    version = max((opset.version for opset in model.opset_import if _is_standard(opset.domain)), default=1)
    if version < OLDEST_OPERATORS:
        raise ModelError(
            f"operators of ONNX's version {version}: only those from {OLDEST_OPERATORS} on are known"
        )
    recording = _Recording(model.graph.initializer, inputs)
    with torch.no_grad():
        for node in model.graph.node:
            recording.add(node)
    return recording.module([output.name for output in model.graph.output])


class _Tracer(GraphAppendingTracer):
    """Records calls of torch; tensors among their operands become buffers."""

    def __init__(self) -> None:
        super().__init__(fx.Graph())
        self.buffers: dict[str, torch.Tensor] = {}

    def create_arg(self, a: Value) -> Value:
        return super().create_arg(self.buffer(a) if isinstance(a, torch.Tensor) else a)

    def buffer(self, value: torch.Tensor) -> fx.Proxy:
        name = f"buffer_{len(self.buffers)}"
        self.buffers[name] = value
        return fx.Proxy(self.graph.get_attr(name), self)


class _Recording:
    """The values of a graph by name: for the inputs at hand, and in the recorded graph unless they are known."""

    def __init__(self, weights: Iterable[onnx.TensorProto], inputs: Mapping[str, np.ndarray]):
        self._tracer = _Tracer()
        self._values = {tensor.name: _tensor(numpy_helper.to_array(tensor)) for tensor in weights}
        self._proxies: dict[str, fx.Proxy] = {}
        self._known = set(self._values)
        for number, (name, value) in enumerate(inputs.items()):
            self._values[name] = _tensor(value)
            self._proxies[name] = fx.Proxy(self._tracer.graph.placeholder(f"input_{number}"), self._tracer)

    def add(self, node: onnx.NodeProto) -> None:
        """Evaluate a node, and record it unless its values are known then."""
        function = OPERATORS.get(node.op_type) if _is_standard(node.domain) else None
        if function is None:
            raise ModelError(f"no torch function for ONNX operator {node.op_type} (node {title(node)})")
        operands = tuple(self._value(name, node) if name else None for name in node.input)
        known = tuple(not name or name in self._known for name in node.input)
        call = Call(node, operands, known, attributes_of(node))
        self._values.update(_by_name(node, function(call, *operands)))
        if all(known) or node.op_type == "Shape":
            self._known.update(node.output)
            return
        recorded = function(call, *(self._proxy(name) if name else None for name in node.input))
        self._proxies.update(_by_name(node, recorded))

    def module(self, outputs: Iterable[str]) -> fx.GraphModule:
        graph = self._tracer.graph
        graph.output(tuple(self._proxy(name).node for name in outputs))
        graph.eliminate_dead_code()
        return fx.GraphModule(self._tracer.buffers, graph, "OnnxModel").eval()

    def _value(self, name: str, node: onnx.NodeProto) -> torch.Tensor:
        if name not in self._values:
            raise ModelError(f"no torch function returns {name}, which node {title(node)} takes")
        return self._values[name]

    def _proxy(self, name: str) -> fx.Proxy:
        if name not in self._proxies:
            self._proxies[name] = self._tracer.buffer(self._values[name])
        return self._proxies[name]


def _by_name(node: onnx.NodeProto, values: Value) -> dict[str, Value]:
    """Those values of a node that its function returns."""
    found = values if isinstance(values, tuple) else (values,)
    return dict(zip(node.output, found, strict=False))


def _tensor(value: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(value.copy())  # a tensor of protobuf's may be read-only


def _is_standard(domain: str) -> bool:
    return domain in ("", "ai.onnx")
