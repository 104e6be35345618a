"""Convolutions and pools of ONNX: the numbers of ONNX Runtime for what the standard's cases do not try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_case import by_reference, check, one_node, run

from unity_collage.errors import ModelError
from unity_collage.frontend.onnx.importer import imported


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


CONVOLUTIONS: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {
    "one axis, dilated, padded in front": ([1, 4, 20], [5, 4, 3], {"dilations": [4], "pads": [8, 0]}),
    "three axes": ([1, 4, 5, 6, 7], [5, 4, 3, 3, 3], {"pads": [1] * 6, "strides": [2, 1, 2]}),
    "one-sided padding": ([1, 4, 5, 6], [6, 4, 3, 3], {"pads": [0, 1, 2, 0]}),
    "SAME_LOWER with steps": ([1, 4, 5, 6], [6, 4, 3, 2], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "SAME_UPPER with steps": ([1, 4, 5, 6], [6, 4, 2, 3], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "SAME_UPPER, steps wider than the window": (
        [1, 4, 7, 6],
        [6, 4, 1, 1],
        {"auto_pad": "SAME_UPPER", "strides": [3, 2]},
    ),
    "VALID": ([1, 4, 5, 6], [6, 4, 3, 3], {"auto_pad": "VALID"}),
    "groups": ([2, 6, 5, 6], [9, 2, 3, 3], {"group": 3, "pads": [1] * 4}),
    "depthwise, two results a channel": ([1, 4, 5, 6], [8, 1, 3, 3], {"group": 4}),
    "window larger than the image": ([1, 4, 5, 6], [2, 4, 7, 7], {"pads": [3] * 4}),
}


@pytest.mark.parametrize(("image", "weights", "options"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_conv(image: list[int], weights: list[int], options: dict[str, Any]):
    feeds = {"x": drawn(*image), "w": drawn(*weights, seed=1), "b": drawn(weights[0], seed=2)}
    check(one_node("Conv", feeds, constant=["w", "b"], **options), feeds, atol=1e-4)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_weights_and_bias_may_be_inputs(op: str):
    feeds = {"x": drawn(1, 4, 5, 6), "w": drawn(4, 4, 3, 3, seed=1), "b": drawn(4, seed=2)}
    check(one_node(op, feeds, dilations=[2, 1], pads=[1, 2, 0, 1]), feeds, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"pads": [1, 1, 0, 1]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "SAME_UPPER"}]
)
@pytest.mark.parametrize("image", [[2, 4, 7, 6], [1, 4, 4, 9]])
def test_conv_of_an_image_of_any_size(options: dict[str, Any], image: list[int]):
    feeds = {"x": drawn(*image), "w": drawn(3, 4, 3, 3, seed=1)}
    check(
        one_node("Conv", feeds, dims={"x": ["n", 4, "h", "w"]}, strides=[2, 2], **options), feeds, atol=1e-4
    )


def test_conv_in_float16_adds_up_in_float32():
    feeds = {"x": np.full([1, 4096, 1, 1], 1, "float16"), "w": np.full([1, 4096, 1, 1], 1, "float16")}
    assert run(one_node("Conv", feeds), feeds)[0].item() == 4096


def test_conv_of_no_images():
    feeds = {"x": drawn(0, 4, 5, 6), "w": drawn(3, 4, 3, 3)}
    assert run(one_node("Conv", feeds), feeds)[0].shape == (0, 3, 3, 4)


TRANSPOSED: dict[str, tuple[list[int], list[int], dict[str, Any]]] = {
    "output_padding": (
        [1, 4, 5, 6],
        [4, 3, 3, 3],
        {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
    ),
    "more output_padding than padding": (
        [1, 4, 5, 6],
        [4, 3, 3, 3],
        {"strides": [3, 3], "output_padding": [2, 1]},
    ),
    "groups": ([1, 4, 5, 6], [4, 2, 3, 3], {"strides": [2, 2], "group": 2}),
    "output_shape": ([1, 4, 5, 6], [4, 3, 3, 3], {"strides": [2, 2], "output_shape": [10, 12]}),
    "output_shape, SAME_UPPER": (
        [1, 4, 5, 6],
        [4, 3, 3, 3],
        {"strides": [2, 2], "output_shape": [10, 12], "auto_pad": "SAME_UPPER"},
    ),
    "larger output_shape": ([1, 4, 5, 6], [4, 3, 3, 3], {"strides": [2, 2], "output_shape": [12, 14]}),
    "SAME_LOWER": ([1, 4, 5, 6], [4, 3, 3, 3], {"strides": [2, 3], "auto_pad": "SAME_LOWER"}),
    "dilated": ([1, 4, 5, 6], [4, 3, 3, 2], {"dilations": [2, 3], "pads": [1, 0, 2, 1]}),
    "padding wider than the window": ([1, 4, 5, 6], [4, 3, 2, 2], {"strides": [2, 2], "pads": [3, 2, 2, 3]}),
    "one axis": ([1, 4, 20], [4, 3, 16], {"strides": [8], "pads": [4, 4]}),
    "one axis, groups": ([1, 4, 9], [4, 3, 5], {"strides": [2], "group": 2}),
    "three axes, groups": ([1, 4, 3, 4, 5], [4, 1, 2, 3, 2], {"strides": [2, 1, 2], "group": 2}),
}


@pytest.mark.parametrize(("image", "weights", "options"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_conv_transpose(image: list[int], weights: list[int], options: dict[str, Any]):
    channels = weights[1] * options.get("group", 1)
    feeds = {"x": drawn(*image), "w": drawn(*weights, seed=1), "b": drawn(channels, seed=2)}
    check(one_node("ConvTranspose", feeds, constant=["w", "b"], **options), feeds, atol=1e-4)


POOLS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "ceil, padding counts": (
        "AveragePool",
        [1, 3, 17, 17],
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1, "pads": [1] * 4},
    ),
    "ceil, padding does not count": (
        "AveragePool",
        [1, 3, 17, 17],
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1] * 4},
    ),
    "ceil, a window that starts behind the image": (
        "AveragePool",
        [1, 3, 17, 17],
        {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1, "count_include_pad": 1, "pads": [1] * 4},
    ),
    "one-sided padding": ("AveragePool", [1, 3, 7, 8], {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0]}),
    "SAME_UPPER": (
        "AveragePool",
        [1, 3, 7, 8],
        {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    "dilated": (
        "AveragePool",
        [1, 3, 9, 8],
        {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 0, 1, 1], "count_include_pad": 0},
    ),
    "dilated, padding counts, ceil": (
        "AveragePool",
        [1, 3, 9, 8],
        {
            "kernel_shape": [2, 2],
            "dilations": [2, 3],
            "strides": [2, 2],
            "pads": [1, 0, 1, 1],
            "count_include_pad": 1,
            "ceil_mode": 1,
        },
    ),
    "one axis, ceil": ("AveragePool", [1, 3, 10], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    "largest, ceil": ("MaxPool", [1, 3, 17, 16], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "largest, SAME_LOWER": (
        "MaxPool",
        [1, 3, 7, 8],
        {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
    "largest, dilated": (
        "MaxPool",
        [1, 3, 17, 16],
        {"kernel_shape": [2, 2], "dilations": [3, 2], "pads": [1] * 4},
    ),
    "largest, three axes": ("MaxPool", [1, 2, 5, 6, 7], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    "norm of order 3": (
        "LpPool",
        [1, 3, 9, 8],
        {"kernel_shape": [2, 3], "strides": [2, 2], "p": 3, "pads": [1] * 4},
    ),
    "norm of order 1": ("LpPool", [1, 3, 9, 8], {"kernel_shape": [2, 3], "p": 1}),
}


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize(("op", "image", "options"), POOLS.values(), ids=POOLS)
def test_pool(op: str, image: list[int], options: dict[str, Any], free: bool):
    feeds = {"x": drawn(*image)}
    dims = {"x": [image[0], image[1], *"abc"[: len(image) - 2]]} if free else None
    check(one_node(op, feeds, opset=22 if op != "LpPool" else 18, dims=dims, **options), feeds)


@pytest.mark.parametrize(
    ("image", "options"),
    [
        ([2, 3, 10], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
        ([2, 3, 7, 8], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 0]}),
        ([2, 3, 7, 8], {"kernel_shape": [3, 2], "storage_order": 1, "auto_pad": "SAME_UPPER"}),
        ([2, 2, 5, 6, 7], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "dilations": [1, 2, 1]}),
    ],
    ids=["one axis", "padded", "column-major", "three axes"],
)
def test_max_pool_with_indices(image: list[int], options: dict[str, Any]):
    feeds = {"x": np.round(drawn(*image) * 2)}  # with ties
    check(one_node("MaxPool", feeds, 2, opset=12, **options), feeds)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool_of_integers(dtype: str):
    x = np.random.default_rng(0).integers(0, 100, [1, 2, 5, 5]).astype(dtype)
    feeds = {"x": x if dtype == "uint8" else -x - 1}
    check(one_node("MaxPool", feeds, opset=12, kernel_shape=[3, 3], pads=[1] * 4), feeds)


def test_results_without_a_name_are_not_computed():
    """Tools that drop results leave empty names at the end."""
    feeds = {"x": drawn(1, 2, 5, 5)}
    check(one_node("MaxPool", feeds, ["y", ""], opset=12, kernel_shape=[2, 2]), feeds)
    norm = feeds | {name: np.abs(drawn(2)) for name in ("scale", "bias", "mean", "var")}
    right = run(one_node("BatchNormalization", norm, opset=9), norm)
    # ONNX Runtime crashes.
    check(one_node("BatchNormalization", norm, ["y", "", "", "", ""], opset=9), norm, want=right)


def test_max_pool_with_indices_keeps_nan_and_infinity():
    x = np.array([[[np.nan, 1, 2, -np.inf, -np.inf, -np.inf]]], "float32")
    values, indices = run(one_node("MaxPool", {"x": x}, 2, opset=12, kernel_shape=[3]), {"x": x})
    np.testing.assert_array_equal(values, [[[np.nan, 2, 2, -np.inf]]])
    np.testing.assert_array_equal(indices, [[[0, 2, 2, 3]]])


def test_average_pool_in_float16_adds_up_in_float32():
    feeds = {"x": np.full([1, 1, 64, 64], 30000, "float16")}
    for model in (
        one_node("AveragePool", feeds, kernel_shape=[64, 64]),
        one_node("GlobalAveragePool", feeds),
    ):
        assert run(model, feeds)[0].item() == 30000


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pools(op: str):
    feeds = {"x": drawn(2, 3, 4, 5, 2)}
    check(one_node(op, feeds, dims={"x": ["n", 3, "h", "w", 2]}), feeds)


@pytest.mark.parametrize(
    ("op", "operands", "options", "reason"),
    [
        (
            "Conv",
            {"x": drawn(1, 4, 5, 5), "w": drawn(2, 4, 3, 3)},
            {"kernel_shape": [2, 2]},
            "kernel_shape is",
        ),
        (
            "Conv",
            {"x": drawn(1, 4, 5, 5), "w": drawn(2, 4, 3)},
            {},
            "its image has rank 4, and its weights rank 3",
        ),
        ("Conv", {"x": drawn(1, 1, *[3] * 4), "w": drawn(1, 1, *[3] * 4)}, {}, "an image of 4 spatial axes"),
        (
            "MaxPool",
            {"x": drawn(1, 4, 5, 5)},
            {"kernel_shape": [2]},
            "its window has 1 axes, and the image 2",
        ),
        ("MaxPool", {"x": drawn(1, 4, 5)}, {"kernel_shape": [2], "strides": [0]}, "must be positive"),
        (
            "MaxPool",
            {"x": drawn(1, 4, 1, 16)},
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            "its window of 2x2 does not fit into its image of 1x16",
        ),
    ],
)
def test_what_is_not_a_window_is_refused(op: str, operands: Any, options: dict[str, Any], reason: str):
    with pytest.raises(ModelError, match=f"^{op} 'node': .*{reason}"):
        imported(one_node(op, operands, **options))


def test_four_axes_are_pooled_too():
    feeds = {"x": drawn(1, 2, 3, 4, 3, 4)}
    model = one_node("MaxPool", feeds, opset=12, kernel_shape=[2, 2, 2, 2])
    check(model, feeds, want=by_reference(model, feeds))
