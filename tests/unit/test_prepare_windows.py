"""Padding, steps and whole images: what goes into convolutions and pools, and what must not."""

from __future__ import annotations

from math import inf

import pytest
from prepare_checks import assert_becomes, assert_stays, prepared, values
from test_prepare_arithmetic import function
from tvm import relax, topi
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage.rewrites import DEFAULT_REWRITES, padding, reductions, slices

IMAGE = (1, 3, 8, 8)
W1 = relax.const(values(4, 3, 1, 1))
W3 = relax.const(values(4, 3, 3, 3))
ONE_AROUND = (0, 0, 0, 0, 1, 1, 1, 1)
BEHIND = (0, 0, 0, 0, 0, 1, 0, 2)


def image(make) -> relax.Function:
    return function(make, IMAGE)


def imported_pad(make, before: tuple[int, ...], after: tuple[int, ...], value: float) -> IRModule:
    """``make`` of a pad as the importer writes it: the PrimFunc of ``topi.nn.pad``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            padded = builder.emit_te(topi.nn.pad, x, before, after, value)
            y = builder.emit_output(make(padded))
        builder.emit_func_output(y)
    return builder.get()


def test_a_pad_of_the_importer_is_an_operator():
    before = imported_pad(op.nn.relu, (0, 0, 1, 0), (0, 0, 2, 1), 0.5)
    after = image(lambda x: op.nn.relu(op.nn.pad(x, (0, 0, 0, 0, 1, 2, 0, 1), "constant", 0.5)))
    assert_becomes(before, after, padding.PAD_FORM)


def test_a_pad_by_less_than_nothing_is_a_slice():
    before = imported_pad(op.nn.relu, (0, 0, -1, 0), (0, 0, 1, -2), 0.0)
    after = image(
        lambda x: op.nn.relu(
            op.nn.pad(op.strided_slice(x, [2, 3], [1, 0], [8, 6], [1, 1]), (0, 0, 0, 0, 0, 1, 0, 0))
        )
    )
    assert_becomes(before, after, padding.PAD_FORM)


def test_an_infinite_pad_that_no_pool_takes_stays_with_the_importer():
    before = imported_pad(op.nn.relu, (0, 0, 1, 1), (0, 0, 1, 1), -inf)
    assert_stays(before, *DEFAULT_REWRITES)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            lambda x: op.nn.conv2d(op.nn.pad(x, ONE_AROUND), W3, padding=(0, 1)),
            lambda x: op.nn.conv2d(x, W3, padding=(1, 2)),
        ),
        (
            lambda x: op.nn.conv2d(op.nn.pad(x, BEHIND), W3, strides=2),
            lambda x: op.nn.conv2d(x, W3, strides=2, padding=(0, 0, 1, 2)),
        ),
        (
            lambda x: op.nn.avg_pool2d(op.nn.pad(x, ONE_AROUND), (3, 3)),
            lambda x: op.nn.avg_pool2d(x, (3, 3), padding=(1, 1, 1, 1), count_include_pad=True),
        ),
        (
            lambda x: op.nn.max_pool2d(op.nn.pad(x, ONE_AROUND, "constant", -3.4028234663852886e38), (3, 3)),
            lambda x: op.nn.max_pool2d(x, (3, 3), padding=(1, 1, 1, 1)),
        ),
        (
            lambda x: op.nn.max_pool2d(op.nn.pad(op.nn.relu(x), ONE_AROUND), (3, 3)),
            lambda x: op.nn.max_pool2d(op.nn.relu(x), (3, 3), padding=(1, 1, 1, 1)),
        ),
    ],
)
def test_a_pad_goes_into_what_slides_over_it(before, after):
    assert_becomes(image(before), image(after), padding.PAD_INTO_WINDOW)


def test_an_infinite_pad_goes_into_a_max_pool():
    before = imported_pad(lambda x: op.nn.max_pool2d(x, (3, 3)), (0, 0, 1, 1), (0, 0, 1, 1), -inf)
    after = image(lambda x: op.nn.max_pool2d(x, (3, 3), padding=(1, 1, 1, 1)))
    assert_becomes(before, after, padding.PAD_INTO_WINDOW)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.nn.conv2d(op.nn.pad(x, ONE_AROUND, "constant", 1.0), W3),
        lambda x: op.nn.conv2d(op.nn.pad(x, ONE_AROUND, "reflect"), W3),
        lambda x: op.nn.conv2d(op.nn.pad(x, (0, 1, 0, 0, 1, 1, 1, 1)), W3),
        lambda x: op.nn.max_pool2d(op.nn.pad(x, ONE_AROUND), (3, 3)),
        lambda x: op.nn.max_pool2d(op.nn.pad(op.nn.relu(x), ONE_AROUND), (1, 1), strides=2),
        lambda x: op.nn.max_pool2d(op.nn.pad(op.nn.relu(x), ONE_AROUND), (2, 2), dilation=(9, 9)),
        lambda x: op.nn.avg_pool2d(op.nn.pad(x, ONE_AROUND), (3, 3), padding=1),
        lambda x: op.nn.avg_pool2d(op.nn.pad(x, ONE_AROUND), (3, 3), strides=2, ceil_mode=True),
    ],
)
def test_a_pad_that_would_mean_something_else_stays(make):
    assert_stays(image(make), padding.PAD_INTO_WINDOW)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (
            slices.POOL_OF_ONE,
            lambda x: op.nn.avg_pool2d(x, (1, 1), strides=(2, 3)),
            lambda x: op.strided_slice(x, [2, 3], [0, 0], [7, 7], [2, 3]),
        ),
        (
            slices.MERGE_SLICES,
            lambda x: op.strided_slice(
                op.strided_slice(x, [2], [1], [8], [2]), [2, 3], [1, 3], [4, 8], [2, 1]
            ),
            lambda x: op.strided_slice(x, [2, 3], [3, 3], [8, 8], [4, 1]),
        ),
        (
            slices.SLICE_OF_PAD,
            lambda x: op.strided_slice(op.nn.pad(x, ONE_AROUND), [2, 3], [2, 1], [9, 9], [2, 2]),
            lambda x: op.nn.pad(op.strided_slice(x, [2, 3], [1, 0], [8, 7], [2, 2]), (0,) * 8),
        ),
        (
            slices.SLICE_OF_PAD,
            lambda x: op.strided_slice(op.nn.pad(x, BEHIND), [2, 3], [1, 0], [9, 10], [2, 3]),
            lambda x: op.nn.pad(
                op.strided_slice(x, [2, 3], [1, 0], [8, 7], [2, 3]), (0, 0, 0, 0, 0, 0, 0, 1)
            ),
        ),
        (
            slices.SLICE_INTO_CONVOLUTION,
            lambda x: op.nn.conv2d(op.strided_slice(x, [2, 3], [0, 0], [8, 8], [2, 2]), W1),
            lambda x: op.nn.conv2d(x, W1, strides=2),
        ),
    ],
)
def test_reading_every_other_element(rule, before, after):
    assert_becomes(image(before), image(after), rule)


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (slices.POOL_OF_ONE, lambda x: op.nn.avg_pool2d(x, (1, 2), strides=2)),
        (slices.POOL_OF_ONE, lambda x: op.nn.max_pool2d(x, (1, 1), strides=2, padding=1)),
        (slices.MERGE_SLICES, lambda x: op.strided_slice(op.nn.relu(x), [2], [1], [8], [2])),
        (
            slices.MERGE_SLICES,
            lambda x: op.strided_slice(op.strided_slice(x, [2], [7], [0], [-1]), [2], [1], [4]),
        ),
        (slices.SLICE_OF_PAD, lambda x: op.strided_slice(op.nn.pad(x, BEHIND), [2], [8], [9])),
        (
            slices.SLICE_INTO_CONVOLUTION,
            lambda x: op.nn.conv2d(op.strided_slice(x, [2, 3], [1, 1], [8, 8], [2, 2]), W1),
        ),
        (
            slices.SLICE_INTO_CONVOLUTION,
            lambda x: op.nn.conv2d(op.strided_slice(x, [2, 3], [0, 0], [8, 8], [2, 2]), W3),
        ),
        (
            slices.SLICE_INTO_CONVOLUTION,
            lambda x: op.nn.conv2d(op.strided_slice(x, [2, 3], [0, 0], [5, 8], [2, 2]), W1),
        ),
    ],
)
def test_reading_otherwise_stays(rule, make):
    assert_stays(image(make), rule)


def test_the_shifted_path_of_a_reduction_cell_is_one_slice_and_one_convolution():
    """NASNet: crop one row and column, pad behind, take every other element by a pool of one, convolve."""
    before = imported_pad(
        lambda x: op.nn.conv2d(op.nn.avg_pool2d(x, (1, 1), strides=2), W1), (0, 0, -1, -1), (0, 0, 1, 1), 0.0
    )
    after = image(lambda x: op.nn.conv2d(op.strided_slice(x, [2, 3], [1, 1], [8, 8], [2, 2]), W1))
    assert_becomes(before, after, *DEFAULT_REWRITES)


def test_taking_one_row_is_a_slice():
    index = relax.const(2, "int64")
    before = function(lambda x: op.take(x, index, 1), (2, 4, 3))
    after = function(lambda x: op.reshape(op.strided_slice(x, [1], [2], [3], [1]), (2, 3)), (2, 4, 3))
    assert_becomes(before, after, slices.TAKE_AS_SLICE)


@pytest.mark.parametrize(
    ("index", "mode", "row"), [(-1, "fast", 3), (-4, "fast", 0), (-1, "wrap", 3), (9, "wrap", 1)]
)
def test_an_index_from_the_end_is_a_slice_too(index: int, mode: str, row: int):
    before = function(lambda x: op.take(x, relax.const(index, "int64"), 1, mode), (2, 4, 3))
    after = function(lambda x: op.reshape(op.strided_slice(x, [1], [row], [row + 1], [1]), (2, 3)), (2, 4, 3))
    assert_becomes(before, after, slices.TAKE_AS_SLICE)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.take(x, relax.const([2], "int64"), 1),
        lambda x: op.take(x, relax.const(-5, "int64"), 1),
        lambda x: op.take(x, relax.const(-1, "int64"), 1, "clip"),
        lambda x: op.take(x, relax.const(9, "int64"), 1, "clip"),
    ],
)
def test_taking_by_other_indices_stays(make):
    assert_stays(function(make, (2, 4, 3)), slices.TAKE_AS_SLICE)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.nn.avg_pool2d(x, (8, 8)),
        lambda x: op.nn.avg_pool2d(x, (9, 9), padding=(0, 0, 1, 1)),
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
    ],
)
def test_a_pool_over_the_image_is_a_mean(make):
    assert_becomes(image(make), image(lambda x: op.mean(x, [2, 3], True)), reductions.GLOBAL_MEAN)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.nn.avg_pool2d(x, (7, 7), strides=2),
        lambda x: op.nn.avg_pool2d(x, (9, 9), padding=(0, 0, 1, 1), count_include_pad=True),
        lambda x: op.nn.adaptive_avg_pool2d(x, (2, 1)),
    ],
)
def test_a_pool_over_part_of_the_image_stays(make):
    assert_stays(image(make), reductions.GLOBAL_MEAN)


def test_axes_are_counted_from_the_front():
    before = image(lambda x: op.mean(x, [-1, -2], True))
    assert_becomes(before, image(lambda x: op.mean(x, [2, 3], True)), reductions.REDUCED_AXES)
    assert_stays(image(lambda x: op.sum(x, None)), reductions.REDUCED_AXES)


def softmax_parts(x: relax.Expr, axis: int, top_axis: int) -> relax.Expr:
    power = op.exp(op.subtract(x, op.max(x, top_axis, True)))
    return op.divide(power, op.sum(power, axis, True))


def test_softmax_from_its_parts():
    before = image(lambda x: softmax_parts(x, -1, 3))
    shared = prepared(before)
    assert_becomes(shared, image(lambda x: op.nn.softmax(x, 3)), reductions.SOFTMAX_FORM)


def test_what_looks_like_softmax_stays():
    func = prepared(image(lambda x: softmax_parts(x, -1, 2)))
    assert_stays(func, reductions.SOFTMAX_FORM)


def test_the_log_of_softmax_is_one_operator():
    before = image(lambda x: op.log(op.nn.softmax(x, 1)))
    assert_becomes(before, image(lambda x: op.nn.log_softmax(x, 1)), reductions.LOG_SOFTMAX_FORM)
    assert_stays(image(lambda x: op.log(op.nn.relu(x))), reductions.LOG_SOFTMAX_FORM)
