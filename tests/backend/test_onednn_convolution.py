"""Convolutions lowered to oneDNN, with what goes behind them, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_function import assert_same_numbers, constant, function, nn, op
from tvm import relax

from unity_collage import runtime

if reason := runtime.why_unavailable("onednn"):
    pytest.skip(reason, allow_module_level=True)

FIRST, LAST = (2, 8, 9, 10), (2, 9, 10, 8)


def conv(x):
    return nn.conv2d(x, constant(4, 8, 3, 3), padding=(1, 1), data_layout="NHWC")


@pytest.mark.parametrize(
    ("data", "kernel", "options"),
    [
        (FIRST, (4, 8, 3, 3), {"padding": (1, 1)}),
        (LAST, (4, 8, 3, 3), {"padding": (1, 1), "data_layout": "NHWC"}),
        (LAST, (3, 3, 8, 4), {"data_layout": "NHWC", "kernel_layout": "HWIO", "dilation": (2, 1)}),
        (
            LAST,
            (4, 3, 2, 8),
            {
                "data_layout": "NHWC",
                "kernel_layout": "OHWI",
                "padding": (1, 0, 2, 1),
                "strides": (2, 1),
                "dilation": (1, 2),
            },
        ),
        (FIRST, (8, 4, 3, 3), {"groups": 2}),
        (LAST, (8, 4, 3, 3), {"groups": 2, "data_layout": "NHWC"}),
        (LAST, (8, 1, 3, 3), {"groups": 8, "data_layout": "NHWC"}),
        (LAST, (3, 3, 8, 1), {"groups": 8, "data_layout": "NHWC", "kernel_layout": "HWOI"}),
        (LAST, (16, 1, 3, 3), {"groups": 8, "data_layout": "NHWC"}),
    ],
)
def test_convolutions_of_images(data, kernel, options):
    assert_same_numbers("onednn", function(lambda x: nn.conv2d(x, constant(*kernel), **options), data))


@pytest.mark.parametrize(
    ("make", "data", "kernel", "options"),
    [
        (nn.conv1d, (2, 9, 8), (4, 8, 3), {"padding": 1, "data_layout": "NWC"}),
        (nn.conv1d, (2, 8, 9), (4, 8, 3), {"strides": 2}),
        (nn.conv3d, (2, 5, 6, 7, 8), (4, 8, 3, 3, 2), {"padding": 1, "data_layout": "NDHWC"}),
        (nn.conv3d, (2, 8, 5, 6, 7), (4, 8, 3, 3, 2), {"padding": 1}),
        (
            nn.conv2d_transpose,
            FIRST,
            (8, 4, 3, 3),
            {"padding": (1, 1), "strides": (2, 2), "output_padding": (1, 1)},
        ),
        (
            nn.conv2d_transpose,
            LAST,
            (8, 4, 3, 3),
            {"padding": (1, 1, 0, 0), "strides": (2, 2), "output_padding": (1, 1), "data_layout": "NHWC"},
        ),
        (nn.conv2d_transpose, FIRST, (8, 4, 3, 3), {"groups": 2, "strides": (2, 2)}),
        (nn.conv2d_transpose, FIRST, (8, 4, 3, 3), {"dilation": (2, 2)}),
        (nn.conv1d_transpose, (2, 8, 9), (8, 4, 3), {"strides": 2}),
        (nn.conv3d_transpose, (2, 8, 4, 5, 3), (8, 4, 3, 3, 3), {"strides": 2}),
    ],
)
def test_other_convolutions(make, data, kernel, options):
    assert_same_numbers("onednn", function(lambda x: make(x, constant(*kernel), **options), data))


def test_bias_residual_and_relu_are_one_step_and_no_reference_kernel():
    func = function(
        lambda x, r: nn.relu(op.add(r, op.add(conv(x), constant(1, 1, 1, 4)))), LAST, (2, 9, 10, 4)
    )
    chosen = assert_same_numbers("onednn", func)
    assert chosen.count("step") == 1
    assert "ref" not in chosen


def first(x):
    return op.permute_dims(x, (0, 3, 1, 2))


def last(x):
    return op.permute_dims(x, (0, 2, 3, 1))


def transposed(x):
    conv = nn.conv2d_transpose(x, constant(8, 4, 4, 4), strides=(2, 2), padding=(1, 1))
    return nn.relu(op.add(conv, constant(1, 4, 1, 1)))


def test_permutations_on_both_sides_are_read_and_written_through():
    chosen = assert_same_numbers("onednn", function(lambda x: last(transposed(first(x))), LAST))
    assert chosen.count("step") == 1
    assert "ref" not in chosen


@pytest.mark.parametrize(
    ("body", "data"), [(lambda x: transposed(first(x)), LAST), (lambda x: last(transposed(x)), FIRST)]
)
def test_a_permutation_on_one_side_is_a_copy_and_no_reference_kernel(body, data):
    chosen = assert_same_numbers("onednn", function(body, data))
    assert chosen.count("step") == 2
    assert "ref" not in chosen


def _long_sums(x, layout):
    """relu(conv2d_transpose(x) + bias), which oneDNN 3.2 gets wrong with channels last."""
    bias = constant(1, 1, 1, 64) if layout == "NHWC" else constant(1, 64, 1, 1)
    kernel = constant(512, 64, 4, 4)
    conv = nn.conv2d_transpose(x, kernel, strides=(2, 2), padding=(1, 1), data_layout=layout)
    return nn.relu(op.add(conv, bias))


@pytest.mark.parametrize(
    "body",
    [lambda x: _long_sums(x, "NHWC"), lambda x: last(_long_sums(first(x), "NCHW"))],
    ids=["channels last", "permuted"],
)
def test_nothing_is_computed_behind_parts_of_long_sums(body):
    chosen = assert_same_numbers("onednn", function(body, (1, 8, 8, 512)))
    assert "ref" not in chosen


def test_a_bias_that_is_reshaped_on_the_way():
    func = function(
        lambda x: nn.gelu(op.add(nn.conv2d(x, constant(4, 8, 3, 3)), op.reshape(constant(4), (1, 4, 1, 1)))),
        FIRST,
    )
    assert assert_same_numbers("onednn", func).count("step") == 1


@pytest.mark.parametrize(
    "body",
    [
        nn.silu,
        nn.selu,
        nn.softplus,
        nn.gelu_tanh,
        op.tanh,
        op.sigmoid,
        op.square,
        op.round,
        lambda x: op.clip(x, 0, 6),
        lambda x: nn.leakyrelu(x, 0.1),
        lambda x: op.minimum(relax.const(0.3), x),
        lambda x: op.subtract(relax.const(1.0), x),
        lambda x: op.divide(x, relax.const(3.0)),
        lambda x: op.rsqrt(op.add(op.square(x), relax.const(1.0))),
    ],
)
def test_functions_behind_a_convolution_are_one_step(body):
    chosen = assert_same_numbers("onednn", function(lambda x: body(conv(x)), LAST))
    assert chosen.count("step") == 1


@pytest.mark.parametrize("make", [op.subtract, op.multiply, op.maximum])
def test_a_tensor_on_either_side_of_a_convolution(make):
    shapes = (LAST, (2, 9, 10, 4))
    for body in (lambda x, r: make(r, conv(x)), lambda x, r: make(conv(x), r)):
        assert assert_same_numbers("onednn", function(body, *shapes)).count("step") == 1


def test_a_tensor_divided_by_a_convolution():
    func = function(
        lambda x, r: op.divide(
            r, nn.conv2d(x, relax.const(np.full((4, 8, 1, 1), 0.5, "float32")), data_layout="NHWC")
        ),
        LAST,
        (2, 9, 10, 4),
    )
    assert_same_numbers("onednn", func, positive=True)


def test_a_layout_that_the_convolution_does_not_know_is_copied():
    for body, shape in (
        (lambda x: op.permute_dims(conv(x), (0, 3, 1, 2)), LAST),
        (lambda x: conv(op.permute_dims(x, (0, 2, 3, 1))), FIRST),
    ):
        chosen = assert_same_numbers("onednn", function(body, shape))
        assert "(reorder)" in chosen
        assert "ref" not in chosen
