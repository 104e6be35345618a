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


def bound(value: relax.Expr) -> Any:
    builder: Any = relax.BlockBuilder.current()
    return builder.emit(value)


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
