"""Prepare drops operators that give back what they were given, and only those."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from prepare_checks import assert_becomes, assert_stays, module, prepared
from tvm import relax
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.rewrites import identity as i


@R.function
def relu_of_x(x: R.Tensor((2, 3), "float32")):
    with R.dataflow():
        y = R.nn.relu(x)
        R.output(y)
    return y


def function(make, *shape: int, dtype: str = "float32") -> relax.Function:
    """``relu(make(x))`` for an ``x`` of that shape."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(builder.emit(make(x))))
        builder.emit_func_output(y)
    return builder.get()["main"]


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (i.DROP_SAME_SHAPE, lambda x: relax.op.reshape(x, (2, 3))),
        (i.DROP_SAME_SHAPE, lambda x: relax.op.broadcast_to(x, (2, 3))),
        (i.DROP_SAME_SHAPE, lambda x: relax.op.squeeze(x)),
        (i.DROP_SAME_SHAPE, lambda x: relax.op.tile(x, (1, 1))),
        (i.DROP_SAME_SHAPE, lambda x: relax.op.repeat(x, 1, 0)),
        (i.DROP_SAME_DTYPE, lambda x: relax.op.astype(x, "float32")),
        (i.DROP_IDENTITY_PERMUTE, lambda x: relax.op.permute_dims(x, [0, 1])),
        (i.DROP_WHOLE_SLICE, lambda x: relax.op.strided_slice(x, [0, 1], [0, 0], [2, 9])),
        (i.DROP_WHOLE_SLICE, lambda x: relax.op.strided_slice(x, [1], [0], [3], [1])),
        (i.DROP_EMPTY_PAD, lambda x: relax.op.nn.pad(x, (0, 0, 0, 0))),
        (i.DROP_JOIN_OF_ONE, lambda x: relax.op.concat([x], 1)),
        (i.DROP_NEUTRAL, lambda x: relax.op.add(x, relax.const(0.0))),
        (i.DROP_NEUTRAL, lambda x: relax.op.subtract(x, relax.const(np.zeros((3,), "float32")))),
        (i.DROP_NEUTRAL, lambda x: relax.op.multiply(x, relax.const(np.ones((2, 1), "float32")))),
        (i.DROP_NEUTRAL, lambda x: relax.op.divide(x, relax.const(1.0))),
        (i.DROP_NEUTRAL, lambda x: relax.op.power(x, relax.const(1.0))),
    ],
)
def test_what_changes_nothing_goes(rule, make):
    assert_becomes(function(make, 2, 3), relu_of_x, rule)


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (i.DROP_SAME_SHAPE, lambda x: relax.op.reshape(x, (3, 2))),
        (i.DROP_SAME_SHAPE, lambda x: relax.op.repeat(x, 2, 0)),
        (i.DROP_SAME_DTYPE, lambda x: relax.op.astype(x, "float16")),
        (i.DROP_IDENTITY_PERMUTE, lambda x: relax.op.permute_dims(x, [1, 0])),
        (i.DROP_IDENTITY_PERMUTE, lambda x: relax.op.permute_dims(x)),
        (i.DROP_WHOLE_SLICE, lambda x: relax.op.strided_slice(x, [1], [0], [2])),
        (i.DROP_WHOLE_SLICE, lambda x: relax.op.strided_slice(x, [0], [1], [-3], [-1])),
        (i.DROP_EMPTY_PAD, lambda x: relax.op.nn.pad(x, (0, 0, 0, 1))),
        (i.DROP_JOIN_OF_ONE, lambda x: relax.op.concat([x, x], 1)),
        (i.DROP_NEUTRAL, lambda x: relax.op.add(x, relax.const(1e-30))),
        (i.DROP_NEUTRAL, lambda x: relax.op.add(x, relax.const(np.zeros((4, 1, 1), "float32")))),
        (i.DROP_NEUTRAL, lambda x: relax.op.multiply(x, relax.const(0.0))),
        (i.DROP_NEUTRAL, lambda x: relax.op.subtract(relax.const(0.0), x)),
    ],
)
def test_what_changes_something_stays(rule, make):
    assert_stays(function(make, 2, 3), rule)


def resized(x, size: tuple[int, int], method: str, mode: str) -> relax.Expr:
    image = relax.op.image
    return image.resize2d(x, size, method=method, coordinate_transformation_mode=mode)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_a_resize_to_its_size_goes(method, mode):
    @R.function
    def after(x: R.Tensor((1, 2, 3, 4), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    before = function(lambda x: resized(x, (3, 4), method, mode), 1, 2, 3, 4)
    assert_becomes(before, after, i.DROP_RESIZE_TO_ITS_SIZE)


@pytest.mark.parametrize(("size", "mode"), [((3, 8), "half_pixel"), ((3, 4), "tf_half_pixel_for_nn")])
def test_other_resizes_stay(size, mode):
    func = function(lambda x: resized(x, size, "nearest_neighbor", mode), 1, 2, 3, 4)
    assert_stays(func, i.DROP_RESIZE_TO_ITS_SIZE)


def test_dropout_is_gone_in_inference():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            pair = R.nn.dropout(x, rate=0.5)
            kept = pair[0]
            y = R.nn.relu(kept)
            R.output(y)
        return y

    assert_becomes(before, relu_of_x, i.DROP_DROPOUT)


def test_the_mask_of_a_dropout_keeps_it():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            pair = R.nn.dropout(x, rate=0.5)
            mask = pair[1]
            R.output(mask)
        return mask

    assert_stays(func, i.DROP_DROPOUT)


def test_a_stack_of_one_is_a_new_axis():
    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.expand_dims(x, axis=1)
            y = R.nn.relu(a)
            R.output(y)
        return y

    assert_becomes(function(lambda x: relax.op.stack([x], 1), 2, 3), after, i.DROP_JOIN_OF_ONE)


def test_a_split_into_one_is_its_operand():
    result = prepared(function(lambda x: relax.op.split(x, 1), 2, 3), i.DROP_SPLIT_INTO_ONE)
    tvm.ir.assert_structural_equal(result, module(relu_of_x))


def test_a_split_into_two_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            parts = R.split(x, 2, axis=0)
            part = parts[0]
            R.output(part)
        return part

    assert_stays(func, i.DROP_SPLIT_INTO_ONE)


def test_equal_symbolic_shapes_are_equal():
    @R.function
    def before(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.reshape(x, R.shape([n, 3]))
            y = R.nn.relu(a)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(("n", 3), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    assert_becomes(before, after, i.DROP_SAME_SHAPE)


def test_unknown_shapes_prove_nothing():
    @R.function
    def func(x: R.Tensor(dtype="float32")) -> R.Tensor(dtype="float32"):
        with R.dataflow():
            y = R.add(x, R.const(0.0))
            R.output(y)
        return y

    assert_stays(func, i.DROP_NEUTRAL, i.DROP_SAME_SHAPE)


def test_an_output_that_is_an_input_is_returned_as_such():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.reshape(x, R.shape([2, 3]))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        return x

    assert_becomes(before, after, i.DROP_SAME_SHAPE)
