"""The inputs of checks: signs, indexes that are computed inside, and integers that show what a kernel rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_calls import op
from tvm import relax

from unity_collage import reference
from unity_collage.annotations import LIFTED
from unity_collage.measure.inputs import edge_inputs, random_inputs
from unity_collage.measure.judge import trials

Body = Callable[..., relax.Expr]
FLOAT = ((64,), "float32")
NUMBER = relax.const(0.5, "float32")


def typed(body: Body, *types: tuple[tuple[int, ...], str]) -> relax.Function:
    """``body`` of parameters of these shapes and types."""
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()["main"].with_attr(LIFTED, 0)


def signs(func: relax.Function) -> list[bool]:
    """For each parameter whether it is positive in all inputs."""
    pairs = zip(random_inputs(func), edge_inputs(func), strict=True)
    return [bool((one > 0).all() and (other > 0).all()) for one, other in pairs]


def bound(value: relax.Expr) -> Any:
    builder: Any = relax.BlockBuilder.current()
    return builder.emit(value)


def squared(x: relax.Expr) -> relax.Expr:
    x = bound(x)
    return op.multiply(x, x)


def whitened(x: relax.Expr) -> relax.Expr:
    """A norm of rows that is written in parts."""
    apart = bound(op.subtract(x, op.mean(x, -1, True)))
    return op.divide(apart, op.sqrt(op.add(op.mean(squared(apart), -1, True), NUMBER)))


@pytest.mark.parametrize(
    ("body", "positive"),
    [
        (lambda x, y: op.add(op.sqrt(x), op.nn.relu(y)), [True, False]),
        (lambda x, y: op.sqrt(op.add(op.multiply(x, x), op.exp(y))), [False, False]),
        (lambda x, y: op.add(whitened(x), y), [False, False]),
        (lambda x, y: op.rsqrt(op.add(op.abs(op.subtract(x, y)), NUMBER)), [False, False]),
        (lambda x, y: op.log(op.multiply(x, y)), [True, True]),
        (lambda x, y: op.add(op.log(op.abs(x)), y), [True, False]),
        (lambda x, y: op.log(op.maximum(op.add(x, y), NUMBER)), [False, False]),
        (lambda x, y: op.add(op.sqrt(op.clip(x, 0, 6)), op.log(op.clip(y, 0, 6))), [False, True]),
        (lambda x, y: op.power(x, y), [True, False]),
        (lambda x, y: op.add(op.power(x, relax.const(3.0)), op.power(y, NUMBER)), [False, True]),
        (lambda x, y: op.sqrt(op.add(op.power(x, relax.const(2.0)), y)), [False, True]),
        (lambda x, y: op.sqrt(op.power(op.add(x, y), relax.const(3.0))), [True, True]),
        (lambda x, y: op.add(op.power(x, relax.const(-2.0)), op.sigmoid(y)), [True, False]),
    ],
)
def test_only_what_a_root_or_a_logarithm_reads_is_positive(body: Body, positive: list[bool]) -> None:
    assert signs(typed(body, FLOAT, FLOAT)) == positive


def test_a_variance_is_positive() -> None:
    def body(x: relax.Expr, *four: relax.Expr) -> relax.Expr:
        return bound(op.nn.batch_norm(x, *four, axis=1))[0]

    types = [((2, 16, 4), "float32"), *[((16,), "float32")] * 4]
    assert signs(typed(body, *types)) == [False, False, False, False, True]


def test_positive_weights_of_deep_functions_keep_the_size_of_values() -> None:
    def body(x: relax.Expr, *weights: relax.Expr) -> relax.Expr:
        for each in weights:
            x = op.sqrt(op.matmul(x, each))
        return x

    func = typed(body, ((4, 256), "float32"), *[((256, 256), "float32")] * 6)
    (result,) = reference.run(func.without_attr(LIFTED), random_inputs(func))
    assert result.min() > 0.1 and result.max() < 10


def test_where_most_outputs_would_be_infinite_activations_are_smaller() -> None:
    func = typed(lambda x, y: op.exp(op.matmul(x, y)), *[((64, 64), "float32")] * 2)
    for trial in trials(func.with_attr(LIFTED, 1)):
        assert trial.expected is not None
        assert np.isfinite(trial.expected[0]).mean() >= 0.5
    usual = trials(typed(op.exp, FLOAT))
    assert np.array_equal(usual[0].inputs[0], random_inputs(typed(op.exp, FLOAT))[0])


TABLE, IDS = ((5, 3), "float32"), ((64,), "int32")
ROWS = ((64, 3), "float32")


def negative_too(ids: relax.Expr, count: int) -> relax.Expr:
    """An index that may count from the end, as ONNX has it."""
    is_negative = op.less(ids, relax.const(0, "int32"))
    return op.where(is_negative, op.add(ids, relax.const(count, "int32")), ids)


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (lambda table, ids: op.take(table, op.astype(ids, "int64"), 0), 4),
        (lambda table, ids: op.take(table, op.reshape(ids, (8, 8)), 0), 4),
        (lambda table, ids: op.take(table, negative_too(ids, 5), 0), 4),
        (lambda table, ids: op.take(table, op.add(ids, relax.const(2, "int32")), 0), 2),
        (lambda table, ids: op.take(table, op.add(ids, ids), 0), 2),
        (lambda table, ids: op.take(table, op.multiply(ids, relax.const(2, "int32")), 0), 2),
        (lambda table, ids: op.take(table, op.minimum(ids, op.flip(ids, 0)), 0), 4),
        (lambda table, ids: op.take(table, op.concat([ids, ids], 0), 0), 4),
        (lambda table, ids: op.take(table, bound(op.split(ids, 2, 0))[1], 0), 4),
    ],
)
def test_indexes_that_are_computed_inside_lie_inside(body: Body, most: int) -> None:
    func = typed(body, TABLE, IDS)
    for inputs in (random_inputs(func), edge_inputs(func)):
        assert inputs[1].min() == 0 and inputs[1].max() == most
        reference.run(func.without_attr(LIFTED), inputs)


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (lambda table, ids, rows: op.scatter_elements(table, ids, rows, axis=0), ((64, 3), "int64")),
        (lambda table, ids, rows: op.scatter_nd(table, ids, rows), ((64, 1), "int64")),
    ],
)
def test_indexes_of_scatters_lie_inside(body: Body, ids: tuple[tuple[int, ...], str]) -> None:
    func = typed(body, ((20, 3), "float32"), ids, ROWS)
    for inputs in (random_inputs(func), edge_inputs(func)):
        reference.run(func.without_attr(LIFTED), inputs)


def edges(body: Body, *types: tuple[tuple[int, ...], str]) -> list[set[int]]:
    """The different numbers of each parameter."""
    return [set(np.unique(array).tolist()) for array in edge_inputs(typed(body, *types))]


INEXACT = 2**24 + 1


def test_bytes_are_the_ends_of_their_range() -> None:
    product = edges(lambda x, y: op.matmul(x, y, out_dtype="int32"), ((64, 64), "uint8"), ((64, 64), "int8"))
    assert product == [{0, 1, 100, 255}, {-128, -127, -100, -1, 0, 1, 100, 127}]
    quotient = edges(op.divide, ((64, 64), "int8"), ((64, 64), "int8"))
    assert min(quotient[0]) == -127 and 0 not in quotient[1]


def test_no_integer_is_divided_by_zero() -> None:
    func = typed(op.floor_divide, *[((64, 64), "int8")] * 2)
    for inputs in (random_inputs(func), edge_inputs(func)):
        assert (inputs[1] != 0).all()


@pytest.mark.parametrize("shift", [op.left_shift, op.right_shift])
@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 8), ("int32", 32)])
def test_integers_are_shifted_by_fewer_bits_than_they_have(shift: Body, dtype: str, bits: int) -> None:
    """A shift by more of them, or by less than 0, is undefined: right kernels and numpy differ."""
    func = typed(shift, *[((64, 64), dtype)] * 2)
    for inputs in (random_inputs(func), edge_inputs(func)):
        assert inputs[1].min() == 0 and inputs[1].max() == bits - 1


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        (lambda x, y: op.power(x, op.abs(y)), "int8"),
        (
            lambda x, y: op.astype(op.multiply(op.astype(x, "float32"), op.astype(y, "float32")), "int8"),
            "int8",
        ),
        (lambda x, y: op.multiply(x, y), "int32"),
        (lambda x, y: op.matmul(x, y), "int32"),
        (lambda x, y: op.astype(op.add(x, y), "float16"), "int32"),
    ],
)
def test_large_integers_are_left_out_where_they_may_overflow(body: Body, dtype: str) -> None:
    assert edges(body, *[((64, 64), dtype)] * 2) == [{-100, -1, 0, 1, 100}] * 2


@pytest.mark.parametrize("body", [op.add, op.less, op.minimum, lambda x, y: op.floor_divide(x, y)])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_too_large_for_float32_where_they_cannot_overflow(body: Body, dtype: str) -> None:
    for numbers in edges(body, *[((64, 64), dtype)] * 2):
        assert {-INEXACT, INEXACT} <= numbers
