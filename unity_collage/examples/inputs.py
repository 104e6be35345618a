"""Random inputs for an ONNX model."""

from __future__ import annotations

import numpy as np
import onnx

_FLAGS = 2
"""Integers that do not index a table are flags: 0 or 1."""


def random_inputs_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name: floats normal, integers within the table that they index, named sizes 1."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _random(value, _vocabulary(model, value.name), rng)
        for value in model.graph.input
        if value.name not in weights
    }


def _random(value: onnx.ValueInfoProto, bound: int, rng: np.random.Generator) -> np.ndarray:
    tensor = value.type.tensor_type
    shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if dtype.kind in "iub":
        return rng.integers(0, bound, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def _vocabulary(model: onnx.ModelProto, name: str) -> int:
    """The number of entries of the smallest table that the input ``name`` indexes."""
    tables = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    sizes = [
        tables[node.input[0]][next((attr.i for attr in node.attribute if attr.name == "axis"), 0)]
        for node in model.graph.node
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in tables
    ]
    return min(sizes, default=_FLAGS)
