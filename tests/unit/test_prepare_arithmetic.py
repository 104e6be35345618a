"""One way to write a sum, a product, a difference and a power."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, prepared, values
from tvm import relax
from tvm.script import relax as R

from unity_collage.rewrites import Rewrite
from unity_collage.rewrites import arithmetic as a
from unity_collage.rewrites.sums import UNSTACK_REDUCTION

C = values(3)
HALVES = np.array([1, 1.5, 2], "float32")


def function(make, shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> relax.Function:
    """``make(x)`` as a function."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(make(x))
        builder.emit_func_output(y)
    return builder.get()["main"]


def const(value, dtype: str = "float32") -> relax.Expr:
    return relax.const(value, dtype)


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [
        (a.CONSTANT_RIGHT, lambda x: relax.op.add(const(C), x), lambda x: relax.op.add(x, const(C))),
        (a.CONSTANT_RIGHT, lambda x: relax.op.maximum(const(2), x), lambda x: relax.op.maximum(x, const(2))),
        (a.SUBTRACT_CONSTANT, lambda x: relax.op.subtract(x, const(C)), lambda x: relax.op.add(x, const(-C))),
        (
            a.DIVIDE_EXACTLY,
            lambda x: relax.op.divide(x, const(8)),
            lambda x: relax.op.multiply(x, const(0.125)),
        ),
        (a.POWER_FORM, lambda x: relax.op.power(x, const(2)), relax.op.square),
        (
            a.POWER_FORM,
            lambda x: relax.op.power(relax.op.abs(x), const(0.5)),
            lambda x: relax.op.sqrt(relax.op.abs(x)),
        ),
        (
            a.POWER_FORM,
            lambda x: relax.op.power(relax.op.add(relax.op.multiply(x, x), const(1)), const(-0.5)),
            lambda x: relax.op.rsqrt(relax.op.add(relax.op.multiply(x, x), const(1))),
        ),
        (a.SQUARE_FORM, lambda x: relax.op.multiply(x, x), relax.op.square),
        (a.DOUBLE_FORM, lambda x: relax.op.add(x, x), lambda x: relax.op.multiply(x, const(2))),
    ],
)
def test_normal_forms(rule: Rewrite, before, after):
    with np.errstate(invalid="ignore"):
        assert_becomes(function(before), function(after), rule)


@pytest.mark.parametrize(
    ("rule", "make", "dtype"),
    [
        (a.CONSTANT_RIGHT, lambda x: relax.op.subtract(const(C), x), "float32"),
        (a.CONSTANT_RIGHT, lambda x: relax.op.add(x, const(C)), "float32"),
        (a.SUBTRACT_CONSTANT, lambda x: relax.op.subtract(const(C), x), "float32"),
        (a.SUBTRACT_CONSTANT, lambda x: relax.op.subtract(x, const(3, "uint8")), "uint8"),
        (a.DIVIDE_EXACTLY, lambda x: relax.op.divide(x, const(3)), "float32"),
        (a.DIVIDE_EXACTLY, lambda x: relax.op.divide(x, const([1, 2, 3])), "float32"),
        (a.DIVIDE_EXACTLY, lambda x: relax.op.divide(x, const(2, "int32")), "int32"),
        (a.POWER_FORM, lambda x: relax.op.power(x, const(3)), "float32"),
        (a.POWER_FORM, lambda x: relax.op.power(x, const(0.5)), "float32"),
        (a.POWER_FORM, lambda x: relax.op.power(relax.op.add(x, const(1)), const(-0.5)), "float32"),
        (a.POWER_FORM, lambda x: relax.op.power(relax.op.multiply(x, const(-1)), const(0.5)), "float32"),
        (a.POWER_FORM, lambda x: relax.op.power(x, const([[[2]]])), "float32"),
        (a.SQUARE_FORM, lambda x: relax.op.multiply(x, const(2)), "float32"),
        (a.DOUBLE_FORM, lambda x: relax.op.add(x, x), "int32"),
    ],
)
def test_other_forms_stay(rule: Rewrite, make, dtype: str):
    assert_stays(function(make, dtype=dtype), rule)


def test_constants_in_a_row_are_one():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.add(x, R.const(HALVES))
            c = R.add(b, R.const(0.5))
            d = R.multiply(c, R.const(3.0))
            y = R.multiply(d, R.const(HALVES))
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            c = R.add(x, R.const(HALVES + 0.5))
            y = R.multiply(c, R.const(HALVES * 3))
            R.output(y)
        return y

    assert_becomes(before, after, a.MERGE_CONSTANTS)


def test_constants_in_a_row_stay_where_others_read_between():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.add(x, R.const(C))
            c = R.add(b, R.const(0.5))
            y = R.multiply(b, c)
            R.output(y)
        return y

    assert_stays(func, a.MERGE_CONSTANTS)


def test_constants_whose_sum_would_be_larger_than_both_stay():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.add(x, R.const(C))
            y = R.add(b, R.const(values(2, 1)))
            R.output(y)
        return y

    assert_stays(func, a.MERGE_CONSTANTS)


def test_one_over_a_root_is_one_operator():
    @R.function
    def before(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.exp(x)
            c = R.sqrt(b)
            y = R.divide(R.const(1.0), c)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.exp(x)
            y = R.rsqrt(b)
            R.output(y)
        return y

    assert_becomes(before, after, a.RSQRT_FORM)


def test_two_over_a_root_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.sqrt(x)
            y = R.divide(R.const(2.0), b)
            R.output(y)
        return y

    assert_stays(func, a.RSQRT_FORM)


def test_one_over_a_root_that_is_compared_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.sqrt(x)
            c = R.divide(R.const(1.0), b)
            y = R.floor(c)
            R.output(y)
        return y

    assert_stays(func, a.RSQRT_FORM)


def test_a_sum_over_a_stack_is_a_chain_of_sums():
    """ONNX's Sum, as the importer writes it."""

    @R.function
    def before(
        x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32"), z: R.Tensor((2, 3), "float32")
    ):
        with R.dataflow():
            b = R.stack((x, y, z), axis=0)
            c = R.sum(b, axis=[0], keepdims=False)
            R.output(c)
        return c

    @R.function
    def after(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32"), z: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.add(x, y)
            c = R.add(b, z)
            R.output(c)
        return c

    assert_becomes(before, after, UNSTACK_REDUCTION)


def test_mean_and_max_over_a_stack_are_chains_too():
    @R.function
    def before(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.stack((x, y), axis=-1)
            c = R.mean(b, axis=[2], keepdims=False)
            d = R.max(b, axis=[-1], keepdims=False)
            e = R.concat((c, d), axis=0)
            R.output(e)
        return e

    @R.function
    def after(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.add(x, y)
            c = R.multiply(b, R.const(0.5))
            d = R.maximum(x, y)
            e = R.concat((c, d), axis=0)
            R.output(e)
        return e

    assert_becomes(before, after, UNSTACK_REDUCTION)


def of_stack(operator, count: int, dtype: str) -> relax.Function:
    """``operator`` over ``count`` times ``x``, stacked."""
    return function(lambda x: operator(relax.op.stack([x] * count, 0), 0), dtype=dtype)


@pytest.mark.parametrize(
    ("operator", "count", "dtype"),
    [
        (relax.op.sum, 3, "float16"),
        (relax.op.mean, 2, "float16"),
        (relax.op.mean, 2, "bfloat16"),
        (relax.op.max, 300, "float32"),
    ],
)
def test_long_chains_and_those_of_rounded_sums_stay(operator, count: int, dtype: str):
    assert_stays(of_stack(operator, count, dtype), UNSTACK_REDUCTION)


@pytest.mark.parametrize(("operator", "count"), [(relax.op.sum, 2), (relax.op.max, 3)])
def test_chains_of_float16_that_round_alike(operator, count: int):
    assert "stack" not in prepared(of_stack(operator, count, "float16"), UNSTACK_REDUCTION).script()


def test_a_sum_over_another_axis_of_a_stack_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.stack((x, y), axis=0)
            c = R.sum(b, axis=[1], keepdims=False)
            R.output(c)
        return c

    assert_stays(func, UNSTACK_REDUCTION)


def chained(operator, first: float, second: float, dtype: str = "float32") -> relax.Function:
    """``x`` with one constant, then with another, by the same operator."""
    return function(lambda x: operator(operator(x, const(first, dtype)), const(second, dtype)), dtype=dtype)


@pytest.mark.parametrize(
    ("operator", "first", "second", "dtype"),
    [
        (relax.op.add, 1e9, -1e9, "float32"),
        (relax.op.add, 12582912.0, -12582900.0, "float32"),
        (relax.op.add, 1e8, 1.0, "float32"),
        (relax.op.multiply, 1e30, 1e-30, "float32"),
        (relax.op.multiply, 1e-30, 1e30, "float32"),
        (relax.op.multiply, 3.0, 0.125, "float32"),
        (relax.op.multiply, 1024.0, 0.125, "float16"),
        (relax.op.multiply, 1e-25, 1e-25, "float32"),
        (relax.op.multiply, 2.0**-10, 2.0**-8, "float16"),
    ],
)
def test_constants_that_round_between_stay(operator, first: float, second: float, dtype: str):
    assert_stays(chained(operator, first, second, dtype), a.MERGE_CONSTANTS)


@pytest.mark.parametrize(
    ("operator", "first", "second", "merged"),
    [
        (relax.op.add, 0.5, 2.0, 2.5),
        (relax.op.add, -0.5, -2.0, -2.5),
        (relax.op.multiply, 0.125, 0.5, 0.0625),
        (relax.op.multiply, 2.0**40, 3.0, 3 * 2.0**40),
    ],
)
def test_constants_that_do_not_round_between_are_one(operator, first: float, second: float, merged: float):
    after = function(lambda x: operator(x, const(merged)))
    assert_becomes(chained(operator, first, second), after, a.MERGE_CONSTANTS)


@pytest.mark.parametrize(("second", "merges"), [(-1.0, True), (3.0, True), (-12582912.0, False)])
def test_a_product_takes_sums_of_constants_unless_they_cancel(second: float, merges: bool):
    def made(*summands: float) -> relax.Function:
        def body(x):
            total = relax.op.matmul(x, const(values(3, 4)))
            for summand in summands:
                total = relax.op.add(total, const(summand))
            return total

        return function(body)

    first = 12582912.0 if not merges else 4.0
    if merges:
        assert_becomes(made(first, second), made(first + second), a.MERGE_CONSTANTS)
    else:
        assert_stays(made(first, second), a.MERGE_CONSTANTS)
