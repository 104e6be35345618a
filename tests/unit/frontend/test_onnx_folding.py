"""Known values are computed by the node's own version of its operator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx_case import check, one_node, run
from tvm import relax

from unity_collage.frontend.onnx.importer import imported

RNG = np.random.default_rng(0)
CUBE = RNG.standard_normal((2, 3, 4)).astype("float32")


def flattened_softmax(x: np.ndarray) -> np.ndarray:
    rows = np.exp(x.reshape(x.shape[0], -1).astype("float64"))
    return (rows / rows.sum(1, keepdims=True)).reshape(x.shape).astype("float32")


@pytest.mark.parametrize(
    ("op", "opset", "operand", "attributes", "expected", "is_folded"),
    [
        ("Unsqueeze", 11, np.array(94, "int64"), {"axes": [0]}, np.array([94]), True),
        ("Squeeze", 11, np.array([[5, 7]], "int64"), {"axes": [0]}, np.array([5, 7]), True),
        ("ReduceSum", 11, CUBE, {"axes": [1], "keepdims": 0}, CUBE.sum(1), True),
        ("ReduceProd", 11, np.array([2, 3], "int64"), {"axes": [0]}, np.array([6]), True),
        ("Softmax", 11, CUBE, {}, flattened_softmax(CUBE), False),
        ("Softmax", 13, CUBE, {"axis": 1}, np.exp(CUBE) / np.exp(CUBE).sum(1, keepdims=True), True),
    ],
)
def test_a_constant_operand(
    op: str,
    opset: int,
    operand: np.ndarray,
    attributes: dict[str, Any],
    expected: np.ndarray,
    is_folded: bool,
) -> None:
    model = one_node(op, {"x": operand}, opset=opset, constant=["x"], **attributes)
    (found,) = run(model, {})
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    mod, _, _ = imported(model)
    assert _has_no_calls(mod["main"]) == is_folded


def _has_no_calls(function: relax.Function) -> bool:
    calls: list[relax.Call] = []
    relax.analysis.post_order_visit(
        function, lambda node: calls.append(node) if isinstance(node, relax.Call) else None
    )
    return not calls


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_beyond_the_range_saturates(dtype: str) -> None:
    """onnx's evaluator rounds to int32 first, and larger numbers wrap around."""
    x, ends = np.array([3e9, -3e9, np.inf, 7], "float32"), np.iinfo(dtype)
    operands = {"x": x, "scale": np.array(1, "float32"), "zero": np.array(0, dtype)}
    (found,) = run(one_node("QuantizeLinear", operands, opset=13, constant=[*operands]), {})
    np.testing.assert_array_equal(found, np.array([ends.max, ends.min, ends.max, 7], dtype))


def test_a_result_without_a_name_is_left_out() -> None:
    operands = {"x": np.array([3, 1, 2], "float32"), "k": np.array([2], "int64")}
    (found,) = run(one_node("TopK", operands, ["", "places"], constant=[*operands]), {})
    np.testing.assert_array_equal(found, [0, 2])


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("op", "opset", "operands", "attributes"),
    [
        ("BatchNormalization", 9, [CUBE, *drawn(3, 3), np.full(3, 2, "float32")], {}),
        ("ConvTranspose", 11, [drawn(1, 4, 3, 3), drawn(4, 1, 2, 2)], {"group": 2}),
        ("GlobalMaxPool", 13, [CUBE], {}),
        ("LRN", 13, [drawn(1, 4, 2, 2)], {"size": 3, "alpha": 0.5}),
        ("LogSoftmax", 13, [np.array([[0, -200]], "float32")], {}),
        ("LpNormalization", 13, [CUBE], {"p": 1}),
        ("OneHot", 11, [np.array([0, 2]), np.array(3), np.array([-np.inf, 0], "float32")], {}),
        ("RNN", 14, [CUBE, drawn(1, 2, 4), drawn(1, 2, 2)], {"activations": ["Relu"], "hidden_size": 2}),
        ("Slice", 13, [np.arange(5), *np.array([[-9], [-20], [0], [-2]])], {}),
        ("Unsqueeze", 11, [CUBE[0, 0]], {"axes": [-2, -1]}),
    ],
)
def test_constants_are_what_onnx_runtime_computes(
    op: str, opset: int, operands: list[np.ndarray], attributes: dict[str, Any]
) -> None:
    """The evaluator of onnx computes other numbers."""
    given = dict(zip("abcde", operands, strict=False))
    check(one_node(op, given, opset=opset, constant=[*given], **attributes), {})


def test_sums_of_float16_do_not_overflow() -> None:
    """The evaluator of onnx adds up in float16."""
    x = np.full((1, 1000), 100, "float16")
    (found,) = run(one_node("ReduceMean", {"x": x}, constant=["x"], axes=[1]), {})
    np.testing.assert_array_equal(found, np.array([[100]], "float16"))


def test_the_error_function_of_float64_has_its_digits() -> None:
    """The evaluator of onnx computes it in float32."""
    x = np.array([-1.0, 0.3, 2.0])
    (found,) = run(one_node("Erf", {"x": x}, constant=["x"]), {})
    np.testing.assert_allclose(found, [math.erf(each) for each in x], rtol=1e-12)
