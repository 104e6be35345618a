"""Programs whose integers follow from floats have the integers of ONNX Runtime, whoever makes the kernels."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc


def buckets() -> onnx.ModelProto:
    """The buckets of T5's relative positions: 2 for 16, which is 1 with a logarithm that is a bit too small."""
    nodes = [
        helper.make_node("Cast", ["x"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["float", "eight"], ["ratio"]),
        helper.make_node("Log", ["ratio"], ["curve"]),
        helper.make_node("Div", ["curve", "most"], ["share"]),
        helper.make_node("Mul", ["share", "eight"], ["place"]),
        helper.make_node("Cast", ["place"], ["y"], to=TensorProto.INT64),
    ]
    return of(nodes, TensorProto.INT64, {"eight": 8.0, "most": float(np.log(16))})


def quotients() -> onnx.ModelProto:
    """41 / 41 is 1, but 41 times the rounded reciprocal of 41 is below it."""
    nodes = [helper.make_node("Div", ["x", "edge"], ["ratio"]), helper.make_node("Floor", ["ratio"], ["y"])]
    return of(nodes, TensorProto.FLOAT, {"edge": 41.0})


def of(nodes: list[onnx.NodeProto], dtype: int, constants: dict[str, float]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", dtype, ["n"])
    y = helper.make_tensor_value_info("y", dtype, ["n"])
    weights = [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("backends", "sizes"), [(None, []), (None, 999), ("onednn", 999), ("kernels", 999), ("tvm", 999)]
)
@pytest.mark.parametrize("model", [buckets(), quotients()], ids=["buckets", "quotients"])
def test_integers_are_those_of_onnx_runtime(
    model: onnx.ModelProto, backends: str | None, sizes: int | list[int]
) -> None:
    dtype = np.int64 if model.graph.input[0].type.tensor_type.elem_type == TensorProto.INT64 else np.float32
    x = np.arange(1, 1000).astype(dtype)
    program = uc.compile(model, shapes={"n": sizes}, measure=False, backends=backends)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(np.asarray(program(x)), session.run(None, {"x": x})[0])
