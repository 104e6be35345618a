"""Matrix products for cuBLASLt: views, epilogues, algorithms and reasons, without the library."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from relax_calls import bindings, bound, call, constant, function, nn, op
from rule_checks import proposals
from tvm import relax
from tvm.target import Target

from unity_collage.backends import cublas as backend
from unity_collage.backends.cublas.backend import CUBLAS
from unity_collage.backends.cublas.lowering import why_not_matrices
from unity_collage.backends.native.lowering import NotLowerable
from unity_collage.backends.native.program import View

cublas: Any = backend
"""Answers are steps or reasons; each test knows which."""


def step(body, *shapes, dtype="float32") -> Any:
    return cublas.step(call(body, *shapes, dtype=dtype))


def grown(body, *shapes, dtype="float32") -> Any:
    first, *later = bindings(body, *shapes, dtype=dtype)
    made, result = cublas.step(first.value), first.var
    for binding in later:
        made = cublas.fused(made, binding.value, [arg == result for arg in binding.value.args].index(True))
        result = binding.var
        if isinstance(made, str):
            return made
    return made


def program(func, label="cublas.algorithm0"):
    text, _ = cublas.lower([func.with_attr("Composite", label)], ["f"])
    (made,) = json.loads(text)["programs"]
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_operands_and_result_have_one_dtype(dtype):
    made = step(op.matmul, (5, 7), (7, 3), dtype=dtype)
    assert [made.arg(name).dtype for name in "abc"] == [dtype] * 3


def test_a_batch_of_rows_is_one_product():
    made = step(op.matmul, (2, 5, 7), (7, 3))
    assert [made.arg(name).dims for name in "abc"] == [(10, 7), (7, 3), (10, 3)]


def test_batches_stay_dims():
    made = step(op.matmul, (4, 2, 5, 7), (2, 7, 3))
    assert [made.arg(name).dims for name in "abc"] == [(4, 2, 5, 7), (1, 2, 7, 3), (4, 2, 5, 3)]


def test_a_column_is_computed_as_a_row_whose_addend_is_a_bias():
    made = grown(lambda x, v, b: op.add(op.matmul(x, v), b), (5, 7), (7,), (5,))
    assert [(made.arg(name).dims, made.arg(name).strides) for name in "abc"] == [
        ((1, 7), (1, 1)),
        ((7, 5), (1, 7)),
        ((1, 5), (1, 1)),
    ]
    assert (made.arg("bias").dims, made.arg("addend")) == ((5,), None)


def test_scale_bias_addend_and_activation_are_one_product():
    made = grown(
        lambda x, w, b, r: nn.relu(op.add(op.add(op.divide(op.matmul(x, w), relax.const(4.0)), b), r)),
        (2, 5, 7),
        (7, 3),
        (3,),
        (2, 5, 3),
    )
    assert (made.attr("alpha"), made.attr("epilogue")) == (0.25, "relu")
    assert (made.arg("bias").dims, made.arg("addend").dims) == ((3,), (10, 3))
    assert dict(made.attrs).keys() == {"alpha", "epilogue", "algorithm", "tf32"}


@pytest.mark.parametrize(
    ("activation", "dtype", "epilogue"),
    [
        (nn.relu, "float32", "relu"),
        (nn.gelu_tanh, "float32", "gelu_tanh"),
        (nn.gelu, "float16", "gelu_tanh"),
        (nn.gelu, "bfloat16", "gelu_tanh"),
    ],
)
def test_activations_are_epilogues(activation, dtype, epilogue):
    made = grown(lambda x, w: activation(op.matmul(x, w)), (5, 7), (7, 3), dtype=dtype)
    assert made.attr("epilogue") == epilogue


def test_a_transposed_operand_is_strides():
    transposed, product = bindings(lambda x, w: op.matmul(op.permute_dims(x), w), (7, 5), (7, 3))
    made = cublas.absorbed_input(cublas.step(product.value), transposed.var, transposed.value)
    assert (made.arg("a").dims, made.arg("a").strides) == ((5, 7), (1, 5))


def test_heads_are_written_through_strides():
    product, moved = bindings(
        lambda x, y: op.permute_dims(op.matmul(x, y), [0, 2, 1, 3]), (2, 4, 5, 7), (2, 4, 7, 3)
    )
    made = cublas.absorbed_output(cublas.step(product.value), moved.value)
    assert (made.arg("c").dims, made.arg("c").strides) == ((2, 4, 5, 3), (60, 3, 12, 1))


def test_a_transposed_result_is_refused():
    product, transposed = bindings(lambda x, w: op.permute_dims(op.matmul(x, w)), (5, 7), (7, 3))
    made = cublas.absorbed_output(cublas.step(product.value), transposed.value)
    assert made == "the rows of the result are not contiguous"


@pytest.mark.parametrize(
    ("kernel", "layout", "strides"), [((4, 8, 1, 1), "OIHW", (1, 8)), ((1, 1, 8, 4), "HWIO", (4, 1))]
)
def test_a_convolution_of_one_tap_is_a_product_of_pixels(kernel, layout, strides):
    made = grown(
        lambda x, b: op.add(nn.conv2d(x, constant(*kernel), data_layout="NHWC", kernel_layout=layout), b),
        (2, 5, 5, 8),
        (1, 1, 1, 4),
    )
    assert (made.arg("a").dims, made.arg("b").strides, made.arg("c").dims) == ((50, 8), strides, (50, 4))
    assert made.arg("bias").dims == (4,)


def conv(**options):
    shape = options.pop("kernel", (4, 8, 1, 1))
    return lambda x: nn.conv2d(x, constant(*shape), **options)


@pytest.mark.parametrize(
    ("body", "shapes", "dtype", "reason"),
    [
        (
            op.matmul,
            [(5, 7), (7, 3)],
            "float64",
            "lhs is float64, cuBLASLt takes float32, float16 and bfloat16",
        ),
        (
            lambda x: op.matmul(x, relax.const(np.ones((7, 3), "float16")), out_dtype="float32"),
            [(5, 7)],
            "float32",
            "lhs is float32 and rhs is float16, cuBLASLt takes one dtype",
        ),
        (
            lambda x, y: op.matmul(x, y, out_dtype="float32"),
            [(5, 7), (7, 3)],
            "float16",
            "the result is float32 or has no static shape, and the operands are float16",
        ),
        (op.matmul, [(0, 7), (7, 3)], "float32", "lhs is empty"),
        (nn.relu, [(5, 7)], "float32", "relax.nn.relu is not a matrix product"),
        (conv(), [(1, 8, 5, 5)], "float32", "channels innermost"),
        (conv(kernel=(4, 8, 3, 3), data_layout="NHWC"), [(1, 5, 5, 8)], "float32", "more than one tap"),
        (conv(strides=(2, 2), data_layout="NHWC"), [(1, 5, 5, 8)], "float32", "strides or padding"),
    ],
)
def test_reasons(body, shapes, dtype, reason):
    assert reason in step(body, *shapes, dtype=dtype)


def behind(make):
    """A body in which ``make`` is put behind a product of 5x3."""
    return lambda x: make(op.matmul(x, constant(7, 3)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (behind(op.tanh), "gemm takes no tanh behind it"),
        (behind(nn.gelu), "cuBLASLt's GELU is the tanh form, and float32 tells it from the form with erf"),
        (behind(lambda y: op.add(nn.relu(y), constant(3))), "no operator behind the activation"),
        (behind(lambda y: op.multiply(y, constant(3))), "not a scalar constant"),
        (behind(lambda y: op.multiply(y, relax.const(0.0))), "the factor is 0.0"),
        (behind(lambda y: op.divide(y, relax.const(0.0))), "a nonzero constant only"),
        (behind(lambda y: op.divide(relax.const(2.0), y)), "a nonzero constant only"),
        (
            behind(lambda y: op.multiply(op.add(y, constant(3)), relax.const(2.0))),
            "gemm takes no factor behind the sum",
        ),
        (behind(lambda y: op.add(y, constant(5, 1))), "neither a free bias of the columns nor"),
        (behind(lambda y: op.add(y, relax.const(1.0))), "neither a free bias of the columns nor"),
        (behind(lambda y: op.add(op.add(y, constant(3)), constant(3))), "neither a free bias"),
        (behind(lambda y: op.add(op.add(y, constant(5, 3)), constant(5, 3))), "neither a free bias"),
        (behind(lambda y: op.add(y, constant(2, 5, 3))), "changes shape or dtype"),
    ],
)
def test_what_does_not_go_behind_has_a_reason(body, reason):
    assert reason in grown(body, (5, 7))


def test_a_product_added_to_itself_is_refused():
    product = bound
    made = grown(lambda x: op.add(y := product(op.matmul(x, constant(7, 3))), y), (5, 7))
    assert made == "both operands are the product"


def test_a_bias_of_each_batch_is_refused():
    made = grown(lambda x, y, b: op.add(op.matmul(x, y), b), (2, 5, 7), (2, 7, 3), (2, 1, 3))
    assert "neither a free bias of the columns nor" in made


def test_a_bias_is_not_read_through_a_slice_with_steps():
    def body(x, b):
        product = bound(op.matmul(x, constant(7, 3)))
        return op.add(product, bound(op.strided_slice(b, [0], [0], [6], [2])))

    product, sliced, added = bindings(body, (5, 7), (6,))
    made = cublas.fused(cublas.step(product.value), added.value, 0)
    assert made.arg("bias").dims == (3,)
    assert cublas.absorbed_input(made, sliced.var, sliced.value) == "the bias is not contiguous"


def test_repeated_rows_are_not_a_matrix():
    repeated = step(op.matmul, (5, 7), (7, 3)).with_arg("a", View("x", (5, 7), (0, 1), "float32"))
    assert why_not_matrices(repeated) == "neither rows nor columns of a are contiguous"


def test_each_algorithm_is_a_candidate_with_every_prefix():
    func = function(lambda x, w, b: nn.relu(op.add(op.matmul(x, w), b)), (5, 7), (7, 3), (3,))
    offered = [(p.label, p.inside.bit_count()) for p in proposals(CUBLAS.rule(Target("llvm")), func)]
    names = ("cublas.algorithm", "cublas.tf32_algorithm")
    assert sorted(offered) == [(f"{name}{k}", size) for name in names for k in range(3) for size in (1, 2, 3)]


@pytest.mark.parametrize(("label", "algorithm"), [(f"cublas.algorithm{k}", k) for k in range(3)])
def test_the_label_names_the_algorithm(label, algorithm):
    made = program(function(lambda x, w, b: nn.relu(op.add(op.matmul(x, w), b)), (5, 7), (7, 3), (3,)), label)
    (only,) = made["steps"]
    assert (only["primitive"], only["attrs"]["algorithm"], only["attrs"]["epilogue"]) == (
        "gemm",
        algorithm,
        "relu",
    )
    assert set(only["args"]) == {"a", "b", "c", "bias"}


def test_a_function_without_a_label_is_not_lowered():
    with pytest.raises(NotLowerable, match="0 composite functions with a label of cublas"):
        program(function(op.matmul, (5, 7), (7, 3)), "cublas.gemm")


def test_what_must_be_copied_is_not_lowered():
    with pytest.raises(NotLowerable, match="cuBLASLt does not copy tensors"):
        program(function(lambda x, w: op.permute_dims(op.matmul(x, w)), (5, 7), (7, 3)))


def test_only_float32_is_rounded_to_tf32():
    made = cublas.step(call(op.matmul, (5, 8), (8, 4)), tf32=True)
    assert made.attr("tf32") == 1
    assert "TensorFloat-32 is for float32" in cublas.step(
        call(op.matmul, (5, 8), (8, 4), dtype="float16"), tf32=True
    )
    assert (
        program(function(op.matmul, (5, 8), (8, 4)), "cublas.tf32_algorithm1")["steps"][0]["attrs"]["tf32"]
        == 1
    )
