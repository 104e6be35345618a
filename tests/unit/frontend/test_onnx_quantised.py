"""Quantised operators of ONNX and of ONNX Runtime, compared with ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_case import by_onnxruntime, by_reference, check, one_node

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported
from unity_collage.graph.calls import calls, op_name
from unity_collage.graph.shapes import dtype_of

_RNG = np.random.default_rng(0)
_MS = {"domain": "com.microsoft"}


def _floats(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape).astype("float32")


def _bytes(dtype: str, *shape: int) -> np.ndarray:
    return _RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def _weights(dtype: str, *shape: int) -> np.ndarray:
    """Signed ones have 7 bits: ONNX Runtime adds pairs of products of 8 bits in 16 bits, saturating, where a processor
    has AVX2 and no dot products of bytes. It is not the right reference for more there."""
    numbers = _bytes(dtype, *shape)
    return (numbers // 2).astype(dtype) if dtype == "int8" else numbers


def _scale(*values: float) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, "float32")


def test_quantising_rounds_half_to_even_and_saturates():
    feeds = {
        "x": np.array([0.25, 0.75, -0.25, 1e9, -1e9, np.inf, -np.inf, np.nan], "float32"),
        "s": _scale(0.5),
        "z": np.array(10, "uint8"),
    }
    check(one_node("QuantizeLinear", feeds, opset=10), feeds)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_along_an_axis(op, dtype):
    scales, zeros = _scale(0.5, 0.01, 3), _bytes(dtype, 3)
    x = 20 * _floats(2, 4, 3) if op == "QuantizeLinear" else _bytes(dtype, 2, 4, 3)
    feeds = {"x": x, "s": scales, "z": zeros}
    check(one_node(op, feeds, opset=21, axis=-1), feeds)


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_blocks(op):
    x = 20 * _floats(2, 8, 3) if op == "QuantizeLinear" else _bytes("int8", 2, 8, 3)
    feeds = {"x": x, "s": _RNG.uniform(0.1, 1, (2, 2, 3)).astype("float32"), "z": _bytes("int8", 2, 2, 3)}
    check(one_node(op, feeds, opset=21, axis=1, block_size=4), feeds)


def test_types_of_results_by_attribute():
    feeds = {"x": 20 * _floats(2, 3), "s": _scale(0.5)}
    model = one_node("QuantizeLinear", feeds, opset=21, output_dtype=TensorProto.INT16)
    check(model, feeds, want=[np.rint(feeds["x"] / 0.5).astype("int16")])
    feeds = {"x": _bytes("int8", 2, 3), "s": _scale(0.5)}
    model = one_node("DequantizeLinear", feeds, opset=23, output_dtype=TensorProto.FLOAT16)
    check(model, feeds, want=[(feeds["x"] * 0.5).astype("float16")])


def test_dequantising_int32():
    feeds = {"x": np.array([-(2**30), 5, 2**24 + 2], "int32"), "s": _scale(0.25)}
    check(one_node("DequantizeLinear", feeds, opset=10), feeds)


def test_constants_of_four_bits_are_unpacked():
    feeds = {"x": np.array([[-8, 7, 3], [0, -1, 2]]).astype(ml_dtypes.int4), "s": _scale(0.5)}
    model = one_node("DequantizeLinear", feeds, opset=21, constant=["x"])
    check(model, feeds, want=[np.array([[-4, 3.5, 1.5], [0, -0.5, 1]], "float32")])


def _called(model):
    return {op_name(call) for call in calls(imported(model)[0]["main"])}


@pytest.mark.parametrize("opset", [13, 19, 21])
def test_weights_of_bytes_stay_bytes(opset):
    """Products of bytes are recognised by the steps before them."""
    feeds = {"w": _bytes("int8", 8, 3), "s": _scale(0.5)}
    model = one_node("DequantizeLinear", feeds, opset=opset, constant=["w", "s"])
    assert _called(model) == {"relax.dequantize"}
    check(model, feeds, want=[feeds["w"] * feeds["s"]])


@pytest.mark.parametrize(("shape", "attributes"), [((8,), {}), ((8, 3), {"axis": 0, "block_size": 4})])
def test_other_constants_become_floats_at_once(shape, attributes):
    scales = _RNG.uniform(0.1, 1, (2, 3) if attributes else ()).astype("float32")
    feeds = {"w": _bytes("int8", *shape), "s": scales}
    model = one_node("DequantizeLinear", feeds, opset=21, constant=["w", "s"], **attributes)
    assert not _called(model)
    check(model, feeds, want=[feeds["w"] * (np.repeat(scales, 4, 0) if attributes else scales)])


def test_quantising_to_float8_is_refused():
    feeds = {"x": _floats(3), "s": _scale(1.0)}
    with pytest.raises(ModelError, match="float8"):
        imported(one_node("QuantizeLinear", feeds, opset=21, output_dtype=TensorProto.FLOAT8E4M3FN))


@pytest.mark.parametrize("x", [_floats(3, 4), np.zeros((2, 3), "float32"), np.abs(_floats(5))])
def test_dynamic_quantisation(x):
    check(one_node("DynamicQuantizeLinear", {"x": x}, 3, opset=11), {"x": x})


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("per_column", [False, True])
def test_integer_products(kinds, per_column):
    columns = (5,) if per_column else ()
    feeds = {
        "a": _bytes(kinds[0], 2, 3, 16),
        "b": _weights(kinds[1], 16, 5),
        "az": _bytes(kinds[0]),
        "bz": _bytes(kinds[1], *columns),
    }
    check(one_node("MatMulInteger", feeds, opset=10), feeds)
    check(one_node("MatMulInteger", feeds, opset=10, constant=["b", "bz"]), feeds)
    check(one_node("MatMulInteger", feeds, opset=10, constant=["az", "b", "bz"]), feeds)


def test_a_matrix_that_is_known_stays_one_of_bytes():
    feeds = {"a": _bytes("uint8", 3, 16), "b": _weights("uint8", 16, 5), "az": _bytes("uint8")}
    for zero, is_of_bytes in ((128, True), (3, False)):  # the numbers go from 0 to 255
        given = {**feeds, "bz": np.array(zero, "uint8")}
        given["b"][0, :2] = 0, 255
        model = one_node("MatMulInteger", given, opset=10, constant=["b", "bz"])
        check(model, given)
        (product,) = (call for call in calls(imported(model)[0]["main"]) if op_name(call) == "relax.matmul")
        assert [dtype_of(arg) for arg in product.args] == (
            ["uint8", "int8"] if is_of_bytes else ["int32", "int32"]
        )


@pytest.mark.parametrize("per_column", [False, True])
def test_quantised_products(per_column):
    scales = _RNG.uniform(0.01, 0.02, 5).astype("float32") if per_column else _scale(0.01)
    feeds = {
        "a": _bytes("uint8", 3, 16),
        "as": _scale(0.02),
        "az": np.array(120, "uint8"),
        "b": _weights("int8", 16, 5),
        "bs": scales,
        "bz": np.zeros(scales.shape, "int8"),
        "ys": _scale(0.1),
        "yz": np.array(128, "uint8"),
    }
    check(one_node("QLinearMatMul", feeds, opset=10, constant=["b", "bs", "bz"]), feeds, atol=1)


def test_rows_with_scales_of_their_own():
    feeds = {
        "a": _bytes("uint8", 3, 4),
        "as": _scale(0.02, 0.01, 0.5),
        "az": _bytes("uint8", 3),
        "b": _bytes("int8", 4, 5),
        "bs": _scale(0.02),
        "bz": np.array(3, "int8"),
        "ys": _scale(0.5),
        "yz": np.array(100, "uint8"),
    }
    a = (feeds["a"].astype("int32") - feeds["az"].astype("int32")[:, None]) * feeds["as"].astype("float64")[
        :, None
    ]
    b = (feeds["b"].astype("int32") - 3) * 0.02
    want = np.clip(np.rint(a @ b / 0.5) + 100, 0, 255).astype("uint8")
    check(one_node("QLinearMatMul", feeds, opset=10), feeds, want=[want], atol=1)


@pytest.mark.parametrize(
    "attributes", [{"pads": [1, 1, 1, 1]}, {"group": 2, "strides": [2, 1]}, {"auto_pad": "SAME_UPPER"}]
)
def test_quantised_convolutions(attributes):
    group = attributes.get("group", 1)
    feeds = {
        "x": _bytes("uint8", 1, 4, 6, 7),
        "xs": _scale(0.03),
        "xz": np.array(128, "uint8"),
        "w": _weights("int8", 6, 4 // group, 3, 3),
        "ws": _RNG.uniform(0.01, 0.02, 6).astype("float32"),
        "wz": np.zeros(6, "int8"),
        "ys": _scale(0.5),
        "yz": np.array(100, "uint8"),
        "b": _RNG.integers(-500, 500, 6).astype("int32"),
    }
    weights = [name for name in feeds if name != "x"]
    check(one_node("QLinearConv", feeds, opset=10, constant=weights, **attributes), feeds, atol=1)
    plain = {name: feeds[name] for name in ("x", "w", "xz")}
    model = one_node("ConvInteger", plain, opset=10, constant=["w", "xz"], **attributes)
    check(model, plain, want=by_reference(model, plain) if group > 1 else None)


def _image() -> dict[str, np.ndarray]:
    return {"x": _bytes("uint8", 1, 4, 6, 6), "xs": _scale(0.03), "xz": np.array(128, "uint8")}


_RESULT = {"ys": _scale(0.02), "yz": np.array(10, "uint8")}


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("QLinearAveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
    ],
)
def test_quantised_functions(op, attributes):
    feeds = _image() | _RESULT
    check(one_node(op, feeds, **_MS, constant=list(feeds)[1:], **attributes), feeds, atol=1)


@pytest.mark.parametrize("opset", [12, 13])
def test_quantised_softmax(opset):
    feeds = _image() | _RESULT
    model = one_node("QLinearSoftmax", feeds, **_MS, constant=list(feeds)[1:], axis=1)
    model.graph.node[0].attribute.append(helper.make_attribute("opset", opset))
    check(model, feeds, atol=1)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantised_arithmetic(op):
    other = {"b": _bytes("uint8", 4, 1, 1), "bs": _scale(0.05), "bz": np.array(3, "uint8")}
    feeds = _image() | other | _RESULT
    check(one_node(op, feeds, **_MS), feeds, atol=1)


def test_quantised_concatenation():
    other = {"b": _bytes("uint8", 1, 2, 6, 6), "bs": _scale(0.05), "bz": np.array(3, "uint8")}
    feeds = _RESULT | _image() | other
    check(
        one_node("QLinearConcat", feeds, **_MS, constant=[n for n in feeds if n not in "xb"], axis=1),
        feeds,
        atol=1,
    )


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(quantised, transposed):
    feeds = {
        "a": _bytes("uint8", 3, 8),
        "as": _scale(0.02),
        "az": np.array(120, "uint8"),
        "b": _weights("int8", *((5, 8) if transposed else (8, 5))),
        "bs": _scale(0.01),
        "bz": np.array(2, "int8"),
        "c": _RNG.integers(-99, 99, 5).astype("int32"),
        **(_RESULT if quantised else {}),
    }
    model = one_node("QGemm", feeds, **_MS, transB=transposed, alpha=1.5 if not quantised else 1.0)
    check(model, feeds, rtol=1e-4, atol=1 if quantised else 1e-4)


def test_transposed_weights_with_a_zero_point_for_each_column():
    feeds = {
        "a": _bytes("uint8", 3, 8),
        "as": _scale(0.02),
        "az": np.array(120, "uint8"),
        "b": _bytes("uint8", 5, 8),
        "bs": _RNG.uniform(0.01, 0.02, 5).astype("float32"),
        "bz": _bytes("uint8", 5),
    }
    feeds["b"][0, :2] = 0, 255  # less their zero points they are wider than bytes
    b = (feeds["b"].astype("int32") - feeds["bz"].astype("int32")[:, None]) * feeds["bs"][:, None]
    want = (feeds["a"].astype("int32") - 120) * np.float32(0.02) @ b.T
    model = one_node("QGemm", feeds, **_MS, transB=1, constant=["b", "bs", "bz"])
    check(model, feeds, rtol=1e-4, want=[want.astype("float32")])


def test_products_to_floats():
    feeds = {
        "a": _bytes("uint8", 3, 8),
        "b": _weights("int8", 8, 5),
        "as": _scale(0.02),
        "bs": _RNG.uniform(0.01, 0.02, 5).astype("float32"),
        "az": np.array(120, "uint8"),
        "bz": np.zeros(5, "int8"),
        "bias": _floats(5),
    }
    check(one_node("MatMulIntegerToFloat", feeds, **_MS), feeds, rtol=1e-4, atol=1e-4)
    feeds = {
        "a": _floats(3, 8),
        "b": feeds["b"],
        "bs": _scale(0.02),
        "bz": np.array(3, "int8"),
        "bias": _floats(5),
    }
    check(one_node("DynamicQuantizeMatMul", feeds, **_MS), feeds, rtol=1e-4, atol=1e-4)


def test_quantise_operators_of_onnxruntime():
    feeds = {"x": 20 * _floats(2, 3), "s": _scale(0.5), "z": np.array(7, "uint16")}
    model = one_node("QuantizeLinear", feeds, **_MS)
    check(model, feeds, want=by_onnxruntime(model, feeds))
