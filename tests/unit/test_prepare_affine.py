"""Factors and summands per channel go into the weights and the bias before them."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, prepared, values
from test_prepare_arithmetic import function
from tvm import relax
from tvm.script import relax as R

from unity_collage.rewrites import BATCH_NORM_FORM, DEFAULT_REWRITES, PROJECT_TUPLE
from unity_collage.rewrites import affine as a
from unity_collage.rewrites.constants import FOLD_CONSTANTS

W = values(4, 3, 3, 3)
S = values(4)
B = values(4)[::-1].copy()


def per_channel(array: np.ndarray) -> np.ndarray:
    return array.reshape(1, -1, 1, 1)


def test_a_factor_per_channel_goes_into_a_convolution_and_its_bias():
    @R.function
    def before(x: R.Tensor((1, 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W), padding=1)
            b = R.add(a, R.const(per_channel(B)))
            y = R.multiply(b, R.const(per_channel(S)))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((1, 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W * S.reshape(4, 1, 1, 1)), padding=1)
            y = R.add(a, R.const(per_channel(B * S)))
            R.output(y)
        return y

    assert_becomes(before, after, a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize(("weight", "factor"), [(1e30, 1e30), (1e-30, 1e-15)])
def test_a_factor_stays_where_weights_would_leave_their_type(weight: float, factor: float):
    weights = relax.const(np.full((4, 3, 3, 3), weight, "float32"))
    func = scaled(lambda x: relax.op.nn.conv2d(x, weights), (1, 3, 8, 8), np.float32(factor))
    assert_stays(func, a.SCALE_INTO_WEIGHTS)


def test_a_channel_of_zeros_does_not_keep_the_factor_of_others():
    factors = np.array([0, 1, 2, 3], "float32").reshape(4, 1, 1)
    func = scaled(lambda x: relax.op.nn.conv2d(x, relax.const(W)), (1, 3, 8, 8), factors)
    assert "multiply" not in prepared(func, a.SCALE_INTO_WEIGHTS).script()


@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (lambda x, w: relax.op.nn.conv2d(x, w), S.reshape(4, 1, 1)),
        (lambda x, w: relax.op.nn.conv2d(x, w), np.float32(2.5)),
        (lambda x, w: relax.op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OIHW"), S),
        (lambda x, w: relax.op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"), S),
    ],
)
def test_a_factor_goes_into_a_convolution_of_any_layout(make, factor):
    layout = make(relax.Var("x"), relax.Var("w")).attrs
    weights = values(*[{"O": 4, "I": 3, "H": 3, "W": 3}[letter] for letter in str(layout.kernel_layout)])
    shape = [{"N": 1, "C": 3, "H": 8, "W": 8}[letter] for letter in str(layout.data_layout)]
    before = scaled(lambda x: make(x, relax.const(weights)), shape, factor)
    assert "multiply" not in prepared(before, a.SCALE_INTO_WEIGHTS).script()
    assert_becomes(before, prepared(before, a.SCALE_INTO_WEIGHTS), a.SCALE_INTO_WEIGHTS)


def test_a_factor_stays_where_the_bias_would_overflow():
    def make(x: relax.Expr) -> relax.Expr:
        product = relax.op.matmul(x, relax.const(values(3, 4, dtype="float16")))
        biased = relax.op.add(product, relax.const(np.full(4, 4e4, "float16")))
        return relax.op.multiply(biased, relax.const(np.full(4, 2, "float16")))

    assert_stays(function(make, (2, 3), "float16"), a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: relax.op.nn.conv2d(x, relax.const(values(4, 1, 3, 3)), groups=4),
        lambda x: relax.op.nn.conv2d_transpose(x, relax.const(values(4, 2, 3, 3)), groups=2),
        lambda x: relax.op.nn.conv2d_transpose(x, relax.const(values(4, 4, 3, 3))),
        lambda x: relax.op.nn.conv2d(x, relax.const(values(4, 2, 3, 3)), groups=2),
    ],
)
def test_a_factor_goes_into_grouped_and_transposed_convolutions(make):
    before = scaled(make, [1, 4, 8, 8], per_channel(S))
    after = prepared(before, a.SCALE_INTO_WEIGHTS)
    assert "multiply" not in after.script()
    assert_becomes(before, after, a.SCALE_INTO_WEIGHTS)


def scaled(make, shape: list[int], factor: np.ndarray) -> relax.Function:
    """``make(x) * factor`` as a function."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.multiply(builder.emit(make(x)), relax.const(factor)))
        builder.emit_func_output(y)
    return builder.get()["main"]


def test_a_divisor_goes_into_a_product():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            a = R.matmul(x, R.const(values(3, 4)))
            y = R.divide(a, R.const(S))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            y = R.matmul(x, R.const(values(3, 4) * (1 / S)))
            R.output(y)
        return y

    assert_becomes(before, after, a.SCALE_INTO_WEIGHTS)


def test_a_factor_behind_a_permutation_goes_into_a_product_and_its_bias():
    @R.function
    def before(x: R.Tensor((2, 5, 3), "float32")):
        with R.dataflow():
            a = R.matmul(x, R.const(values(3, 4)))
            b = R.add(a, R.const(B))
            c = R.permute_dims(b, axes=[0, 2, 1])
            y = R.multiply(c, R.const(S.reshape(4, 1)))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 5, 3), "float32")):
        with R.dataflow():
            a = R.matmul(x, R.const(values(3, 4) * S))
            b = R.add(a, R.const(B * S))
            y = R.permute_dims(b, axes=[0, 2, 1])
            R.output(y)
        return y

    assert_becomes(before, after, a.SCALE_BEFORE_PERMUTE, a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize("factor", [values(5), values(2, 1, 1), values(7, 2, 4, 5)])
def test_a_factor_behind_a_permutation_stays_where_it_is_none_per_channel(factor):
    weights = relax.const(values(3, 4))
    func = scaled(lambda x: relax.op.permute_dims(relax.op.matmul(x, weights), [0, 2, 1]), [2, 5, 3], factor)
    assert_stays(func, a.SCALE_BEFORE_PERMUTE)


def test_a_factor_behind_a_permutation_stays_where_a_sum_has_added_axes():
    weights, summand = relax.const(values(3, 4)), relax.const(values(1, 1, 1, 4))

    def body(x: relax.Var) -> relax.Expr:
        return relax.op.permute_dims(relax.op.add(relax.op.matmul(x, weights), summand), [0, 1, 3, 2])

    assert_stays(scaled(body, [2, 5, 3], values(4, 1)), a.SCALE_BEFORE_PERMUTE)


def test_a_factor_stays_where_others_read_the_convolution():
    @R.function
    def func(x: R.Tensor((1, 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W), padding=1)
            b = R.multiply(a, R.const(per_channel(S)))
            y = R.add(a, b)
            R.output(y)
        return y

    assert_stays(func, a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize("factor", [values(1, 1, 8, 8), values(2, 4, 1, 1), values(8)])
def test_a_factor_that_varies_otherwise_stays(factor):
    func = scaled(lambda x: relax.op.nn.conv2d(x, relax.const(W), padding=1), [1, 3, 8, 8], factor)
    assert_stays(func, a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize("operator", [relax.op.multiply, relax.op.add])
def test_one_channel_does_not_take_a_constant_of_many(operator):
    def make(x: relax.Expr) -> relax.Expr:
        return operator(relax.op.matmul(x, relax.const(values(3, 1))), relax.const(values(6)))

    assert_stays(function(make), a.SCALE_INTO_WEIGHTS, a.BIAS_SHAPE)


def test_a_factor_stays_behind_weights_that_are_inputs_and_behind_concat():
    @R.function
    def func(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((2, 3, 3, 3), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, w)
            b = R.concat((a, a), axis=1)
            y = R.multiply(b, R.const(per_channel(S)))
            z = R.nn.conv2d(y, R.const(values(2, 4, 1, 1)))
            R.output(z)
        return z

    assert_stays(func, a.SCALE_INTO_WEIGHTS)


@pytest.mark.parametrize(
    ("make", "shape", "given", "wanted"),
    [
        (lambda x: relax.op.nn.conv2d(x, relax.const(W)), [1, 3, 8, 8], B.reshape(4, 1, 1), per_channel(B)),
        (
            lambda x: relax.op.nn.conv2d(x, relax.const(W)),
            [1, 3, 8, 8],
            np.float32(2),
            per_channel(0 * B + 2),
        ),
        (lambda x: relax.op.matmul(x, relax.const(values(3, 4))), [2, 3], B.reshape(1, 4), B),
        (lambda x: relax.op.matmul(x, relax.const(values(3, 4))), [5, 2, 3], B.reshape(1, 1, 4), B),
    ],
)
def test_a_bias_has_one_shape(make, shape, given, wanted):
    assert_becomes(summed(make, shape, given), summed(make, shape, wanted), a.BIAS_SHAPE)


def summed(make, shape: list[int], summand: np.ndarray) -> relax.Function:
    """``make(x) + summand`` as a function."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.add(builder.emit(make(x)), relax.const(summand)))
        builder.emit_func_output(y)
    return builder.get()["main"]


@pytest.mark.parametrize("summand", [values(1, 4, 6, 6), values(2, 4, 1, 1), values(6)])
def test_a_summand_that_is_no_bias_stays(summand):
    func = summed(lambda x: relax.op.nn.conv2d(x, relax.const(W)), [1, 3, 8, 8], summand)
    assert_stays(func, a.BIAS_SHAPE)


def test_batch_norm_is_a_product_and_a_sum():
    stats = [values(3), values(3) / 2, values(3) / 4, np.abs(values(3))]
    scale = (stats[0] / np.sqrt(stats[3] + np.float32(1e-5))).reshape(1, 3, 1, 1)
    shift = stats[1].reshape(1, 3, 1, 1) - stats[2].reshape(1, 3, 1, 1) * scale

    @R.function
    def before(x: R.Tensor((1, 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.batch_norm(
                x,
                R.const(stats[0]),
                R.const(stats[1]),
                R.const(stats[2]),
                R.const(stats[3]),
                axis=1,
                epsilon=1e-5,
                training=False,
            )
            y = a[0]
            R.output(y)
        return y

    result = prepared(before, BATCH_NORM_FORM, FOLD_CONSTANTS)
    product, total = (binding.value for binding in result["main"].body.blocks[0].bindings)
    assert (product.op.name, total.op.name) == ("relax.multiply", "relax.add")
    np.testing.assert_allclose(product.args[1].value.numpy(), scale, rtol=1e-5)
    np.testing.assert_allclose(total.args[1].value.numpy(), shift, rtol=1e-5, atol=1e-6)
    assert_becomes(before, result, BATCH_NORM_FORM, FOLD_CONSTANTS)


def test_batch_norm_without_factor_and_with_inputs_for_statistics():
    @R.function
    def before(
        x: R.Tensor((2, 3), "float32"), beta: R.Tensor((3,), "float32"), mean: R.Tensor((3,), "float32")
    ):
        with R.dataflow():
            a = R.nn.batch_norm(
                x, beta, beta, mean, R.const(np.ones(3, "float32")), axis=-1, scale=False, training=False
            )
            y = a[0]
            z = a[1]
            R.output(y, z)
        return (y, z)

    after = prepared(before, BATCH_NORM_FORM, FOLD_CONSTANTS)
    assert "batch_norm" not in after.script()
    assert_becomes(before, after, BATCH_NORM_FORM, FOLD_CONSTANTS)


def normed(mean: float, variance: float) -> relax.Function:
    """A batch norm in float16 with equal statistics for each of three channels."""
    stats = [relax.const(np.full(3, value, "float16")) for value in (1, 0, mean, variance)]

    def make(x: relax.Expr) -> relax.Expr:
        whole = relax.op.nn.batch_norm(x, *stats, axis=1, epsilon=1e-6, training=False)
        return relax.TupleGetItem(whole, 0)

    return function(make, (2, 3), "float16")


def test_statistics_of_float16_are_computed_in_float32():
    """In float16 epsilon has few bits, and the factor is 993."""
    result = prepared(normed(5, 0), BATCH_NORM_FORM, FOLD_CONSTANTS)
    product, total = (binding.value for binding in result["main"].body.blocks[0].bindings)
    np.testing.assert_allclose(product.args[1].value.numpy(), np.full((1, 3), 1000), rtol=1e-3)
    np.testing.assert_allclose(total.args[1].value.numpy(), np.full((1, 3), -5000), rtol=1e-3)


def test_batch_norm_whose_summand_is_not_a_number_of_float16_stays():
    """The mean is subtracted first: its product with the factor is 79057."""
    result = prepared(normed(2.5e4, 0.1), *DEFAULT_REWRITES)
    names = [binding.value.op.name for binding in result["main"].body.blocks[0].bindings]
    assert names == ["relax.add", "relax.divide"]


def test_batch_norm_in_training_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32"), c: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.nn.batch_norm(x, c, c, c, c, axis=1, training=True)
            y = a[0]
            R.output(y)
        return y

    assert_stays(func, BATCH_NORM_FORM, PROJECT_TUPLE)


def test_batch_norm_taken_apart_disappears_in_the_convolution():
    """As an importer leaves it: expand_dims, subtract, divide, multiply, add."""

    @R.function
    def before(x: R.Tensor((1, 3, 8, 8), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, R.const(W), padding=1)
            mean = R.expand_dims(R.const(B), axis=[0, 2, 3])
            a = R.subtract(y, mean)
            variance = R.expand_dims(R.const(np.abs(B)), axis=[0, 2, 3])
            b = R.add(variance, R.const(1e-5))
            root = R.sqrt(b)
            c = R.divide(a, root)
            gamma = R.expand_dims(R.const(S), axis=[0, 2, 3])
            d = R.multiply(c, gamma)
            beta = R.expand_dims(R.const(B), axis=[0, 2, 3])
            e = R.add(d, beta)
            z = R.nn.relu(e)
            R.output(z)
        return z

    after = prepared(before, *DEFAULT_REWRITES)
    names = [binding.value.op.name for binding in after["main"].body.blocks[0].bindings]
    assert names == ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    assert after["main"].body.blocks[0].bindings[1].value.args[1].ty.shape.values[1] == 4
    assert_becomes(before, after, *DEFAULT_REWRITES)


@pytest.mark.parametrize("divisor", [np.float32([0, 1, 2, 3]), np.float32([np.inf, 1, 2, 3])])
def test_divisors_without_a_finite_reciprocal_stay(divisor):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(values(3, 4))))
            y = builder.emit_output(relax.op.divide(product, relax.const(divisor)))
        builder.emit_func_output(y)
    assert_stays(builder.get()["main"], a.SCALE_INTO_WEIGHTS)


def test_integers_are_not_scaled():
    func = scaled_integers()
    assert_stays(func, a.SCALE_INTO_WEIGHTS, a.BIAS_SHAPE)


def scaled_integers() -> relax.Function:
    """An int8 product with an int32 result, times an int32 constant."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 3], "int8"))
    weights = relax.const(np.ones((3, 4), "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, weights, "int32"))
            y = builder.emit_output(relax.op.multiply(product, relax.const(np.int32([1, 2, 3, 4]))))
        builder.emit_func_output(y)
    return builder.get()["main"]


def test_the_batch_may_be_symbolic():
    @R.function
    def before(x: R.Tensor(("n", 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W), padding=1)
            b = R.add(a, R.const(B.reshape(4, 1, 1)))
            y = R.multiply(b, R.const(per_channel(S)))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor(("n", 3, 8, 8), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(W * S.reshape(4, 1, 1, 1)), padding=1)
            y = R.add(a, R.const(per_channel(B * S)))
            R.output(y)
        return y

    assert_becomes(before, after, a.SCALE_INTO_WEIGHTS, a.BIAS_SHAPE)
