"""Matrix products as gemm: views, scale, addend and reasons, without the library."""

from __future__ import annotations

from typing import Any

import pytest
from relax_calls import bindings, call, constant, nn, op
from tvm import relax

from unity_collage.backends import openblas as backend

openblas: Any = backend
"""Answers are steps or reasons; each test knows which."""


def step(body, *shapes, dtype="float32") -> Any:
    return openblas.step(call(body, *shapes, dtype=dtype))


def grown(body, *shapes) -> Any:
    first, *later = bindings(body, *shapes)
    made, result = openblas.step(first.value), first.var
    for binding in later:
        made = openblas.fused(made, binding.value, [arg == result for arg in binding.value.args].index(True))
        result = binding.var
        if isinstance(made, str):
            return made
    return made


def test_a_batch_of_rows_is_one_product():
    made = step(op.matmul, (2, 5, 7), (7, 3))
    assert [made.arg(name).dims for name in "abc"] == [(10, 7), (7, 3), (10, 3)]


def test_scale_and_addend_go_into_the_product():
    made = grown(
        lambda x, b: op.add(op.divide(op.matmul(x, constant(7, 3)), relax.const(4.0)), b), (5, 7), (3,)
    )
    assert (made.attr("alpha"), made.arg("bias").dims) == (0.25, (1, 3))


def test_a_transposed_operand_is_strides():
    transposed, product = bindings(lambda x: op.matmul(op.permute_dims(x), constant(7, 3)), (7, 5))
    view = openblas.absorbed_input(openblas.step(product.value), transposed.var, transposed.value).arg("a")
    assert (view.dims, view.strides) == ((5, 7), (1, 5))


def test_a_transposed_result_is_refused():
    product, transposed = bindings(lambda x: op.permute_dims(op.matmul(x, constant(7, 3))), (5, 7))
    made = openblas.absorbed_output(openblas.step(product.value), transposed.value)
    assert made == "the rows of the result are not contiguous"


@pytest.mark.parametrize(
    ("kernel", "layout", "strides"), [((4, 8, 1, 1), "OIHW", (1, 8)), ((1, 1, 8, 4), "HWIO", (4, 1))]
)
def test_a_convolution_of_one_tap_is_a_product_of_pixels(kernel, layout, strides):
    made = step(
        lambda x: nn.conv2d(x, constant(*kernel), data_layout="NHWC", kernel_layout=layout), (2, 5, 5, 8)
    )
    assert (made.arg("a").dims, made.arg("b").strides, made.arg("c").dims) == ((50, 8), strides, (50, 4))


@pytest.mark.parametrize(
    ("body", "shapes", "dtype", "reason"),
    [
        (op.matmul, [(5, 7), (7, 3)], "float16", "lhs is float16, sgemm takes float32"),
        (nn.relu, [(5, 7)], "float32", "relax.nn.relu is not a matrix product"),
        (lambda x: nn.conv2d(x, constant(4, 8, 1, 1)), [(1, 8, 5, 5)], "float32", "channels innermost"),
        (
            lambda x: nn.conv2d(x, constant(4, 8, 3, 3), data_layout="NHWC"),
            [(1, 5, 5, 8)],
            "float32",
            "more than one tap",
        ),
        (
            lambda x: nn.conv2d(x, constant(4, 8, 1, 1), strides=(2, 2), data_layout="NHWC"),
            [(1, 5, 5, 8)],
            "float32",
            "strides or padding",
        ),
    ],
)
def test_reasons(body, shapes, dtype, reason):
    assert reason in step(body, *shapes, dtype=dtype)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: nn.relu(op.matmul(x, constant(7, 3))), "gemm takes no nn.relu behind it"),
        (lambda x: op.multiply(op.matmul(x, constant(7, 3)), constant(3)), "not a scalar constant"),
        (
            lambda x: op.multiply(op.add(op.matmul(x, constant(7, 3)), constant(3)), relax.const(2.0)),
            "gemm takes no operator behind the sum",
        ),
        (lambda x: op.multiply(op.matmul(x, constant(7, 3)), relax.const(0.0)), "the factor is 0.0"),
        (lambda x: op.multiply(op.matmul(x, constant(7, 3)), relax.const(float("inf"))), "the factor is inf"),
        (
            lambda x: op.divide(op.matmul(x, constant(7, 3)), relax.const(1e-40)),
            "gemm takes a normal float32",
        ),
    ],
)
def test_what_does_not_go_behind_has_a_reason(body, reason):
    assert reason in grown(body, (5, 7))
