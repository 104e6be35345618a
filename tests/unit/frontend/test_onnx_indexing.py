"""Operators that read and write at indexes, sort and select: ONNX Runtime and numpy say what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_case
import pytest

from unity_collage.errors import ModelError

rng = np.random.default_rng(7)
X = rng.standard_normal((3, 4, 5)).astype("float32")


def _check(op: str, inputs: dict[str, Any], outputs: int = 1, want: Any = None, **more: Any) -> None:
    model = onnx_case.one_node(op, inputs, outputs, **more)
    onnx_case.check(model, {name: array for name, array in inputs.items() if array is not None}, want=want)


@pytest.mark.parametrize("constant", [["i"], []])
@pytest.mark.parametrize("dims", [None, {"x": ["a", "b", "c"]}])
def test_gathers_count_negative_indexes_from_the_end(constant: list[str], dims: Any) -> None:
    _check("Gather", {"x": X, "i": np.int64([[0, -1], [-4, 3]])}, axis=1, constant=constant, dims=dims)
    _check("Gather", {"x": X, "i": np.array(-2, "int32")}, axis=-1, constant=constant, dims=dims)
    _check("GatherElements", {"x": X, "i": np.int64([[[-1]], [[2]]])}, axis=-1, constant=constant, dims=dims)
    _check("GatherND", {"x": X, "i": np.int64([[[0, -1]], [[-3, 2]]])}, constant=constant, dims=dims)
    index = np.int64([[[-1], [0]], [[1], [-4]], [[3], [2]]])
    _check("GatherND", {"x": X, "i": index}, batch_dims=1, constant=constant, dims=dims)


@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_known_indexes_outside_are_refused(op: str) -> None:
    inputs = {"x": X, "i": np.int64([[[4]]])}
    model = onnx_case.one_node(op, inputs, axis=1, constant=["i"])
    with pytest.raises(ModelError, match="index 4 is outside of an axis of size 4"):
        onnx_case.run(model, {"x": X})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_scatters_reduce(reduction: str, dtype: str) -> None:
    data = (X * 5).astype(dtype)
    index = np.int64([[[0, -1, 2, 1, 0]]]) if reduction == "none" else np.int64([[[0, -1, 0, -4, 0]]])
    new = np.ones((1, 1, 5)).astype(dtype) * 3
    _check("ScatterElements", {"x": data, "i": index, "u": new}, opset=18, axis=1, reduction=reduction)
    rows = (
        np.int64([[0, -1], [2, 1], [1, 0]]) if reduction == "none" else np.int64([[0, -1], [0, 3], [-3, 0]])
    )
    new = np.arange(15).reshape(3, 5).astype(dtype)
    _check(
        "ScatterND",
        {"x": data, "i": rows, "u": new},
        opset=18,
        reduction=reduction,
        dims={"x": ["a", 4, "c"]},
    )


def test_scatters_keep_nan() -> None:
    x = np.float32([np.nan, 1, 2])
    inputs = {"x": x, "i": np.int64([0, 1, 2]), "u": np.float32([5, np.nan, 3])}
    want = [np.float32([np.nan, np.nan, 3])]
    _check("ScatterElements", inputs, want=want, opset=18, reduction="max")


def test_scatter_of_version_9() -> None:
    inputs = {"x": X, "i": np.int64([[[1, 0], [2, 2]]]), "u": np.float32([[[7, 8], [9, 10]]])}
    _check("Scatter", inputs, opset=9, axis=0)


@pytest.mark.parametrize(
    ("opset", "attributes"), [(7, {"k": 2}), (10, {}), (11, {"largest": 0}), (11, {"sorted": 0})]
)
@pytest.mark.parametrize("constant", [["k"], []])
@pytest.mark.parametrize("axis", [-1, 1])
def test_top_k(opset: int, attributes: dict[str, int], constant: list[str], axis: int) -> None:
    x = np.round(X * 2) if attributes.get("sorted", 1) else X  # with ties
    inputs = {"x": x} if opset < 10 else {"x": x, "k": np.int64([3])}
    if attributes.get("sorted", 1):
        want = None
    else:
        order = np.argsort(-x, axis=axis).take(range(3), axis)
        want = [np.take_along_axis(x, order, axis), order]
    constant = constant if opset >= 10 else []
    _check("TopK", inputs, 2, want, opset=opset, axis=axis, constant=constant, **attributes)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float16", "float64"])
def test_top_k_of_other_types_and_symbolic_sizes(dtype: str) -> None:
    x = (X * 20 + 50).astype(dtype)
    order = np.argsort(-x.astype("float64"), axis=1, kind="stable")[:, :2]
    want = [np.take_along_axis(x, order, 1), order]
    inputs = {"x": x, "k": np.int64([2])}
    _check("TopK", inputs, 2, want, axis=1, constant=["k"], dims={"x": ["a", "b", "c"]})


def test_top_k_puts_nan_first() -> None:
    x = np.float32([1, np.nan, 3, np.inf, -np.inf, np.nan])
    want = [np.float32([np.nan, np.nan, np.inf, 3]), np.int64([1, 5, 3, 2])]
    _check("TopK", {"x": x, "k": np.int64([4])}, 2, want)


def test_top_k_sorts_long_rows() -> None:
    x = rng.integers(0, 300, (2, 1000)).astype("int32")
    order = np.argsort(x, axis=1, kind="stable")
    want = [np.take_along_axis(x, order, 1), order]
    _check("TopK", {"x": x, "k": np.int64([1000])}, 2, want, largest=0)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(is_sorted: int, axis: int | None) -> None:
    x = rng.integers(0, 2, (4, 3, 2)).astype("float32")
    attributes = {} if axis is None else {"axis": axis}
    _check("Unique", {"x": x}, 4, opset=11, sorted=is_sorted, dims={"x": ["a", 3, "c"]}, **attributes)


def test_unique_of_a_constant_is_not_what_the_reference_makes_of_it() -> None:
    inputs = {"x": np.int64([[3, 1], [3, 2]])}
    want = [np.int64([3, 1, 2])]
    model = onnx_case.one_node("Unique", inputs, opset=11, sorted=0, constant=["x"])
    onnx_case.check(model, inputs, want=want)


@pytest.mark.parametrize("axis", [None, 1, -1])
def test_compress(axis: int | None) -> None:
    attributes = {} if axis is None else {"axis": axis}
    for condition in ([True, False, True], [False], [False, True, True, True]):
        _check("Compress", {"x": X, "c": np.array(condition)}, dims={"x": ["a", "b", "c"]}, **attributes)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_non_zero(dtype: str) -> None:
    x = rng.integers(-1, 2, (3, 4, 2)).astype(dtype)
    _check("NonZero", {"x": x}, want=[np.array(np.nonzero(x))], dims={"x": ["a", "b", 2]})
    _check("NonZero", {"x": np.zeros((2, 2), dtype)}, want=[np.zeros((2, 0), "int64")])
    if dtype == "float32":
        _check("NonZero", {"x": np.array([0, np.nan, -0.0, np.inf], dtype)}, want=[np.array([[1, 3]])])


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-2, 0, 1])
@pytest.mark.parametrize("constant", [["k"], []])
def test_trilu(upper: int, k: int, constant: list[str]) -> None:
    inputs = {"x": np.full((2, 3, 4), -np.inf, "float32"), "k": np.array(k)}
    _check("Trilu", inputs, opset=14, upper=upper, constant=constant, dims={"x": [2, "n", "m"]})


def test_reverse_sequence() -> None:
    lengths = np.int64([4, 1, 0])
    want = X.copy()
    want[0] = X[0, ::-1]
    _check("ReverseSequence", {"x": X, "l": lengths}, want=[want], time_axis=1, batch_axis=0)


def test_eye_like_and_constant_of_shape() -> None:
    _check("EyeLike", {"x": X[0]}, opset=9, k=-1, dtype=7, dims={"x": ["a", "b"]})
    value = onnx_case.numpy_helper.from_array(np.int32([7]))
    for shape in ([2, 3], [0, 4], []):
        _check("ConstantOfShape", {"s": np.int64(shape)}, opset=9, value=value)


def test_max_unpool() -> None:
    x = np.float32([[[[1, 2], [3, 4]]]])
    index = np.int64([[[[5, 7], [13, 15]]]])
    _check("MaxUnpool", {"x": x, "i": index}, opset=11, kernel_shape=[2, 2], strides=[2, 2])
