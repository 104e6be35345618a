"""Fused chains of quantised steps: they are right, and their expressions do not grow to a power of the steps."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc


def _quantised_chain(operators: list[str], shape: list[int]) -> onnx.ModelProto:
    """Each operator between a quantisation and its opposite; SiLU is a product with a sigmoid that is quantised too."""
    nodes = []

    def quantised(name: str) -> str:
        for op, made in (("QuantizeLinear", f"{name}_q"), ("DequantizeLinear", f"{name}_d")):
            nodes.append(
                helper.make_node(op, [nodes[-1].output[0] if made[-1] == "d" else name, "s", "z"], [made])
            )
        return f"{name}_d"

    value = quantised("x")
    for number, op in enumerate(operators):
        nodes.append(helper.make_node("Sigmoid" if op == "SiLU" else op, [value], [f"v{number}"]))
        made = quantised(f"v{number}")
        if op == "SiLU":
            nodes.append(helper.make_node("Mul", [value, made], [f"product{number}"]))
            made = quantised(f"product{number}")
        value = made
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.int8(3), "z")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("operators", [["Tanh"], ["SiLU", "SiLU"], ["Relu"] * 8, ["Sigmoid", "Tanh", "Erf"]])
@pytest.mark.parametrize("shape", [[1, 3], [2, 64]])
def test_chains_are_what_onnxruntime_computes(operators: list[str], shape: list[int]) -> None:
    model = _quantised_chain(operators, shape)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    found = uc.compile(model, backends=["tvm"], measure=False)(x).numpy()
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)
