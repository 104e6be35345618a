"""Layer norm is put together from its parts, and takes the factor and summand behind it."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, prepared, values
from test_prepare_arithmetic import const, function
from tvm import relax, tirx
from tvm.relax import op
from tvm.script import relax as R

from unity_collage.rewrites import DEFAULT_REWRITES
from unity_collage.rewrites import layer_norm as n

ONES, ZEROS = np.ones(3, "float32"), np.zeros(3, "float32")
G, B = values(3), values(3) / 3
EPSILON = const(1e-5)


def plain(x: relax.Expr, gamma: np.ndarray = ONES, beta: np.ndarray = ZEROS) -> relax.Expr:
    return op.nn.layer_norm(x, const(gamma), const(beta), [-1], float(np.float32(1e-5)))


def centred(x: relax.Expr, axis: int = -1) -> relax.Expr:
    return op.subtract(x, op.mean(x, axis, True))


def variance(x: relax.Expr, axis: int = -1) -> relax.Expr:
    return op.mean(op.square(centred(x)), axis, True)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.divide(centred(x), op.sqrt(op.add(variance(x), EPSILON))),
        lambda x: op.multiply(centred(x), op.rsqrt(op.add(variance(x), EPSILON))),
        lambda x: op.multiply(op.rsqrt(op.add(variance(x), EPSILON)), centred(x)),
        lambda x: op.divide(centred(x), op.sqrt(op.add(op.variance(x, -1, True), EPSILON))),
    ],
)
def test_layer_norm_from_its_parts(make):
    shared = prepared(function(make))
    assert_becomes(shared, function(plain), n.LAYER_NORM_FORM)


def test_other_axes_may_be_of_any_size():
    def free(make) -> relax.Function:
        return function(make, (tirx.Var("length", "int64"), 3))

    def make(x: relax.Expr) -> relax.Expr:
        return op.divide(centred(x), op.sqrt(op.add(op.variance(x, -1, True), EPSILON)))

    assert_becomes(prepared(free(make)), free(plain), n.LAYER_NORM_FORM)


def test_layer_norm_as_torch_exports_it():
    """With a power for the square and the parameters behind."""

    def before(x: relax.Expr) -> relax.Expr:
        spread = op.mean(op.power(centred(x), const(2)), [-1], True)
        normal = op.divide(centred(x), op.sqrt(op.add(spread, EPSILON)))
        return op.add(op.multiply(normal, const(G)), const(B))

    assert_becomes(function(before), function(lambda x: plain(x, G, B)), *DEFAULT_REWRITES)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.divide(centred(x), op.sqrt(variance(x))),
        lambda x: op.divide(centred(x), op.sqrt(op.add(variance(x, 0), EPSILON))),
        lambda x: op.divide(centred(x, 0), op.sqrt(op.add(op.variance(x, 0, True), EPSILON))),
        lambda x: op.multiply(centred(x), op.sqrt(op.add(variance(x), EPSILON))),
        lambda x: op.divide(x, op.sqrt(op.add(variance(x), EPSILON))),
        lambda x: op.divide(centred(x), op.sqrt(op.add(variance(x), const([[[1e-5]]])))),
    ],
)
def test_what_looks_like_layer_norm_stays(make):
    assert_stays(prepared(function(make)), n.LAYER_NORM_FORM)


def test_the_variance_is_not_computed_twice_for_those_who_read_it():
    def make(x: relax.Expr) -> relax.Expr:
        spread = op.add(variance(x), EPSILON)
        return op.add(op.divide(centred(x), op.sqrt(spread)), spread)

    assert_stays(prepared(function(make)), n.LAYER_NORM_FORM)


def test_factor_and_summand_go_into_the_norm():
    before = function(lambda x: op.add(op.multiply(plain(x, G, B), const(B)), const(G)))
    after = prepared(before, *DEFAULT_REWRITES)
    assert [binding.value.op.name for binding in after["main"].body.blocks[0].bindings] == [
        "relax.nn.layer_norm"
    ]
    assert_becomes(before, after, *DEFAULT_REWRITES)


def test_parameters_that_are_inputs_go_into_a_plain_norm():
    @R.function
    def before(x: R.Tensor((2, 3), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.nn.layer_norm(x, R.const(ONES), R.const(ZEROS), axes=[-1])
            c = R.multiply(a, g)
            y = R.add(c, b)
            R.output(y)
        return y

    @R.function
    def after(x: R.Tensor((2, 3), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.nn.layer_norm(x, g, b, axes=[-1])
            R.output(y)
        return y

    assert_becomes(before, after, n.SCALE_INTO_LAYER_NORM, n.SHIFT_INTO_LAYER_NORM)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(plain(x), x),
        lambda x: op.multiply(plain(x), const(values(2, 1))),
        lambda x: op.add(plain(x), x),
        lambda x: op.add(plain(x), const(values(2, 3))),
        lambda x: op.multiply(plain(x), const(G.reshape(1, 1, 3))),
        lambda x: op.add(plain(x), const(G.reshape(1, 1, 3))),
    ],
)
def test_what_varies_from_row_to_row_stays_behind_the_norm(make):
    assert_stays(function(make), n.SCALE_INTO_LAYER_NORM, n.SHIFT_INTO_LAYER_NORM)


@pytest.mark.parametrize("operator", [op.multiply, op.add])
@pytest.mark.parametrize("axes", [[0], [1, 0]])
def test_parameters_of_other_axes_do_not_take_a_constant(operator, axes: list[int]):
    """The constant behind it varies along the last axis, and ``gamma`` along the first, which is as long."""
    size = [3] * len(axes)
    one, zero = np.ones(size, "float32"), np.zeros(size, "float32")

    def make(x: relax.Expr) -> relax.Expr:
        return operator(op.nn.layer_norm(x, const(one), const(zero), axes), const(values(*size)))

    assert_stays(function(make, (3, 3)), n.SCALE_INTO_LAYER_NORM, n.SHIFT_INTO_LAYER_NORM)
