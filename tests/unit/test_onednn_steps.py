"""Relax operators as oneDNN primitives: views, attributes and reasons, without the library."""

from __future__ import annotations

from typing import Any

import pytest
from relax_calls import call, constant, nn, op
from tvm import relax

from unity_collage.backends import onednn


def step(body, *shapes, dtype="float32") -> Any:
    return onednn.step(call(body, *shapes, dtype=dtype))


def seen(made, name):
    view = made.arg(name)
    return view.dims, view.strides


def test_a_channels_last_convolution_is_strides():
    made = step(
        lambda x: nn.conv2d(
            x,
            constant(3, 3, 8, 4),
            strides=(2, 1),
            padding=(1, 0, 2, 1),
            dilation=(1, 2),
            data_layout="NHWC",
            kernel_layout="HWIO",
        ),
        (2, 9, 10, 8),
    )
    assert made.primitive == "convolution"
    assert seen(made, "src") == ((2, 8, 9, 10), (720, 1, 80, 8))
    assert seen(made, "weights") == ((4, 8, 3, 3), (1, 4, 96, 32))
    assert seen(made, "dst") == ((2, 4, 5, 7), (140, 1, 28, 4))
    assert dict(made.attrs) == {
        "strides": (2, 1),
        "dilates": (0, 1),
        "padding_l": (1, 0),
        "padding_r": (2, 1),
    }


@pytest.mark.parametrize(
    ("kernel", "layout", "groups", "dims", "strides"),
    [
        ((8, 4, 3, 3), "OIHW", 2, (2, 4, 4, 3, 3), (144, 36, 9, 3, 1)),
        ((8, 1, 3, 3), "OIHW", 8, (8, 1, 1, 3, 3), (9, 9, 9, 3, 1)),
        ((3, 3, 8, 1), "HWOI", 8, (8, 1, 1, 3, 3), (1, 72, 72, 24, 8)),
    ],
)
def test_groups_divide_the_output_channels_of_a_convolution(kernel, layout, groups, dims, strides):
    made = step(
        lambda x: nn.conv2d(x, constant(*kernel), groups=groups, data_layout="NHWC", kernel_layout=layout),
        (1, 9, 9, 8),
    )
    assert seen(made, "weights") == (dims, strides)


def test_groups_divide_the_input_channels_of_a_transposed_convolution():
    made = step(
        lambda x: nn.conv2d_transpose(x, constant(8, 4, 3, 3), groups=2, strides=(2, 2)), (1, 8, 5, 5)
    )
    assert made.primitive == "deconvolution"
    assert seen(made, "weights") == ((2, 4, 4, 3, 3), (144, 9, 36, 3, 1))


@pytest.mark.parametrize(
    ("left", "right", "src", "weights", "dst"),
    [
        ((5, 7), (7, 3), (5, 7), (7, 3), (5, 3)),
        ((2, 5, 7), (7, 3), (10, 7), (7, 3), (10, 3)),
        ((7,), (7, 3), (1, 7), (7, 3), (1, 3)),
        ((5, 7), (7,), (5, 7), (7, 1), (5, 1)),
        ((2, 1, 5, 7), (3, 7, 4), (2, 1, 5, 7), (1, 3, 7, 4), (2, 3, 5, 4)),
        ((7,), (2, 7, 3), (1, 1, 7), (2, 7, 3), (2, 1, 3)),
    ],
)
def test_every_product_is_one_of_matrices(left, right, src, weights, dst):
    made = step(op.matmul, left, right)
    assert [made.arg(name).dims for name in ("src", "weights", "dst")] == [src, weights, dst]


def test_ceil_mode_pads_behind_until_the_last_window_ends():
    made = step(
        lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (0, 0), ceil_mode=True, layout="NHWC"), (1, 8, 9, 4)
    )
    assert (made.attr("padding_l"), made.attr("padding_r")) == ((0, 0), (1, 0))
    assert made.attr("algorithm") == "max"


def test_a_global_average_is_a_pooling_over_everything():
    made = step(lambda x: nn.adaptive_avg_pool2d(x, (1, 1), layout="NHWC"), (1, 7, 7, 32))
    assert (made.attr("kernel"), made.attr("algorithm")) == ((7, 7), "avg_include_padding")


def test_a_reduction_of_one_element_is_declined():
    assert step(lambda x: op.mean(x, 0), (1, 4)) == "every reduced axis has one element"


def test_a_mean_of_pixels_is_a_pooling_and_a_mean_of_rows_a_reduction():
    pixels = step(lambda x: op.mean(x, axis=(1, 2)), (2, 7, 7, 32))
    assert pixels.primitive == "pooling"
    assert seen(pixels, "src") == ((2, 32, 49), (1568, 1, 32))
    rows = step(lambda x: op.mean(x, axis=-1, keepdims=True), (2, 7, 32))
    assert rows.primitive == "reduction"
    assert seen(rows, "src") == ((14, 32), (32, 1))


def test_a_sum_of_pixels_is_an_average_times_their_number():
    made = step(lambda x: op.sum(x, axis=(1, 2)), (2, 7, 7, 32))
    assert [(post.algorithm, post.alpha) for post in made.post_ops] == [("linear", 49.0)]


def test_a_group_norm_is_two_primitives():
    made = step(
        lambda x: nn.group_norm(
            x, constant(6), constant(6), num_groups=3, channel_axis=1, axes=[2, 3], epsilon=1e-3
        ),
        (2, 6, 4, 5),
    )
    (normalize,) = made.before
    assert normalize.primitive == "layer_normalization"
    assert seen(normalize, "src") == ((6, 40), (40, 1))
    assert made.arg("src0").buffer is normalize.result.buffer
    assert (made.primitive, made.attr("algorithm"), made.post_ops[0].algorithm) == ("binary", "mul", "add")


@pytest.mark.parametrize(
    ("body", "algorithm", "alpha", "beta"),
    [
        (nn.gelu, "gelu_erf", 0.0, 0.0),
        (nn.silu, "swish", 1.0, 0.0),
        (lambda x: op.clip(x, 0, 6), "clip_v2", 0.0, 6.0),
        (lambda x: nn.leakyrelu(x, 0.25), "relu", 0.25, 0.0),
        (lambda x: op.subtract(relax.const(2.0), x), "linear", -1.0, 2.0),
        (lambda x: op.divide(x, relax.const(4.0)), "linear", 0.25, 0.0),
        (lambda x: op.divide(relax.const(4.0), x), "pow", 4.0, -1.0),
        (lambda x: op.maximum(x, relax.const(0.0)), "relu", 0.0, 0.0),
        (op.rsqrt, "pow", 1.0, -1.0),
    ],
)
def test_functions_of_one_tensor_are_eltwise(body, algorithm, alpha, beta):
    made = step(body, (3, 4))
    assert (made.primitive, made.attr("algorithm")) == ("eltwise", algorithm)
    assert (made.attr("alpha"), made.attr("beta")) == (alpha, beta)
    assert seen(made, "src") == ((12,), (1,))


def test_a_reciprocal_root_is_a_root_and_a_quotient():
    """One power of oneDNN is 0 for -infinity, and calls a function for each element."""
    (root,) = step(op.rsqrt, (3, 4)).before
    assert (root.primitive, root.attr("algorithm")) == ("eltwise", "sqrt")


@pytest.mark.parametrize(
    ("left", "right", "src0", "src1"),
    [
        ((2, 3, 4), (2, 3, 4), (1, 24), (1, 24)),
        ((2, 3, 4), (4,), (6, 4), (1, 4)),
        ((2, 3, 4), (3, 1), (2, 3, 4), (1, 3, 1)),
        ((4,), (2, 3, 4), (6, 4), (1, 4)),
    ],
)
def test_the_larger_operand_comes_first_and_dims_are_few(left, right, src0, src1):
    made = step(op.add, left, right)
    assert (made.arg("src0").dims, made.arg("src1").dims) == (src0, src1)


def test_operands_that_trade_places_are_undone():
    made = step(op.subtract, (4,), (3, 4))
    assert made.attr("algorithm") == "sub"
    assert [(post.algorithm, post.alpha) for post in made.post_ops] == [("linear", -1.0)]
    assert step(op.less, (4,), (3, 4)).attr("algorithm") == "gt"


def test_a_comparison_makes_bytes():
    assert step(op.less, (3, 4), (3, 4)).result.dtype == "uint8"


def test_a_permutation_is_a_reorder_in_few_dims():
    made = step(lambda x: op.permute_dims(x, (0, 3, 1, 2)), (2, 5, 6, 8))
    assert made.primitive == "reorder"
    assert seen(made, "src") == ((2, 8, 30), (240, 1, 8))
    assert seen(made, "dst") == ((2, 8, 30), (240, 30, 1))


@pytest.mark.parametrize(
    ("mode", "rounding", "size", "taken"),
    [
        ("half_pixel", "round", (8, 10), True),
        ("asymmetric", "floor", (8, 10), True),
        ("asymmetric", "floor", (7, 3), False),
        ("half_pixel", "round", (2, 5), False),
        ("align_corners", "round", (7, 9), False),
    ],
)
def test_resizes_that_read_the_same_pixels_are_resampling(mode, rounding, size, taken):
    made = step(
        lambda x: op.image.resize2d(
            x,
            size,
            method="nearest_neighbor",
            coordinate_transformation_mode=mode,
            rounding_method=rounding,
        ),
        (1, 3, 4, 5),
    )
    assert isinstance(made, str) != taken
    assert taken or "reads other pixels" in made


@pytest.mark.parametrize(
    ("body", "shape", "reason"),
    [
        (op.sin, (3,), "oneDNN has no primitive for relax.sin"),
        (lambda x: nn.softmax(x, axis=0), (3, 4), "not the innermost"),
        (lambda x: op.sum(x, axis=(0, 2)), (3, 4, 5), "not neighbours"),
        (lambda x: op.min(x, axis=0), (3, 4), "not innermost"),
        (lambda x: nn.adaptive_avg_pool2d(x, (4, 4)), (1, 3, 7, 7), "differ in size"),
        (
            lambda x: nn.avg_pool2d(x, (2, 2), (3, 3), ceil_mode=True, count_include_pad=True),
            (1, 3, 10, 10),
            "beyond the padding",
        ),
        (lambda x: op.clip(x, 0, float("inf")), (3,), None),
        (lambda x: op.clip(x, 1, float("inf")), (3,), "not a finite constant"),
        (lambda x: op.divide(x, relax.const(0.0)), (3,), None),
        (lambda x: op.power(relax.const(2.0), x), (3,), "the exponent is not constant"),
        (lambda x: op.power(x, relax.const(0.5)), (3,), "another number than the power"),
        (
            lambda x: nn.conv2d(x, constant(4, 8, 3, 3), data_layout="NHWC", out_layout="NCHW"),
            (1, 5, 5, 8),
            "not dense in one layout",
        ),
        (
            lambda x: nn.layer_norm(x, constant(3), constant(3), axes=0),
            (3, 4),
            "not the last ones",
        ),
        (
            lambda x: nn.batch_norm(x, *[constant(3)] * 4, axis=0, training=True),
            (3, 4),
            "statistics are those of the batch",
        ),
    ],
)
def test_reasons(body, shape, reason):
    made = step(body, shape)
    assert reason is None or (isinstance(made, str) and reason in made)
    assert reason is not None or not isinstance(made, str)


def test_operands_that_both_repeat_are_refused():
    assert step(op.add, (3, 1), (1, 4)) == "both operands are broadcast"
    assert "two places" in step(op.add, (2, 3, 4, 5), (1, 3, 1, 5))


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_a_dtype_without_entry_is_named(dtype):
    assert f"operand is {dtype}, eltwise takes bfloat16 or float32" in step(nn.relu, (3, 4), dtype=dtype)


def test_a_symbolic_shape_is_refused():
    from tvm import tirx

    assert "no static shape" in step(nn.prelu, (tirx.Var("n", "int64"), 4), (4,))


def test_a_product_of_free_sizes_is_a_step_of_them():
    from tvm import tirx

    made = step(op.matmul, (tirx.Var("n", "int64"), 4), (4, 5))
    assert [str(extent) for extent in made.result.dims] == ["n", "5"]
