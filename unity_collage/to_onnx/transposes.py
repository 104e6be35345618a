"""Folds the transposes of an ONNX graph, so that a runtime sees images with channels first all the way.

A convolution of channels-last images is written between two transposes, since ONNX has no other layout. Here a
transpose moves down through operators that do not depend on the order of axes. It stops at its inverse, at a
constant, or at an operator that needs the order::

    before: Relu(Transpose(Conv(Transpose(x)))) -> Transpose -> Conv       after: Relu(Conv(Transpose(x))) -> Conv
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, shape_inference

from .folding import Folding
from .moves import MOVES

_SMALL = 64
"""The most elements of a constant with a value that shape inference may need."""


def with_folded_transposes(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with its transposes moved down and cancelled; ``model`` itself if it has none."""
    if not any(node.op_type == "Transpose" for node in model.graph.node):
        return model
    folding = Folding(
        {name: tuple(shape) for name, shape in _shapes(model)},
        {tensor.name: tensor for tensor in model.graph.initializer},
        MOVES,
    )
    for node in model.graph.node:
        folding.add(node)
    return _with_nodes(model, folding)


def _with_nodes(model: onnx.ModelProto, folding: Folding) -> onnx.ModelProto:
    read = {name for node in folding.nodes for name in node.input}
    graph = helper.make_graph(
        folding.nodes,
        model.graph.name,
        list(model.graph.input),
        list(model.graph.output),
        [tensor for name, tensor in folding.constants.items() if name in read],
    )
    return helper.make_model(
        graph,
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
        producer_name=model.producer_name,
    )


def _shapes(model: onnx.ModelProto) -> list[tuple[str, list[int]]]:
    """The shapes of all values, inferred without copying weights."""
    graph = onnx.GraphProto()
    graph.name = "shapes"
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) <= _SMALL:
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    light = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    found = shape_inference.infer_shapes(light).graph
    shapes = [(tensor.name, list(tensor.dims)) for tensor in model.graph.initializer]
    for value in (*found.input, *found.value_info, *found.output):
        if value.type.tensor_type.HasField("shape"):
            shapes.append((value.name, [each.dim_value for each in value.type.tensor_type.shape.dim]))
    return shapes
