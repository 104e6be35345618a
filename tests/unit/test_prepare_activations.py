"""GELU, SiLU, sigmoid and the hard ones are put together from their parts, however they were associated."""

from __future__ import annotations

from math import pi, sqrt

import pytest
from prepare_checks import assert_becomes, assert_stays, prepared
from test_prepare_arithmetic import const, function
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

from unity_collage.rewrites import Rewrite
from unity_collage.rewrites import activations as a
from unity_collage.rewrites.gelu import GELU_FORM

HALF, ONE, ROOT = const(0.5), const(1), const(sqrt(2))
GELU = function(op.nn.gelu)
GELU_TANH = function(op.nn.gelu_tanh)


def one_plus_erf(x: relax.Expr) -> relax.Expr:
    return op.add(op.erf(op.divide(x, ROOT)), ONE)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(op.multiply(x, one_plus_erf(x)), HALF),
        lambda x: op.multiply(op.multiply(x, HALF), one_plus_erf(x)),
        lambda x: op.multiply(one_plus_erf(x), op.multiply(HALF, x)),
        lambda x: op.multiply(x, op.multiply(one_plus_erf(x), HALF)),
        lambda x: op.divide(op.multiply(x, one_plus_erf(x)), const(2)),
        lambda x: op.multiply(x, op.add(op.multiply(op.erf(op.multiply(x, const(sqrt(0.5)))), HALF), HALF)),
    ],
)
def test_gelu_with_erf_in_any_order(make):
    assert_becomes(function(make), GELU, GELU_FORM)


INNER = sqrt(2 / pi)


@pytest.mark.parametrize(
    "inner",
    [
        lambda x: op.multiply(op.add(x, op.multiply(op.power(x, const(3)), const(0.044715))), const(INNER)),
        lambda x: op.multiply(
            op.multiply(x, const(INNER)),
            op.add(op.multiply(op.square(x), const(0.044715)), ONE),
        ),
        lambda x: op.add(
            op.multiply(const(INNER), x),
            op.multiply(const(0.044715 * INNER), op.multiply(op.multiply(x, x), x)),
        ),
    ],
)
def test_gelu_with_tanh_in_any_order(inner):
    def make(x: relax.Expr) -> relax.Expr:
        return op.multiply(op.multiply(x, HALF), op.add(op.tanh(inner(x)), ONE))

    assert_becomes(function(make), GELU_TANH, GELU_FORM)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(x, one_plus_erf(x)),
        lambda x: op.multiply(op.multiply(x, op.add(op.erf(op.divide(x, const(1.5))), ONE)), HALF),
        lambda x: op.multiply(op.multiply(x, op.add(op.erf(op.divide(x, ROOT)), const(1.01))), HALF),
        lambda x: op.multiply(op.multiply(x, op.add(op.tanh(op.divide(x, ROOT)), ONE)), HALF),
        lambda x: op.multiply(op.multiply(op.exp(x), one_plus_erf(x)), HALF),
    ],
)
def test_what_looks_like_gelu_stays(make):
    assert_stays(function(make), GELU_FORM)


def test_gelu_stays_apart_where_others_read_its_erf():
    @R.function
    def func(x: R.Tensor((2, 3), "float32")):
        with R.dataflow():
            b = R.divide(x, R.const(1.4142135))
            e = R.erf(b)
            c = R.add(e, R.const(1.0))
            d = R.multiply(x, c)
            f = R.multiply(d, R.const(0.5))
            y = R.add(f, e)
            R.output(y)
        return y

    assert_stays(func, GELU_FORM)


@pytest.mark.parametrize("rule", [GELU_FORM, a.HARD_SIGMOID_FORM, a.HARD_SWISH_FORM])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(op.multiply(x, one_plus_erf(x)), const([[[0.5]]])),
        lambda x: op.divide(op.clip(op.add(x, const(3)), 0.0, 6.0), const([[[6]]])),
        lambda x: op.divide(op.multiply(x, op.clip(op.add(x, const(3)), 0.0, 6.0)), const([[[6]]])),
    ],
)
def test_a_number_that_adds_an_axis_stays(make, rule: Rewrite):
    assert_stays(function(make), rule)


def test_a_summand_that_adds_an_axis_stays_in_a_hard_sigmoid():
    before = function(lambda x: op.divide(op.clip(op.add(x, const([[[3]]])), 0.0, 6.0), const(6)))
    assert_becomes(before, prepared(before, a.HARD_SIGMOID_FORM), a.HARD_SIGMOID_FORM)


def test_silu():
    silu = function(op.nn.silu)
    assert_becomes(function(lambda x: op.multiply(x, op.sigmoid(x))), silu, a.SILU_FORM)
    assert_becomes(function(lambda x: op.multiply(op.sigmoid(x), x)), silu, a.SILU_FORM)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(x, op.sigmoid(op.multiply(x, const(1.702)))),
        lambda x: op.multiply(op.exp(x), op.sigmoid(x)),
    ],
)
def test_what_looks_like_silu_stays(make):
    assert_stays(function(make), a.SILU_FORM)


@pytest.mark.parametrize("gated", [False, True])
def test_a_hard_sigmoid_that_is_rounded_stays(gated: bool):
    """``1 / 6`` is rounded, and x / 6 is not x times it: a floor may be another number."""

    def make(x: relax.Expr) -> relax.Expr:
        clipped = op.clip(op.add(x, const(3)), 0.0, 6.0)
        return op.floor(op.divide(op.multiply(x, clipped) if gated else clipped, const(6)))

    assert_stays(function(make), a.HARD_SWISH_FORM, a.HARD_SIGMOID_FORM)


def test_sigmoid_from_exp():
    before = function(lambda x: op.divide(ONE, op.add(op.exp(op.negative(x)), ONE)))
    assert_becomes(before, function(op.sigmoid), a.SIGMOID_FORM)


def test_what_looks_like_sigmoid_stays():
    assert_stays(function(lambda x: op.divide(ONE, op.add(op.exp(x), ONE))), a.SIGMOID_FORM)


def hard_sigmoid(x: relax.Expr) -> relax.Expr:
    return op.clip(op.add(op.multiply(x, const(1 / 6)), HALF), 0.0, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.divide(op.clip(op.add(x, const(3)), 0.0, 6.0), const(6)),
        lambda x: op.multiply(op.clip(op.add(x, const(3)), 0.0, 6.0), const(1 / 6)),
    ],
)
def test_hard_sigmoid(make):
    assert_becomes(function(make), function(hard_sigmoid), a.HARD_SIGMOID_FORM)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(x, op.divide(op.clip(op.add(x, const(3)), 0.0, 6.0), const(6))),
        lambda x: op.divide(op.multiply(x, op.clip(op.add(x, const(3)), 0.0, 6.0)), const(6)),
        lambda x: op.multiply(op.multiply(op.clip(op.add(x, const(3)), 0.0, 6.0), x), const(1 / 6)),
    ],
)
def test_hard_swish(make):
    after = function(lambda x: op.multiply(x, hard_sigmoid(x)))
    assert_becomes(function(make), after, a.HARD_SWISH_FORM, a.HARD_SIGMOID_FORM)


@pytest.mark.parametrize(
    "make",
    [
        hard_sigmoid,
        lambda x: op.divide(op.clip(op.add(x, const(3)), 0.0, 6.0), const(5)),
        lambda x: op.divide(op.clip(op.add(x, const(3)), -1.0, 6.0), const(6)),
        lambda x: op.divide(op.multiply(op.exp(x), op.clip(op.add(x, const(3)), 0.0, 6.0)), const(6)),
        lambda x: op.divide(op.clip(op.add(x, const(3)), 0.0, -6.0), const(-6)),
    ],
)
def test_what_looks_hard_stays(make):
    assert_stays(function(make), a.HARD_SWISH_FORM, a.HARD_SIGMOID_FORM)


@pytest.mark.parametrize("slopes", [[0.25], [0.25, 0.25, 0.25]])
def test_prelu_with_one_slope(slopes):
    """ONNX's importer writes the slope of all channels as one element, however many the axis has."""
    before = function(lambda x: op.nn.prelu(x, relax.const(slopes, "float32"), axis=1))
    assert_becomes(before, function(lambda x: op.nn.leakyrelu(x, 0.25)), a.ONE_SLOPE_FORM)


def test_prelu_with_a_slope_a_channel_stays():
    assert_stays(
        function(lambda x: op.nn.prelu(x, relax.const([0.25, 0.5, 0.25], "float32"), axis=1)),
        a.ONE_SLOPE_FORM,
    )


def test_prelu_with_slopes_that_are_not_known_stays():
    @R.function
    def func(x: R.Tensor((2, 3), "float32"), slopes: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.nn.prelu(x, slopes, axis=1)
            R.output(y)
        return y

    assert_stays(func, a.ONE_SLOPE_FORM)
