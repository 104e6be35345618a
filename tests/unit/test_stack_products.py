"""StackProducts on rows of a sequence, and on slices that it must leave alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from prepare_checks import example, module, values
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import tirx as T

from unity_collage import reference
from unity_collage.passes.stack_products import StackProducts

WIDTH, OUT = 6, 4
TALL = relax.const(values(4, 2))
W, U = relax.const(values(WIDTH, OUT)), relax.const(values(WIDTH, OUT) + 1)


def rows(x: relax.Expr, first: int, last: int, axis: int = 1, step: int = 1) -> relax.Expr:
    return op.strided_slice(x, [axis], [first], [last], [step])


def built(shape: Sequence[int], *results) -> tvm.IRModule:
    """A function of one tensor whose results are what each of ``results`` makes of it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = [builder.emit(builder.normalize(make(x))) for make in results]
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    return builder.get()


def products(shape: Sequence[int], *results) -> list[tuple[int, ...]]:
    """The shapes of the left operands of the products that remain; the numbers must not have changed."""
    before = built(shape, *results)
    after = StackProducts()(before)
    values_in = [example(param) for param in before["main"].params]
    old, new = (reference.run(mod["main"], values_in, mod) for mod in (before, module(after)))
    for a, b in zip(old, new, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    found = []
    for block in after["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and binding.value.op == tvm.ir.Op.get("relax.matmul"):
                found.append(tuple(int(dim) for dim in binding.value.args[0].ty.shape.values))
    return found


def step(first: int, last: int, weights: relax.Expr = W, flat: bool = True):
    """Rows of a sequence (batch, steps, width) times weights."""

    def make(x: relax.Expr) -> relax.Expr:
        part = rows(x, first, last)
        batch = int(x.ty.shape.values[0])
        return op.matmul(op.reshape(part, [batch * (last - first), WIDTH]) if flat else part, weights)

    return make


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_of_a_sequence_become_one_product(batch: int, flat: bool):
    steps = [step(i, i + 1, flat=flat) for i in range(5)]
    assert products((batch, 5, WIDTH), *steps) == [(5 * batch, WIDTH)]


def test_rows_of_a_matrix_in_any_order_and_size():
    parts = [(3, 5), (0, 1), (1, 4)]
    made = [lambda x, part=part: op.matmul(rows(x, *part, axis=0), W) for part in parts]
    assert products((7, WIDTH), *made) == [(5, WIDTH)]


def test_each_weight_has_a_product_of_its_own_over_rows_that_are_read_once():
    steps = [step(i, i + 1, weights) for i in range(1, 4) for weights in (W, U)]
    assert products((1, 4, WIDTH), *steps) == [(3, WIDTH)] * 2
    after = StackProducts()(built((1, 4, WIDTH), *steps)).script()
    assert after.count("R.reshape") == 1


@pytest.mark.parametrize(
    "made",
    [
        [step(0, 1), step(2, 3)],  # an unread row lies between them
        [step(0, 1), step(1, 2, U)],
        [step(0, 1), step(0, 1)],  # one product already holds all rows
        [step(0, 1), lambda x: op.matmul(op.reshape(rows(x, 1, 2), [1, WIDTH]), W, out_dtype="float64")],
        [lambda x, i=i: op.matmul(op.reshape(rows(x, i, i + 1, axis=2), [1, 4]), TALL) for i in (0, 1)],
        [lambda x, i=i: op.matmul(op.reshape(rows(x, i, i + 3, step=2), [2, WIDTH]), W) for i in (0, 1)],
    ],
    ids=["gap", "other weights", "same rows", "other sums", "columns", "every second row"],
)  # fmt: skip
def test_other_products_stay(made: list):
    before = built((1, 4, WIDTH), *made)
    assert StackProducts()(before).script() == before.script()


def test_products_of_variable_weights_stay():
    before = built(
        (1, 6, WIDTH), *[lambda x, i=i: op.matmul(rows(x, i, i + 1), rows(x, 0, 6)) for i in (0, 1)]
    )
    assert StackProducts()(before).script() == before.script()


@I.ir_module
class GrownRows:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(2), T.int64(6)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(6)):
            with T.sblock("grown"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] + T.float32(10)


def test_rows_are_not_read_behind_a_change_of_their_memory():
    builder = relax.BlockBuilder(GrownRows.clone())
    x = relax.Var("x", relax.TensorType((2, WIDTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            slices = [builder.emit(rows(x, i, i + 1, axis=0)) for i in range(2)]
            grown = builder.emit(op.call_tir_inplace(GrownRows.get_global_var("grown"), (x,), [0], x.ty))
            made = [builder.emit(op.matmul(each, W)) for each in slices]
            out = builder.emit_output(relax.Tuple([grown, *made]))
        builder.emit_func_output(out)
    mod = builder.get()
    tvm.ir.assert_structural_equal(StackProducts()(mod), mod)
