"""The factor of an attention has one place, and its query, key and value a product each."""

from __future__ import annotations

import numpy as np
import pytest
from prepare_checks import assert_becomes, assert_stays, near_misses, prepared, values
from test_prepare_arithmetic import const, function
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

from unity_collage.rewrites import DEFAULT_REWRITES
from unity_collage.rewrites import attention as a
from unity_collage.rewrites.split import SPLIT_INTO_WEIGHTS

ROWS, WIDTH, HEADS = 5, 8, 2
W = values(WIDTH, WIDTH)
B = values(WIDTH)
SCALE = 0.3


def heads(x: relax.Expr, w: np.ndarray = W, b: np.ndarray = B) -> relax.Expr:
    """``x @ w + b``, head by head: (rows, width) -> (heads, rows, width / heads)."""
    made = op.add(op.matmul(x, const(w)), const(b))
    return op.permute_dims(op.reshape(made, (ROWS, HEADS, WIDTH // HEADS)), [1, 0, 2])


def transposed(x: relax.Expr) -> relax.Expr:
    return op.permute_dims(x, [0, 2, 1])


def rows(make) -> relax.Function:
    return function(make, (ROWS, WIDTH))


@pytest.mark.parametrize(
    "before",
    [
        lambda x: op.multiply(heads(x), const(SCALE)),
        lambda x: op.divide(heads(x), const(1 / SCALE)),
    ],
)
def test_a_factor_goes_through_views_into_weights_and_bias(before):
    assert_becomes(rows(before), rows(lambda x: heads(x, W * np.float32(SCALE), B * SCALE)), a.ABSORB_FACTOR)


def test_a_factor_goes_through_the_product_into_the_query():
    before = rows(lambda x: op.multiply(op.matmul(heads(x), transposed(heads(x, W.T, B))), const(SCALE)))
    after = prepared(before, a.ABSORB_FACTOR)
    assert "multiply" not in after.script()
    assert_becomes(before, after, a.ABSORB_FACTOR)


@R.function
def scaled_query(q: R.Tensor((2, 5, 4), "float32"), k: R.Tensor((2, 5, 4), "float32")):
    with R.dataflow():
        b = R.multiply(q, R.const(0.3))
        c = R.permute_dims(k, axes=[0, 2, 1])
        y = R.matmul(b, c)
        R.output(y)
    return y


@R.function
def scaled_key(q: R.Tensor((2, 5, 4), "float32"), k: R.Tensor((2, 5, 4), "float32")):
    with R.dataflow():
        b = R.multiply(k, R.const(0.3))
        c = R.permute_dims(b, axes=[0, 2, 1])
        y = R.matmul(q, c)
        R.output(y)
    return y


@R.function
def divided_product(q: R.Tensor((2, 5, 4), "float32"), k: R.Tensor((2, 5, 4), "float32")):
    with R.dataflow():
        c = R.permute_dims(k, axes=[0, 2, 1])
        b = R.matmul(q, c)
        y = R.divide(b, R.const(np.float32(1) / np.float32(0.3)))
        R.output(y)
    return y


@R.function
def scaled_product(q: R.Tensor((2, 5, 4), "float32"), k: R.Tensor((2, 5, 4), "float32")):
    with R.dataflow():
        c = R.permute_dims(k, axes=[0, 2, 1])
        b = R.matmul(q, c)
        y = R.multiply(b, R.const(0.3))
        R.output(y)
    return y


@pytest.mark.parametrize("before", [scaled_query, scaled_key, divided_product])
def test_without_weights_the_factor_is_on_the_product(before):
    assert_becomes(before, scaled_product, a.ABSORB_FACTOR, a.FACTOR_AFTER_PRODUCT, a.PRODUCT_DIVIDED)


def scaled_before(dtype: str, factor: float, made: str) -> relax.Function:
    """``(x * factor) @ x'`` with a product of the type ``made``."""

    def make(x: relax.Expr) -> relax.Expr:
        query = op.multiply(x, const(factor, dtype))
        return op.matmul(query, op.permute_dims(x, [1, 0]), made)

    return function(make, (ROWS, WIDTH), dtype)


def test_a_factor_that_keeps_a_product_of_float16_small_stays_before_it():
    assert_stays(scaled_before("float16", 0.125, "float16"), a.FACTOR_AFTER_PRODUCT)
    (missed,) = near_misses(scaled_before("float16", 0.125, "float16"), a.FACTOR_AFTER_PRODUCT)
    assert "may overflow in float16" in missed.reason


@pytest.mark.parametrize(
    ("dtype", "factor", "made"),
    [("float16", 2, "float16"), ("float16", 0.125, "float32"), ("bfloat16", 0.125, "bfloat16")],
)
def test_other_factors_of_narrow_types_go_behind_the_product(dtype: str, factor: float, made: str):
    result = prepared(scaled_before(dtype, factor, made), a.FACTOR_AFTER_PRODUCT)
    names = [binding.value.op.name for binding in result["main"].body.blocks[0].bindings]
    assert names[-2:] == ["relax.matmul", "relax.multiply"]


def test_the_factor_stays_where_others_read_what_it_multiplies():
    @R.function
    def func(x: R.Tensor((5, 8), "float32")):
        with R.dataflow():
            b = R.matmul(x, R.const(W))
            c = R.reshape(b, R.shape([8, 5]))
            d = R.multiply(c, R.const(0.3))
            e = R.matmul(d, b)
            y = R.matmul(e, d)
            R.output(y)
        return y

    assert_stays(func, a.ABSORB_FACTOR, a.FACTOR_AFTER_PRODUCT)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.multiply(op.nn.softmax(op.matmul(x, const(W))), const(SCALE)),
        lambda x: op.multiply(heads(x), const(values(4))),
        lambda x: op.matmul(op.multiply(x, const(B)), const(W)),
        lambda x: op.divide(op.nn.relu(x), const(3)),
    ],
)
def test_other_factors_stay(make):
    assert_stays(rows(make), a.ABSORB_FACTOR, a.FACTOR_AFTER_PRODUCT, a.PRODUCT_DIVIDED)


SMALL = np.full((WIDTH, WIDTH), 0.002, "float16")
LARGE = np.full(WIDTH, 60000, "float16")


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda x: op.multiply(op.matmul(x, const(SMALL, "float16")), const(1e-5, "float16")), "float16"),
        (lambda x: op.multiply(op.matmul(x, const(W)), const([np.inf])), "float32"),
        (lambda x: op.divide(op.matmul(x, const(W)), const([np.inf])), "float32"),
        (lambda x: op.divide(op.matmul(x, const(W)), const(1e-40)), "float32"),
        (
            lambda x: op.multiply(
                op.add(op.matmul(x, const(W, "float16")), const(LARGE, "float16")), const(2, "float16")
            ),
            "float16",
        ),
        (lambda x: op.divide(op.matmul(x, op.permute_dims(x, [1, 0])), const(1e-40)), "float32"),
        (lambda x: op.divide(op.matmul(x, op.permute_dims(x, [1, 0])), const(2e4, "float16")), "float16"),
        (lambda x: op.matmul(op.divide(x, const(1e-40)), op.permute_dims(x, [1, 0])), "float32"),
    ],
)
def test_a_factor_stays_where_a_constant_would_leave_its_type(make, dtype: str):
    func = function(make, (ROWS, WIDTH), dtype)
    assert_stays(func, a.ABSORB_FACTOR, a.FACTOR_AFTER_PRODUCT, a.PRODUCT_DIVIDED)


WIDE = values(WIDTH, 3 * WIDTH)
WIDE_B = values(3 * WIDTH)


def taken_apart(x: relax.Expr) -> relax.Expr:
    """(rows, 3 * width) -> three of (1, heads, rows, size), as exporters of vision transformers write it."""
    made = op.add(op.matmul(x, const(WIDE)), const(WIDE_B))
    moved = op.permute_dims(op.reshape(made, (ROWS, 3, HEADS, WIDTH // HEADS)), [1, 2, 0, 3])
    return op.split(moved, [1, 2], 0)


def parts_used(make, *indices: int) -> relax.Function:
    """The sum of some parts of ``make(x)``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((ROWS, WIDTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(make(x))
            total = builder.emit(op.nn.relu(builder.emit(relax.TupleGetItem(parts, indices[0]))))
            for index in indices[1:]:
                total = builder.emit(op.add(total, builder.emit(relax.TupleGetItem(parts, index))))
            y = builder.emit_output(op.nn.relu(total))
        builder.emit_func_output(y)
    return builder.get()["main"]


def test_query_key_and_value_get_a_product_each():
    before = parts_used(taken_apart, 0, 1, 2)
    after = prepared(before, SPLIT_INTO_WEIGHTS)
    text = after.script()
    assert text.count("R.matmul") == 3 and "split" not in text
    assert_becomes(before, after, SPLIT_INTO_WEIGHTS)


def test_what_is_left_of_a_vision_transformer_is_what_bert_has():
    """One reshape and one permutation, whatever the unit axes did in between."""

    def make(x: relax.Expr) -> relax.Expr:
        made = op.reshape(op.matmul(x, const(WIDE)), (1, ROWS, 3, HEADS, WIDTH // HEADS))
        return op.split(op.permute_dims(made, [2, 0, 3, 1, 4]), 3, 0)

    after = prepared(parts_used(make, 1), *DEFAULT_REWRITES)
    calls = [binding.value for binding in after["main"].body.blocks[0].bindings]
    assert [call.op.name for call in calls[:3]] == ["relax.matmul", "relax.reshape", "relax.permute_dims"]
    assert list(calls[1].ty.shape.values) == [1, 1, ROWS, HEADS, WIDTH // HEADS]
    assert list(calls[2].attrs.axes) == [0, 1, 3, 2, 4]


def test_parts_of_unequal_width_and_columns_that_are_not_next_to_each_other():
    def make(x: relax.Expr) -> relax.Expr:
        made = op.reshape(op.matmul(x, const(WIDE)), (ROWS, 2, 3 * HEADS, 2))
        return op.split(made, [1, 4], 2)

    before = parts_used(make, 2)
    after = prepared(before, SPLIT_INTO_WEIGHTS)
    assert "split" not in after.script()
    assert_becomes(before, after, SPLIT_INTO_WEIGHTS)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: op.split(op.matmul(x, const(WIDE)), 5, 0),
        lambda x: op.split(op.nn.softmax(op.matmul(x, const(WIDE))), 3, 1),
        lambda x: op.split(op.reshape(op.matmul(x, const(WIDE)), (3, ROWS * WIDTH)), 3, 0),
        lambda x: op.split(op.matmul(op.reshape(x, (1, ROWS * WIDTH)), const(values(ROWS * WIDTH, 6))), 3, 1),
    ],
)
def test_other_splits_stay(make):
    assert_stays(parts_used(make, 1), SPLIT_INTO_WEIGHTS)


def scaled_behind(factor: float) -> relax.Function:
    """``((x @ w) @ x') * factor`` in float16."""

    def make(x: relax.Expr) -> relax.Expr:
        query = op.matmul(x, const(W, "float16"))
        return op.multiply(op.matmul(query, op.permute_dims(x, [1, 0])), const(factor, "float16"))

    return function(make, (ROWS, WIDTH), "float16")


def test_a_factor_that_makes_an_operand_of_float16_larger_stays_behind_the_product():
    assert "multiply" not in prepared(scaled_behind(0.125), a.ABSORB_FACTOR).script()
    assert_stays(scaled_behind(8), a.ABSORB_FACTOR)
    (missed,) = near_misses(scaled_behind(8), a.ABSORB_FACTOR)
    assert "may overflow in float16" in missed.reason


def test_a_factor_of_integers_stays_before_a_product_of_floats():
    def make(x: relax.Expr) -> relax.Expr:
        return op.matmul(op.divide(x, const(2, "int8")), op.permute_dims(x, [1, 0]), "float32")

    assert_stays(function(make, (ROWS, WIDTH), "int8"), a.FACTOR_AFTER_PRODUCT)
