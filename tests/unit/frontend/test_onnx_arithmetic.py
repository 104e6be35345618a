"""Arithmetic, activations and casts of ONNX, in the cases that the standard's node tests leave out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from onnx_case import by_reference, check, one_node, run

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported

_FLOATS = np.array(
    [-np.inf, -40, -3.5, -1.0, -0.3, -1e-4, 0.0, 1e-4, 0.5, 2.0, 30.0, np.inf, np.nan], "float32"
)
_INTEGERS = np.array([7, -7, 0, 5, -128, 127, 100, -1], "int8")


@pytest.mark.parametrize(
    ("op", "opset", "attributes"),
    [
        ("Elu", 7, {"alpha": 1.5}),
        ("Celu", 12, {"alpha": 0.7}),
        ("Selu", 7, {}),
        ("Selu", 7, {"alpha": 1.2, "gamma": 2.0}),
        ("LeakyRelu", 7, {"alpha": 0.2}),
        ("ThresholdedRelu", 10, {"alpha": 0.4}),
        ("HardSigmoid", 7, {"alpha": 0.3, "beta": 0.4}),
        ("Softplus", 7, {}),
        ("Shrink", 9, {"lambd": 0.4, "bias": 0.1}),
        ("Mish", 18, {}),
        ("Sign", 13, {}),
        ("Erf", 13, {}),
        ("IsInf", 10, {"detect_negative": 0}),
        ("IsInf", 10, {"detect_negative": 0, "detect_positive": 0}),
    ],
)
def test_functions_of_one_tensor(op, opset, attributes):
    finite = (
        _FLOATS[np.isfinite(_FLOATS)] if op in ("HardSigmoid", "Mish", "Selu", "ThresholdedRelu") else _FLOATS
    )
    check(one_node(op, {"x": finite}, opset=opset, **attributes), {"x": finite}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", ["Acos", "Asinh", "Atan", "Cosh", "Softplus", "Mish", "Softmax", "ReduceSum"])
@pytest.mark.parametrize(("dtype", "rounding"), [(np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)])
def test_halves_are_computed_in_float32(op, dtype, rounding):
    x = np.linspace(-0.9, 0.9, 600).astype(dtype)
    wide = by_reference(one_node(op, {"x": x.astype("float32")}, opset=18), {"x": x.astype("float32")})[0]
    check(one_node(op, {"x": x}, opset=18), {"x": x}, rtol=rounding, atol=1e-4, want=[wide.astype(dtype)])


def test_softplus_keeps_small_results():
    x = np.array([-80, -20, -10, -1, 0, 1, 20], "float64")
    check(
        one_node("Softplus", {"x": x}),
        {"x": x},
        rtol=1e-12,
        atol=0,
        want=[np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)],
    )
    single = x.astype("float32")
    want = np.logaddexp(x, 0).astype("float32")
    check(one_node("Softplus", {"x": single}), {"x": single}, rtol=3e-7, atol=0, want=[want])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize(("op", "attributes"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_division_of_integers(op, attributes, dtype):
    a = _INTEGERS.astype(dtype)
    b = np.array([2, 2, 3, -3, -7, -2, 9, 5], dtype)
    want = np.trunc(a / b) if op == "Div" else np.fmod(a, b) if attributes else np.mod(a, b)
    feeds = {"a": a, "b": b}
    check(one_node(op, feeds, **attributes), feeds, want=[want.astype(dtype)])
    check(one_node(op, feeds, constant=["b"], **attributes), feeds, want=[want.astype(dtype)])


def test_division_by_zero_does_not_end_the_process():
    low = np.iinfo("int32").min
    feeds = {"a": np.array([5, low, -5], "int32"), "b": np.array([0, -1, 0], "int32")}
    check(one_node("Div", feeds), feeds, want=[np.array([0, low, 0], "int32")])
    check(one_node("Mod", feeds), feeds, want=[np.array([0, 0, 0], "int32")])


@pytest.mark.parametrize("constant", [["b"], ["a", "b"]])
@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_powers_are_not_roots_of_infinity_and_zero(exponent, constant):
    feeds = {"a": np.array([-np.inf, -0.0, 4], "float32"), "b": np.array(exponent, "float32")}
    want = np.array([np.inf, 0, 2] if exponent > 0 else [0, np.inf, 0.5], "float32")
    check(one_node("Pow", feeds, constant=constant), feeds, want=[want])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_powers_of_integers_wrap(dtype):
    feeds = {"a": np.array([3, 7, 2, 0, 1, 5], dtype), "b": np.array([35, 25, 3, 0, 63, 1], "int64")}
    want = [
        np.array([pow(int(a), int(b), 2**64) for a, b in zip(*feeds.values(), strict=True)], "uint64").astype(
            dtype
        )
    ]
    check(one_node("Pow", feeds), feeds, want=want)


def test_negative_powers_of_integers_are_rounded_towards_zero():
    feeds = {"a": np.array([1, -1, -1, 2, -3], "int32"), "b": np.array([-3, -3, -2, -1, -2], "int32")}
    check(one_node("Pow", feeds), feeds, want=[np.array([1, -1, 1, 0, 0], "int32")])


def test_broadcast_of_symbolic_sizes():
    feeds = {"a": np.arange(6, dtype="int32").reshape(3, 2, 1), "b": np.array([[1, 2, -3]], "int32")}
    model = one_node("Mod", feeds, dims={"a": ["n", "m", 1], "b": ["k", 3]})
    check(model, feeds, want=[np.mod(*feeds.values())])


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_flattens_before_version_13(op, axis, opset):
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    if opset < 11 and axis < 0:
        pytest.skip("negative axes are from version 11 on")
    check(one_node(op, {"x": x}, opset=opset, axis=axis), {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("bounds", [(1, 5), (None, 5), (2, None), (None, None), (5, 1)])
@pytest.mark.parametrize("constant", [True, False])
def test_clip(dtype, bounds, constant):
    feeds = {"x": np.array([0, 1, 3, 7, 9], dtype)}
    operands = {name: None if b is None else np.array(b, dtype) for name, b in zip("lh", bounds, strict=True)}
    given = {name: array for name, array in operands.items() if array is not None}
    want = feeds["x"]
    want = want if operands["l"] is None else np.maximum(want, operands["l"])
    want = want if operands["h"] is None else np.minimum(want, operands["h"])
    model = one_node("Clip", feeds | operands, opset=13, constant=list(given) if constant else [])
    check(model, feeds | given, want=[want])


def test_clip_by_attributes():
    check(
        one_node("Clip", {"x": _FLOATS[:-1]}, opset=7, min=-1.0),
        {"x": _FLOATS[:-1]},
        want=[np.maximum(_FLOATS[:-1], -1)],
    )


def test_clip_ignores_bounds_that_are_nan():
    feeds = {
        "x": np.array([-5, 1, 9], "float32"),
        "l": np.array(np.nan, "float32"),
        "h": np.array(3, "float32"),
    }
    for constant in ([], ["l", "h"]):
        check(
            one_node("Clip", feeds, opset=13, constant=constant),
            feeds,
            want=[np.array([-5, 1, 3], "float32")],
        )


@pytest.mark.parametrize("slope", [(1,), (3, 1, 1), (3, 4, 1), (1, 1, 5)])
@pytest.mark.parametrize("constant", [True, False])
def test_prelu(slope, constant):
    rng = np.random.default_rng(1)
    feeds = {
        "x": rng.standard_normal((2, 3, 4, 5)).astype("float32"),
        "s": rng.uniform(0, 1, slope).astype("float32"),
    }
    check(one_node("PRelu", feeds, opset=9, constant=["s"] if constant else []), feeds)


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 3])
def test_several_operands(op, count):
    rng = np.random.default_rng(2)
    shapes = [(2, 1), (1, 3), (3,)][:count]
    feeds = {f"x{n}": rng.standard_normal(shape).astype("float32") for n, shape in enumerate(shapes)}
    check(one_node(op, feeds, opset=8), feeds)


def test_equal_and_where_of_booleans():
    feeds = {"a": np.array([True, True, False]), "b": np.array([True, False, False])}
    check(one_node("Equal", feeds, opset=13), feeds, want=[np.array([True, False, True])])
    feeds["c"] = np.array([False, True, True])
    check(one_node("Where", feeds, opset=16), feeds, want=[np.where(*feeds.values())])


def test_casts_between_all_types():
    types = ["bool", "uint8", "int64", "float16", "float32"]
    for given in types:
        x = np.array([0, 1, 2, 100], given)
        for made in types:
            to = getattr(TensorProto, "FLOAT" if made == "float32" else made.upper())
            check(one_node("Cast", {"x": x}, opset=13, to=to), {"x": x}, want=[x.astype(made)])


def test_float8_is_refused():
    x = np.zeros(3, "float32")
    with pytest.raises(ModelError, match="float8"):
        imported(one_node("Cast", {"x": x}, opset=19, to=TensorProto.FLOAT8E4M3FN))


@pytest.mark.parametrize(
    ("op", "feeds"),
    [("BiasGelu", "xb"), ("FastGelu", "xb"), ("FastGelu", "x"), ("QuickGelu", "x"), ("Gelu", "x")],
)
def test_activations_of_onnxruntime(op, feeds):
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.standard_normal((2, 5)).astype("float32"),
        "b": rng.standard_normal(5).astype("float32"),
    }
    given = {name: arrays[name] for name in feeds}
    check(one_node(op, given, domain="com.microsoft"), given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [0, 1])
def test_tensors_without_elements(size):
    feeds = {"a": np.zeros((size, 3), "float32"), "b": np.ones((1, 3), "float32")}
    assert run(one_node("Pow", feeds), feeds)[0].shape == (size, 3)


def test_images_are_scaled() -> None:
    x = np.random.default_rng(3).random((2, 3, 4, 5), "float32")
    want = x * np.float32(0.5) + np.float32([1, 2, 3]).reshape(3, 1, 1)
    check(one_node("ImageScaler", {"x": x}, opset=7, scale=0.5, bias=[1.0, 2.0, 3.0]), {"x": x}, want=[want])


def test_a_clip_with_several_bounds_is_refused() -> None:
    feeds = {"x": _FLOATS, "low": np.zeros(3, "float32")}
    with pytest.raises(ModelError, match="min has 3 elements"):
        run(one_node("Clip", feeds, opset=13, constant=["low"]), {"x": _FLOATS})
