"""Pooling, norms, reductions, element-wise and shape operators lowered to oneDNN, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_function import assert_same_numbers, bound, constant, function, nn, op
from tvm import relax

from unity_collage import runtime

if reason := runtime.why_unavailable("onednn"):
    pytest.skip(reason, allow_module_level=True)

LAYOUTS = [("NCHW", (2, 8, 11, 10)), ("NHWC", (2, 11, 10, 8))]


def same(body, *shapes, positive=False):
    return assert_same_numbers("onednn", function(body, *shapes), positive=positive)


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS)
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (0, 1, 2, 1)])
def test_pooling(layout, shape, ceil_mode, padding):
    window = {"strides": (2, 2), "padding": padding, "ceil_mode": ceil_mode, "layout": layout}
    same(lambda x: nn.max_pool2d(x, (3, 3), **window), shape)
    same(lambda x: nn.avg_pool2d(x, (3, 3), count_include_pad=False, **window), shape)
    if not ceil_mode:
        same(lambda x: nn.avg_pool2d(x, (3, 3), count_include_pad=True, **window), shape)


@pytest.mark.parametrize(("layout", "shape"), LAYOUTS)
def test_pooling_of_equal_windows(layout, shape):
    same(lambda x: nn.adaptive_avg_pool2d(x, (1, 1), layout=layout), shape)
    same(lambda x: nn.adaptive_avg_pool2d(x, (11, 5), layout=layout), shape)
    same(lambda x: nn.max_pool2d(x, (3, 3), (1, 1), (1, 1), (2, 2), layout=layout), shape)


def test_pooling_of_other_ranks():
    same(lambda x: nn.avg_pool1d(x, 3, 2, 1, layout="NWC"), (2, 11, 8))
    same(lambda x: nn.max_pool3d(x, 2, 2, 0, layout="NDHWC"), (2, 4, 6, 8, 16))
    same(lambda x: nn.relu(nn.avg_pool3d(x, (5, 1, 1), (1, 1, 1), (2, 0, 0, 2, 0, 0))), (1, 1, 16, 5, 5))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(2, 3), (3,), None, (0, 1, 2, 3)])
@pytest.mark.parametrize("make", [op.sum, op.mean, op.max, op.min, op.prod])
def test_reductions_of_rows(make, axes, keepdims):
    assert "ref" not in same(lambda x: make(x, axis=axes, keepdims=keepdims), (2, 3, 4, 5), positive=True)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("make", [op.sum, op.mean, op.max])
def test_reductions_of_columns(make, axes, keepdims):
    assert "ref" not in same(lambda x: make(x, axis=axes, keepdims=keepdims), (2, 3, 4, 5))


def test_work_behind_a_reduction():
    chosen = same(lambda x: nn.relu(op.add(op.mean(x, axis=(1, 2)), constant(32))), (2, 7, 7, 32))
    assert chosen.count("step") == 1


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda x: nn.layer_norm(x, constant(32), constant(32, seed=1), axes=-1), (2, 7, 32)),
        (lambda x: nn.layer_norm(x, constant(7, 32), constant(7, 32), axes=[1, 2]), (2, 7, 32)),
        (lambda x: nn.layer_norm(x, constant(32), constant(32), axes=-1), (32,)),
        (
            lambda x: nn.group_norm(x, constant(6), constant(6), num_groups=3, channel_axis=1, axes=[2, 3]),
            (2, 6, 4, 5),
        ),
        (lambda x: nn.instance_norm(x, constant(6), constant(6), channel_axis=1, axes=[2, 3]), (2, 6, 4, 5)),
        (nn.softmax, (2, 5, 7)),
        (nn.log_softmax, (2, 5, 7)),
        (lambda x: op.multiply(nn.softmax(x), relax.const(3.0)), (7,)),
    ],
)
def test_norms(body, shape):
    assert "ref" not in same(body, shape)


def column(x: relax.Expr) -> relax.Expr:
    """The first column of a matrix of three: its numbers are not neighbours in memory."""
    return bound(op.squeeze(bound(op.strided_slice(x, [1], [0], [1])), [1]))


ONES = relax.const(np.linspace(0.5, 2, 8, dtype="float32"))


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (lambda x: nn.layer_norm(bound(op.split(x, 2, axis=1))[1], ONES, ONES, axes=-1), [(5, 16)]),
        (lambda x: nn.layer_norm(op.strided_slice(x, [0], [0], [10], [2]), ONES, ONES, axes=-1), [(10, 8)]),
        (lambda x, s: nn.layer_norm(x, column(s), ONES, axes=-1), [(5, 8), (8, 3)]),
        (lambda x, s: nn.layer_norm(x, ONES, column(s), axes=-1), [(5, 8), (8, 3)]),
        (
            lambda x, s: nn.batch_norm(x, ONES, ONES, column(s), ONES, axis=1, training=False)[0],
            [(2, 8, 4, 5), (8, 3)],
        ),
        (
            lambda x, s: nn.group_norm(x, ONES, column(s), num_groups=2, channel_axis=1, axes=[2, 3]),
            [(2, 8, 4, 5), (8, 3)],
        ),
        (lambda x, s: op.add(nn.avg_pool2d(x, (3, 3), layout="NHWC"), column(s)), [(1, 6, 5, 8), (8, 3)]),
        (lambda x, s: op.add(op.matmul(x, constant(4, 8)), column(s)), [(5, 4), (8, 3)]),
        (
            lambda x, s: op.add(nn.conv2d(x, constant(8, 4, 3, 3), data_layout="NHWC"), column(s)),
            [(1, 6, 5, 4), (8, 3)],
        ),
        (
            lambda x, s: op.multiply(nn.conv2d(x, constant(8, 4, 3, 3), data_layout="NHWC"), column(s)),
            [(1, 6, 5, 4), (8, 3)],
        ),
        (lambda x: nn.selu(op.strided_slice(x, [1], [0], [16], [2])), [(5, 16)]),
    ],
)
def test_numbers_that_are_not_neighbours_are_read_where_they_are(body, shapes):
    same(body, *shapes)


def test_a_row_behind_a_product_with_permuted_batches():
    """One step of oneDNN 3.2 with both would end the process."""

    def body(x):
        return op.permute_dims(op.multiply(op.matmul(x, constant(5, 8, 16)), constant(16)), (1, 0, 2))

    assert same(body, (5, 7, 8)).count("step") == 2


@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 6, 4, 5)), (3, (2, 4, 5, 6)), (1, (4, 6))])
def test_batch_norm_and_relu_are_one_step(axis, shape):
    variance = relax.const(np.linspace(0.5, 2, 6, dtype="float32"))

    def body(x):
        return nn.relu(
            nn.batch_norm(x, constant(6), constant(6), constant(6), variance, axis=axis, training=False)[0]
        )

    chosen = same(body, shape)
    assert chosen.count("step") == 1


@pytest.mark.parametrize(
    "body",
    [
        nn.relu,
        nn.gelu,
        nn.gelu_tanh,
        nn.silu,
        nn.selu,
        nn.softplus,
        op.tanh,
        op.sigmoid,
        op.exp,
        op.abs,
        op.square,
        op.round,
        op.negative,
        lambda x: nn.softplus(x, beta=2.0),
        lambda x: nn.leakyrelu(x, 0.2),
        lambda x: op.clip(x, -1, 0.5),
        lambda x: op.power(x, relax.const(2.0)),
        lambda x: op.power(x, relax.const(3.0)),
        lambda x: op.divide(relax.const(2.0), x),
        lambda x: op.maximum(x, relax.const(0.4)),
        lambda x: op.exp(op.negative(x)),
    ],
)
def test_functions_of_one_tensor(body):
    assert "ref" not in same(body, (3, 5, 7))
    same(body, ())


@pytest.mark.parametrize("body", [op.log, op.sqrt, op.rsqrt, lambda x: op.power(x, relax.const(0.75))])
def test_functions_of_a_positive_tensor(body):
    same(body, (3, 5, 7), positive=True)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4, 5), (3, 4, 5)),
        ((3, 4, 5), (5,)),
        ((5,), (3, 4, 5)),
        ((3, 4, 5), (4, 1)),
        ((3, 1, 5), (3, 4, 5)),
        ((3, 4, 5), (3, 1, 1)),
        ((3, 4, 5), (1,)),
        ((2, 3, 4, 5), (3, 1, 1)),
        ((7,), (7,)),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        op.add,
        op.subtract,
        op.multiply,
        op.divide,
        op.maximum,
        op.minimum,
        op.less,
        op.greater_equal,
        op.equal,
    ],
)
def test_operators_of_two_tensors(make, shapes):
    assert "ref" not in same(make, *shapes, positive=True)


def test_work_behind_an_operator_of_two_tensors():
    chosen = same(
        lambda x, y: op.multiply(op.tanh(op.add(op.add(x, y), constant(5))), y), (3, 4, 5), (3, 4, 5)
    )
    assert "ref" not in chosen


@pytest.mark.parametrize(("axis", "shape", "slopes"), [(-1, (2, 3, 5), 5), (1, (2, 3, 5, 4), 3)])
def test_prelu(axis, shape, slopes):
    same(lambda x: nn.prelu(x, constant(slopes), axis=axis), shape)


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (lambda x, y: op.concat([x, y], axis=1), [(2, 3, 4), (2, 5, 4)]),
        (lambda x, y: op.concat([x, y, x], axis=-1), [(2, 3, 4), (2, 3, 5)]),
        (lambda x: op.concat([x, constant(2, 1, 4)], axis=1), [(2, 3, 4)]),
        (lambda x, y: op.concat([op.permute_dims(x, (0, 2, 1)), y], axis=1), [(2, 4, 3), (2, 5, 4)]),
        (lambda x, y: op.stack([x, y], axis=1), [(2, 3), (2, 3)]),
        (lambda x: op.permute_dims(x, (0, 2, 1)), [(2, 3, 4)]),
        (lambda x: op.permute_dims(op.permute_dims(x, (1, 0, 2)), (0, 2, 1)), [(2, 3, 4)]),
        (lambda x: op.reshape(op.permute_dims(x, (0, 2, 1)), (2, 12)), [(2, 3, 4)]),
        (
            lambda x: op.strided_slice(x, axes=[1, -1], begin=[-2, 0], end=[99, 4], strides=[1, 2]),
            [(2, 3, 4)],
        ),
        (lambda x: op.split(x, [1, 4], axis=1)[1], [(2, 6, 4)]),
        (lambda x: op.reshape(x, (4, 3)), [(3, 4)]),
        (lambda x: nn.relu(op.permute_dims(x)), [(3, 5)]),
        (lambda x: op.expand_dims(op.squeeze(nn.relu(x), [0]), [1]), [(1, 3, 4)]),
        (lambda x: op.flatten(nn.relu(x)), [(1, 3, 4)]),
    ],
)
def test_operators_that_move_data(body, shapes):
    same(body, *shapes)


def test_a_result_that_is_read_again():
    def body(x):
        result = bound(nn.relu(x))
        return relax.Tuple([result, op.reshape(result, (12,)), op.exp(result)])

    same(body, (3, 4))


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (1, 3, 4, 5)), ("NHWC", (1, 4, 5, 16))])
@pytest.mark.parametrize("size", [(8, 10), (7, 3), (2, 5)])
def test_linear_resize(layout, shape, size):
    same(lambda x: op.image.resize2d(x, size, layout=layout, method="linear"), shape)


@pytest.mark.parametrize(
    ("mode", "rounding", "size"),
    [
        ("half_pixel", "round", (8, 10)),
        ("half_pixel", "round_prefer_ceil", (7, 3)),
        ("asymmetric", "floor", (12, 5)),
    ],
)
def test_nearest_resize(mode, rounding, size):
    def body(x):
        return op.image.resize2d(
            x,
            size,
            method="nearest_neighbor",
            coordinate_transformation_mode=mode,
            rounding_method=rounding,
        )

    same(body, (1, 3, 4, 5))


def test_local_response_normalization_in_both_layouts():
    def normalized(x, pooled):
        shifted = op.add(op.multiply(pooled, relax.const(0.1)), relax.const(1.0))
        return op.divide(x, op.power(shifted, relax.const(0.75)))

    def channels_first(x):
        squares = op.expand_dims(op.multiply(x, x), [1])
        padding = (2, 0, 0, 2, 0, 0)
        pooled = nn.avg_pool3d(squares, (5, 1, 1), (1, 1, 1), padding, count_include_pad=True)
        return normalized(x, op.squeeze(pooled, [1]))

    def channels_last(x):
        pooled = nn.avg_pool1d(op.reshape(op.multiply(x, x), (50, 1, 16)), 5, 1, 2, count_include_pad=True)
        return normalized(x, op.reshape(pooled, (2, 5, 5, 16)))

    for body, shape in ((channels_first, (2, 16, 5, 5)), (channels_last, (2, 5, 5, 16))):
        chosen = same(body, shape)
        assert chosen.count("step") == 1
        assert "lrn" in chosen
