"""Quantised convolutions in both forms of ONNX, against ONNX Runtime without its optimisations."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import unity_collage as uc

_STEP = 0.05


def _network(batch: int | str, zero: int, dtype: str, in_operators: bool) -> onnx.ModelProto:
    """A convolution of bytes with a bias: ``QLinearConv``, or ``Conv`` and ``Relu`` between quantising steps."""
    rng = np.random.default_rng(0)
    scales, bias = rng.uniform(0.002, 0.01, 8).astype("float32"), rng.integers(-1000, 1000, 8).astype("int32")
    known = {
        "w": rng.integers(-127, 128, (8, 4, 3, 3)).astype("int8"),
        "sw": scales,
        "zw": np.zeros(8, "int8"),
        "sx": np.float32(0.02),
        "zx": np.asarray(zero, dtype),
        "sy": np.float32(_STEP),
        "zy": np.asarray(3, dtype),
        "b": bias if in_operators else (bias * 0.02 * scales).astype("float32"),
    }
    first = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"])]
    if in_operators:
        operands = ["xq", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
        inner = [helper.make_node("QLinearConv", operands, ["yq"], pads=[1, 1, 1, 1])]
    else:
        inner = [
            helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], axis=0),
            helper.make_node("Conv", ["xd", "wd", "b"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["yq"]),
        ]
    last = [helper.make_node("DequantizeLinear", ["yq", "sy", "zy"], ["y"])]
    graph = helper.make_graph(
        [*first, *inner, *last],
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4, 9, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 8, 9, 10])],
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("backends", [None, ["tvm"]], ids=["default", "tvm"])
@pytest.mark.parametrize("in_operators", [False, True], ids=["steps around", "one operator"])
@pytest.mark.parametrize(("batch", "zero", "dtype"), [(1, 131, "uint8"), (1, -7, "int8"), ("n", 0, "uint8")])
def test_convolutions_are_what_onnxruntime_computes(
    batch: int | str, zero: int, dtype: str, in_operators: bool, backends: list[str] | None
) -> None:
    model = _network(batch, zero, dtype, in_operators)
    x = np.random.default_rng(1).standard_normal((2 if batch == "n" else 1, 4, 9, 10)).astype("float32")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    found = uc.compile(model, backends=backends, measure=False)(x).numpy()
    steps = np.abs(found - want) / _STEP
    assert steps.max() < 1.01  # where a number is nearly half a step from two integers
    assert (steps > 0.01).mean() < 0.01


def test_bfloat16_leaves_quantised_values_alone() -> None:
    model = _network(1, 131, "uint8", in_operators=False)
    x = np.random.default_rng(1).standard_normal((1, 4, 9, 10)).astype("float32")
    wide, narrow = (uc.compile(model, precision=p, measure=False)(x).numpy() for p in ("f32", "bf16"))
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=1.01 * _STEP)
