"""RMS norm is put together from its parts, and takes the factor behind it."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, near_misses, prepared, values
from test_prepare_arithmetic import const, function
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.rewrites import DEFAULT_REWRITES
from unity_collage.rewrites import rms_norm as n

ONES, G = np.ones(3, "float32"), values(3)
EPSILON = const(1e-5)


def plain(x: relax.Expr, gamma: np.ndarray = ONES) -> relax.Expr:
    return op.nn.rms_norm(x, const(gamma), [-1], float(np.float32(1e-5)))


def size(x: relax.Expr, axis: int = -1) -> relax.Expr:
    return op.add(op.mean(op.square(x), axis, True), EPSILON)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.divide(x, op.sqrt(size(x))),
        lambda x: op.multiply(x, op.rsqrt(size(x))),
        lambda x: op.multiply(op.rsqrt(size(x)), x),
    ],
)
def test_rms_norm_from_its_parts(make):
    assert_becomes(function(make), function(plain), n.RMS_NORM_FORM)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(x, op.rsqrt(size(x, 0))),
        lambda x: op.multiply(op.exp(x), op.rsqrt(size(x))),
        lambda x: op.divide(x, op.rsqrt(size(x))),
        lambda x: op.multiply(x, op.rsqrt(op.add(op.mean(op.square(x)), EPSILON))),
        lambda x: op.multiply(x, op.rsqrt(op.add(op.mean(op.square(x), -1, True), const([[[1e-5]]])))),
    ],
    ids=["leading axis", "another tensor", "times the root", "no axis kept", "epsilon of more axes"],
)
def test_what_is_no_rms_norm_stays(make):
    assert_stays(function(make), n.RMS_NORM_FORM)


def test_a_factor_goes_into_the_norm_and_one_that_varies_otherwise_stays():
    before = function(lambda x: op.multiply(plain(x), const(G.reshape(1, 3))))
    assert_becomes(before, function(lambda x: plain(x, G)), n.SCALE_INTO_RMS_NORM)
    assert_stays(function(lambda x: op.multiply(plain(x), const(values(2, 1)))), n.SCALE_INTO_RMS_NORM)


def test_a_factor_of_other_or_more_axes_stays():
    def first(x: relax.Expr) -> relax.Expr:
        return op.multiply(op.nn.rms_norm(x, const(ONES), [0]), const(G))

    assert_stays(function(first, (3, 3)), n.SCALE_INTO_RMS_NORM)
    assert_stays(function(lambda x: op.multiply(plain(x), const(G.reshape(1, 1, 3)))), n.SCALE_INTO_RMS_NORM)


def test_rms_norm_as_torch_exports_it():
    def before(x: relax.Expr) -> relax.Expr:
        mean = op.mean(op.power(x, const(2.0)), -1, True)
        root = op.divide(const(1.0), op.sqrt(op.add(mean, EPSILON)))
        return op.multiply(const(G), op.multiply(x, root))

    assert_becomes(
        function(before), prepared(function(lambda x: plain(x, G)), *DEFAULT_REWRITES), *DEFAULT_REWRITES
    )


def test_other_axes_may_be_of_any_size():
    def free(make) -> relax.Function:
        return function(make, (tirx.Var("length", "int64"), 3))

    assert_becomes(free(lambda x: op.divide(x, op.sqrt(size(x)))), free(plain), n.RMS_NORM_FORM)
    before = function(lambda x: op.divide(x, op.sqrt(size(x))), (2, tirx.Var("width", "int64")))
    (miss,) = near_misses(before, n.RMS_NORM_FORM)
    assert miss.reason == "the sizes of the axes [1] are not known"
