"""Casts next to primitives of oneDNN: which of them a primitive absorbs, and why it does not absorb the others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from relax_calls import bindings, bound, constant, nn, op
from tvm import relax
from tvm.target import Target

from unity_collage.backends import onednn as backend
from unity_collage.backends.onednn.backend import ONEDNN
from unity_collage.graph import DataflowGraph
from unity_collage.rules import Found

onednn: Any = backend
"""Answers are steps or reasons; each test knows which."""


def narrow(*shape: int) -> relax.Expr:
    return relax.const(np.ones(shape, ml_dtypes.bfloat16), "bfloat16")


def convolution(x: relax.Expr) -> relax.Expr:
    return nn.conv2d(x, narrow(4, 8, 3, 3), padding=(1, 1), data_layout="NHWC", out_dtype="float32")


def wide(x: relax.Expr) -> relax.Expr:
    return op.astype(x, "float32")


def rounded(x: relax.Expr) -> relax.Expr:
    return op.astype(x, "bfloat16")


WITH_BFLOAT16 = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
IMAGE, RESULT = (1, 5, 5, 8), (1, 5, 5, 4)


def proposals(body, *shapes) -> list[str]:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, "bfloat16")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(*params))
        builder.emit_func_output(out)
    answers = ONEDNN.rule(WITH_BFLOAT16).apply(DataflowGraph(builder.get()["main"]))
    return [answer.label for answer in answers if isinstance(answer, Found)]


def test_a_product_of_narrow_operands_has_a_wide_result_until_a_cast_follows():
    product, cast = bindings(lambda x: rounded(bound(convolution(x))), IMAGE, dtype="bfloat16")
    made = onednn.step(product.value)
    assert (made.arg("src").dtype, made.arg("weights").dtype, made.result.dtype) == (
        "bfloat16",
        "bfloat16",
        "float32",
    )
    assert onednn.fused(made, cast.value, 0).result.dtype == "bfloat16"


def test_nothing_is_computed_behind_a_result_that_was_rounded():
    *_, cast, relu = bindings(lambda x: nn.relu(rounded(bound(convolution(x)))), IMAGE, dtype="bfloat16")
    made = onednn.fused(onednn.step(bindings(convolution, IMAGE, dtype="bfloat16")[0].value), cast.value, 0)
    assert "post-operations compute in float32" in onednn.fused(made, relu.value, 0)


def test_an_operand_is_widened_while_it_is_read():
    cast, softmax = bindings(lambda x: nn.softmax(wide(x)), (3, 8), dtype="bfloat16")
    made = onednn.absorbed_input(onednn.step(softmax.value), cast.var, cast.value)
    assert (made.arg("src").dtype, made.result.dtype) == ("bfloat16", "float32")


@pytest.mark.parametrize(
    ("body", "shape", "dtype", "reason"),
    [
        (lambda x: nn.relu(wide(x)), (3, 8), "bfloat16", "writes what it reads"),
        (lambda x: nn.softmax(wide(x)), (3, 8), "int8", "a cast of int8 to float32"),
        (
            lambda x: op.matmul(op.astype(x, "float32"), constant(8, 2)),
            (3, 8),
            "bfloat16",
            "weights are float32",
        ),
    ],
)
def test_why_a_cast_is_not_absorbed(body, shape, dtype, reason):
    cast, last = bindings(body, shape, dtype=dtype)
    assert reason in onednn.absorbed_input(onednn.step(last.value), cast.var, cast.value)


def test_a_cast_alone_is_a_copy():
    made = onednn.step(bindings(rounded, (3, 8))[0].value)
    assert (made.primitive, made.arg("src").dtype, made.result.dtype) == ("reorder", "float32", "bfloat16")
    assert "float64" in onednn.step(bindings(lambda x: op.astype(x, "float64"), (3, 8))[0].value)


def test_a_narrow_scale_is_refused():
    made = onednn.step(
        bindings(lambda x: nn.layer_norm(x, narrow(8), narrow(8), axes=[-1]), (3, 8), dtype="bfloat16")[
            0
        ].value
    )
    assert made == "scale and shift are float32"


def test_a_kernel_reads_its_residual_through_the_cast():
    def body(x, y):
        return rounded(nn.relu(op.add(bound(convolution(x)), bound(wide(y)))))

    assert "conv2d+astype+add+relu+astype" in proposals(body, IMAGE, RESULT)
    assert not any(label == "conv2d+add" for label in proposals(body, IMAGE, RESULT))


def test_a_cast_that_others_read_too_stays_outside():
    def body(x, y):
        widened = bound(wide(y))
        return op.add(nn.relu(op.add(bound(convolution(x)), widened)), widened)

    assert "conv2d+add+relu" in proposals(body, IMAGE, RESULT)
