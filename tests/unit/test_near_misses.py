"""Near misses of activations, norms and arithmetic: a rule that found the beginning of its form says why it stopped."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from prepare_checks import near_misses, prepared, values
from test_prepare_arithmetic import const, function
from tvm import relax
from tvm.relax import op

from unity_collage.rewrites import DEFAULT_REWRITES, Rewrite
from unity_collage.rewrites import activations as a
from unity_collage.rewrites import arithmetic as r
from unity_collage.rewrites import clip as c
from unity_collage.rewrites import layer_norm as ln
from unity_collage.rewrites import reductions as red
from unity_collage.rewrites import rms_norm as rms
from unity_collage.rewrites.batch_norm import BATCH_NORM_FORM
from unity_collage.rewrites.gelu import GELU_FORM

ONE, HALF, EPSILON = const(1), const(0.5), const(1e-5)


def erf_of(x: relax.Expr, root: float = sqrt(2)) -> relax.Expr:
    return op.erf(op.divide(x, const(root)))


def gelu(x: relax.Expr, root: float = sqrt(2), one: float = 1.0, half: float = 0.5) -> relax.Expr:
    return op.multiply(op.multiply(x, op.add(erf_of(x, root), const(one))), const(half))


def tanh_gelu(x: relax.Expr, cubic: float) -> relax.Expr:
    inner = op.multiply(op.add(x, op.multiply(op.power(x, const(3)), const(cubic))), const(sqrt(2 / np.pi)))
    return op.multiply(op.multiply(x, op.add(op.tanh(inner), ONE)), HALF)


def hard(x: relax.Expr, low: float = 0.0, factor: float = 1 / 6) -> relax.Expr:
    return op.multiply(op.clip(op.add(x, const(3)), low, 6.0), const(factor))


def centred(x: relax.Expr, axis: int = -1) -> relax.Expr:
    return op.subtract(x, op.mean(x, axis, True))


def normed(x: relax.Expr, spread: relax.Expr, epsilon: relax.Expr = EPSILON) -> relax.Expr:
    return op.divide(centred(x), op.sqrt(op.add(spread, epsilon)))


def square_mean(x: relax.Expr, axis: int = -1, keepdims: bool = True) -> relax.Expr:
    return op.mean(op.square(x), axis, keepdims)


def rooted(x: relax.Expr, spread: relax.Expr) -> relax.Expr:
    return op.divide(x, op.sqrt(op.add(spread, EPSILON)))


def layer_norm(x: relax.Expr) -> relax.Expr:
    return op.nn.layer_norm(x, const(np.ones(3)), const(np.zeros(3)), [-1], 1e-5)


def softmax(x: relax.Expr, top: int = -1, axis: int | list[int] = -1, keepdims: bool = True) -> relax.Expr:
    power = op.exp(op.subtract(x, op.max(x, top, True)))
    return op.divide(power, op.sum(power, axis, keepdims))


def batch_norm(x: relax.Expr, training: bool) -> relax.Expr:
    vectors = [const(values(3)) for _ in range(4)]
    return relax.TupleGetItem(op.nn.batch_norm(x, *vectors, axis=1, training=training), 0)


ACTIVATIONS = [
    (GELU_FORM, lambda x: gelu(x, half=0.4999), "the factor behind erf is 0.4999, not 0.5"),
    (
        GELU_FORM,
        lambda x: op.multiply(x, op.add(erf_of(x), ONE)),
        "there is no factor behind erf, and 0.5 is needed",
    ),
    (GELU_FORM, lambda x: gelu(x, one=1.01), "1.01 is added to 1 * erf, not 1"),
    (GELU_FORM, lambda x: gelu(x, one=0.0), "erf) is not in a sum with a number other than 0"),
    (GELU_FORM, lambda x: gelu(x, root=1.5), "erf is applied to 0.666667 x, not to 0.707107 x"),
    (
        GELU_FORM,
        lambda x: tanh_gelu(x, 0.05),
        "tanh is applied to 0.0398942 x^3 + 0.797885 x, not to 0.0356774 x^3",
    ),
    (
        GELU_FORM,
        lambda x: op.multiply(op.multiply(op.exp(x), op.add(erf_of(x), ONE)), HALF),
        "(divide), not to a polynomial of",
    ),
    (GELU_FORM, lambda x: op.add(gelu(x), erf_of(x)), "(erf) is read 2 times, and must have no other reader"),
    (
        GELU_FORM,
        lambda x: op.multiply(op.multiply(op.multiply(op.exp(x), x), op.add(erf_of(x), ONE)), HALF),
        "(erf) is in a product of 3 tensors, not of two",
    ),
    (
        a.SILU_FORM,
        lambda x: op.multiply(x, op.sigmoid(op.multiply(x, const(1.702)))),
        "sigmoid is applied to 1.702 x",
    ),
    (
        a.SILU_FORM,
        lambda x: op.add(op.multiply(x, op.sigmoid(x)), op.sigmoid(x)),
        "(sigmoid) is read 2 times",
    ),
    (
        a.SIGMOID_FORM,
        lambda x: op.divide(ONE, op.add(op.exp(x), ONE)),
        "exp is applied to x, not to a negative",
    ),
    (
        a.SIGMOID_FORM,
        lambda x: op.divide(x, op.add(op.exp(op.negative(x)), ONE)),
        "the numerator is x, not the number",
    ),
    (
        a.SIGMOID_FORM,
        lambda x: op.divide(ONE, op.add(op.exp(op.negative(x)), HALF)),
        "exp is added to 0.5, not to",
    ),
    (a.HARD_SIGMOID_FORM, lambda x: hard(x, factor=0.2), "the factor behind clip is 0.2, not 0.166667"),
    (a.HARD_SIGMOID_FORM, lambda x: hard(x, low=-1.0), "the lower bound of clip is -1, not 0"),
    (
        a.HARD_SIGMOID_FORM,
        lambda x: op.add(hard(x), op.clip(op.add(x, const(3)), 0.0, 6.0)),
        "(clip) is read 2 times",
    ),
    (a.HARD_SWISH_FORM, lambda x: op.multiply(x, hard(x, factor=0.2)), "the factor behind clip is 0.2"),
    (a.HARD_SWISH_FORM, lambda x: op.multiply(op.exp(x), hard(x)), "clip is applied to"),
    (
        a.ONE_SLOPE_FORM,
        lambda x: op.nn.prelu(x, const([0.25, 0.5, 0.25]), 1),
        "are from 0.25 to 0.5, not one number",
    ),
    (
        a.ONE_SLOPE_FORM,
        lambda x: op.nn.prelu(x, op.sum(x, 0), 1),
        "the slopes of prelu are lv (sum), not constants",
    ),
]
NORMS = [
    (
        ln.LAYER_NORM_FORM,
        lambda x: op.divide(centred(x), op.sqrt(square_mean(centred(x)))),
        "not of a variance and",
    ),
    (
        ln.LAYER_NORM_FORM,
        lambda x: normed(x, square_mean(centred(x), 0)),
        "the mean is over the axes [1], and the var",
    ),
    (ln.LAYER_NORM_FORM, lambda x: normed(x, square_mean(x)), "not of the square of"),
    (ln.LAYER_NORM_FORM, lambda x: normed(x, op.variance(op.exp(x), -1, True)), "the variance is of"),
    (
        ln.LAYER_NORM_FORM,
        lambda x: normed(x, op.max(x, -1, True)),
        "(max) is under the root, not a variance or a mean",
    ),
    (
        ln.LAYER_NORM_FORM,
        lambda x: normed(x, square_mean(centred(x)), const(values(3))),
        "is added to the variance",
    ),
    (
        ln.LAYER_NORM_FORM,
        lambda x: op.divide(centred(x, 0), op.sqrt(op.add(op.variance(x, 0, True), EPSILON))),
        "the mean is over the axes [0] of 2, which are not the last ones",
    ),
    (
        ln.LAYER_NORM_FORM,
        lambda x: op.add(
            normed(x, op.variance(x, -1, True)), op.sqrt(op.add(op.variance(x, -1, True), EPSILON))
        ),
        "(sqrt) is read 2 times",
    ),
    (
        ln.SCALE_INTO_LAYER_NORM,
        lambda x: op.multiply(layer_norm(x), const(values(2, 1))),
        "has the shape (2, 1), not",
    ),
    (
        ln.SHIFT_INTO_LAYER_NORM,
        lambda x: op.add(layer_norm(x), const(values(2, 3))),
        "has the shape (2, 3), not (3)",
    ),
    (
        ln.SHIFT_INTO_LAYER_NORM,
        lambda x: op.multiply(op.add(layer_norm(x), const(values(3))), layer_norm(x)),
        "(nn.layer_norm) is read 2 times",
    ),
    (
        rms.RMS_NORM_FORM,
        lambda x: rooted(x, op.sum(op.square(x), -1, True)),
        "by the sum of its squares, not by their",
    ),
    (rms.RMS_NORM_FORM, lambda x: rooted(x, square_mean(op.exp(x))), "the mean square is of"),
    (rms.RMS_NORM_FORM, lambda x: rooted(x, square_mean(x, 0)), "are not the last ones"),
    (
        rms.RMS_NORM_FORM,
        lambda x: op.add(rooted(x, square_mean(x)), op.square(x)),
        "(square) is read 2 times",
    ),
    (
        rms.SCALE_INTO_RMS_NORM,
        lambda x: op.multiply(op.nn.rms_norm(x, const(np.ones(3)), [-1], 1e-5), const(values(2, 1))),
        "the factor behind rms_norm has the shape (2, 1), not (3)",
    ),
    (BATCH_NORM_FORM, lambda x: batch_norm(x, training=True), "it is in training mode"),
    (
        red.SOFTMAX_FORM,
        lambda x: softmax(x, top=0),
        "max is over the axes [0], and sum over [1]; both must be kept",
    ),
    (red.SOFTMAX_FORM, lambda x: softmax(x, axis=[0, 1]), "sum is over the axes [0, 1]"),
    (
        red.SOFTMAX_FORM,
        lambda x: op.divide(op.exp(x), op.sum(op.exp(x), -1, True)),
        "not of a tensor less its own max",
    ),
    (red.SOFTMAX_FORM, lambda x: op.divide(op.exp(x), op.sum(op.exp(op.tanh(x)), -1, True)), "sum is of"),
    (
        red.LOG_SOFTMAX_FORM,
        lambda x: op.add(op.log(op.nn.softmax(x)), op.nn.softmax(x)),
        "(nn.softmax) is read 2 times",
    ),
]
ARITHMETIC = [
    (c.CLIP_FORM, lambda x: op.maximum(x, const(values(3))), "the bound of maximum has 3 elements, not one"),
    (c.CLIP_FORM, lambda x: op.minimum(x, const([np.nan])), "the bound of minimum is not a number"),
    (c.CLIP_FORM, lambda x: op.maximum(x, const(np.ones((1, 1, 1)))), "has 3 axes, more than the tensor"),
    (
        c.MERGE_CLIPS,
        lambda x: op.clip(op.clip(x, 0.0, 1.0), 2.0, 3.0),
        "the ranges 0 to 1 and 2 to 3 of two clips",
    ),
    (r.DIVIDE_EXACTLY, lambda x: op.divide(x, const(3)), "divides by 3, not by powers of two alone"),
    (
        r.MERGE_CONSTANTS,
        lambda x: op.add(op.add(x, const(values(2, 1))), const(values(3))),
        "one of 6 elements",
    ),
    (r.POWER_FORM, lambda x: op.power(x, const(3)), "the exponent of power is 3, not 2, 0.5 or -0.5"),
    (r.RSQRT_FORM, lambda x: op.divide(const(2), op.sqrt(x)), "2 is divided by sqrt, not 1"),
]


@pytest.mark.parametrize(("rule", "make", "reason"), [*ACTIVATIONS, *NORMS, *ARITHMETIC])
def test_a_near_miss_has_a_reason(rule: Rewrite, make, reason: str):
    (miss,) = near_misses(prepared(function(make)), rule)  # equal values are one before the rule is asked
    assert miss.rule == rule.name and reason in miss.reason


ABSENT = [
    lambda x: op.multiply(x, op.add(op.exp(x), ONE)),
    lambda x: op.multiply(x, op.tanh(op.exp(x))),
    lambda x: op.multiply(op.tanh(x), op.sigmoid(op.exp(x))),
    lambda x: op.multiply(x, op.clip(op.add(op.multiply(x, const(0.2)), HALF), 0.0, 1.0)),
    lambda x: op.multiply(op.maximum(x, const(0.1)), HALF),
    lambda x: op.divide(op.exp(x), op.sum(x, -1, True)),
    lambda x: op.divide(centred(x), op.add(op.tanh(x), const(2))),
    lambda x: op.divide(x, op.sqrt(op.sum(x, -1, True))),
    lambda x: op.add(layer_norm(x), op.exp(x)),
    lambda x: op.add(op.matmul(x, const(values(3, 3))), const(values(3))),
    lambda x: op.nn.softmax(op.matmul(x, const(values(3, 3)))),
    lambda x: op.nn.gelu(x),
    lambda x: op.power(op.exp(x), x),
]


@pytest.mark.parametrize("make", ABSENT)
def test_nothing_is_said_where_there_is_no_form(make):
    assert near_misses(function(make), *DEFAULT_REWRITES) == ()


@pytest.mark.parametrize(
    "make",
    [gelu, hard, softmax, lambda x: normed(x, square_mean(centred(x))), lambda x: rooted(x, square_mean(x))],
)
def test_nothing_is_said_of_a_form_that_was_recognised(make):
    assert near_misses(function(make), *DEFAULT_REWRITES) == ()
