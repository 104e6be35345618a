"""Quantised networks: products of bytes, tables of functions of one byte, steps that cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_calls import function
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op
from tvm.target import Target

from unity_collage import reference
from unity_collage.graph.calls import calls, op_name
from unity_collage.passes import MultiplyBytes
from unity_collage.passes.prepare import Prepare
from unity_collage.rewrites.byte_tables import FUNCTION_OF_BYTES
from unity_collage.rewrites.quantised import QUANTIZED_AGAIN, SCALED_SUMS
from unity_collage.runtime import why_unavailable

RNG = np.random.default_rng(5)
HASWELL = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"})
WITH_VNNI = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "cascadelake"})
needs_onednn = pytest.mark.skipif(why_unavailable("onednn") is not None, reason="oneDNN is not installed")


def number(value: float, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.asarray(value, dtype))


def dequantized(x: relax.Expr, scale: float = 0.03, zero: int = 0, dtype: str = "uint8") -> relax.Expr:
    return op.dequantize(x, number(scale), number(zero, dtype))


def quantized(x: relax.Expr, scale: float = 0.05, zero: int = 7, dtype: str = "uint8") -> relax.Expr:
    return op.quantize(x, number(scale), number(zero, dtype), out_dtype=dtype)


def weights(*shape: int, axis: int, dtype: str = "int8", zero: int = 0) -> relax.Expr:
    """Random bytes, and a 0, with a scale for each index of ``axis``."""
    limits = np.iinfo(dtype)
    values = RNG.integers(max(limits.min, zero - 128), min(limits.max, zero + 127) + 1, shape).astype(dtype)
    values.flat[0] = 0
    scales = RNG.uniform(0.001, 0.01, shape[axis]).astype("float32")
    zeros = np.full(shape[axis], zero, dtype)
    return op.dequantize(relax.const(values), relax.const(scales), relax.const(zeros), axis=axis)


def function_of(body: Callable[[Any], relax.Expr], shape: tuple[int, ...], dtype: str = "uint8") -> IRModule:
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.normalize(body(x)))
        builder.emit_func_output(y)
    return relax.transform.Normalize()(builder.get())


def inputs(mod: IRModule) -> list[np.ndarray]:
    kind = mod["main"].params[0].ty
    shape = [int(size) for size in kind.shape.values]
    dtype = str(kind.dtype)
    if "float" in dtype:
        return [RNG.standard_normal(shape).astype(dtype)]
    limits = np.iinfo(dtype)
    return [RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)]


def assert_equal_numbers(before: IRModule, after: IRModule, tolerance: float = 1e-5) -> None:
    given = inputs(before)
    (want,) = reference.run(before["main"], given, before)
    (have,) = reference.run(after["main"], given, after)
    assert have.dtype == want.dtype
    np.testing.assert_allclose(have, want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max())))


def names(mod: IRModule) -> list[str]:
    return [op_name(call).removeprefix("relax.") for call in calls(mod["main"])]


def multiplied(mod: IRModule, target: Target = WITH_VNNI) -> IRModule:
    with target:
        return MultiplyBytes()(mod)


CONVOLUTIONS: dict[str, tuple[Callable[[Any], relax.Expr], tuple[int, ...]]] = {
    "plain": (
        lambda x: op.nn.conv2d(dequantized(x), weights(6, 4, 3, 3, axis=0), padding=[1, 1]),
        (1, 4, 7, 8),
    ),
    "border": (
        lambda x: op.nn.conv2d(
            dequantized(x, zero=121), weights(6, 4, 3, 3, axis=0), padding=[1, 0, 2, 1], strides=[2, 1]
        ),
        (2, 4, 7, 8),
    ),
    "grouped": (
        lambda x: op.nn.conv2d(dequantized(x, zero=3), weights(8, 1, 3, 3, axis=0), groups=4, padding=[1, 1]),
        (1, 4, 7, 8),
    ),
    "one axis": (
        lambda x: op.nn.conv1d(dequantized(x, zero=9), weights(6, 4, 3, axis=0), padding=[1, 1]),
        (1, 4, 9),
    ),
    "unsigned weights": (
        lambda x: op.nn.conv2d(dequantized(x), weights(6, 4, 1, 1, axis=0, dtype="uint8", zero=128)),
        (1, 4, 3, 3),
    ),
}
PRODUCTS: dict[str, tuple[Callable[[Any], relax.Expr], tuple[int, ...]]] = {
    "plain": (lambda x: op.matmul(dequantized(x), weights(8, 5, axis=1)), (3, 8)),
    "border": (lambda x: op.matmul(dequantized(x, zero=120), weights(8, 5, axis=1)), (2, 3, 8)),
    "turned": (lambda x: op.matmul(dequantized(x), op.permute_dims(weights(5, 8, axis=0))), (3, 8)),
    "one scale": (
        lambda x: op.matmul(
            dequantized(x, zero=1),
            op.dequantize(
                relax.const(RNG.integers(-128, 128, (8, 5)).astype("int8")), number(0.02), number(0, "int8")
            ),
        ),
        (3, 8),
    ),
}


@needs_onednn
@pytest.mark.parametrize(
    ("body", "shape"), [*CONVOLUTIONS.values(), *PRODUCTS.values()], ids=[*CONVOLUTIONS, *PRODUCTS]
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_products_of_dequantised_values_multiply_bytes(
    body: Callable[[Any], relax.Expr], shape: tuple[int, ...], dtype: str
) -> None:
    before = function_of(body, shape, dtype)
    after = multiplied(before)
    (product,) = [
        call for call in calls(after["main"]) if "conv" in op_name(call) or "matmul" in op_name(call)
    ]
    assert str(product.ty.dtype) == "int32"
    assert not {"dequantize", "permute_dims"} & set(names(after))
    assert_equal_numbers(before, after)


@needs_onednn
@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.matmul(dequantized(x), weights(8, 5, axis=0)),  # a scale for each element of a sum
        lambda x: op.matmul(dequantized(x), weights(8, 5, axis=1, dtype="uint8", zero=250)),
        lambda x: op.matmul(dequantized(x, zero=300, dtype="int32"), weights(8, 5, axis=1)),
        lambda x: op.matmul(op.astype(x, "float32"), weights(8, 5, axis=1)),
        lambda x: op.matmul(dequantized(x), relax.const(np.ones((8, 5), "float32"))),
    ],
)
def test_other_products_stay_products_of_floats(body: Callable[[Any], relax.Expr]) -> None:
    before = function_of(body, (3, 8))
    after = multiplied(before)
    products = [str(call.ty.dtype) for call in calls(after["main"]) if op_name(call) == "relax.matmul"]
    assert products == ["float32"]
    assert_equal_numbers(before, after)


def test_processors_without_such_instructions_keep_floats() -> None:
    before = function_of(*PRODUCTS["plain"])
    assert multiplied(before, HASWELL).same_as(before)


def sums(x: relax.Expr) -> relax.Expr:
    return op.matmul(x, relax.const(RNG.integers(-128, 128, (8, 5)).astype("int8")), out_dtype="int32")


@pytest.mark.parametrize("scale", [number(0.01), relax.const(RNG.uniform(0.01, 0.1, 5).astype("float32"))])
@pytest.mark.parametrize("swapped", [False, True])
def test_sums_of_bytes_are_scaled_before_something_is_added(scale: relax.Expr, swapped: bool) -> None:
    def body(x: relax.Expr) -> relax.Expr:
        other = relax.const(np.arange(5, dtype="int32") * 1000)
        total = op.add(other, sums(x)) if swapped else op.add(sums(x), other)
        return op.multiply(op.astype(total, "float32"), scale)

    before = function_of(body, (3, 8))
    after = Prepare(rules=(SCALED_SUMS,))(before)
    assert names(after)[:3] == ["matmul", "astype", "multiply"]
    assert names(after)[-1] == "add"
    assert_equal_numbers(before, after)


def test_sums_stay_whole_if_much_is_added() -> None:
    def much(x: relax.Expr) -> relax.Expr:
        return op.multiply(
            op.astype(op.add(sums(x), relax.const(np.ones((3, 5), "int32"))), "float32"), number(0.1)
        )

    before = function_of(much, (3, 8))
    assert names(Prepare(rules=(SCALED_SUMS,))(before)) == names(before)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.tanh(x),
        lambda x: op.multiply(x, dequantized(quantized(op.sigmoid(x)))),
        lambda x: op.multiply(x, op.clip(op.add(op.multiply(x, number(0.2)), number(0.5)), 0, 1)),
        lambda x: op.nn.gelu(dequantized(quantized(op.divide(x, number(1.3)), zero=100), zero=100)),
    ],
    ids=["tanh", "silu", "hard swish", "gelu"],
)
def test_a_function_of_one_byte_is_a_table(body: Callable[[Any], relax.Expr], dtype: str) -> None:
    zero = 121 if dtype == "uint8" else -7

    def whole(x: relax.Var) -> relax.Expr:
        inner = quantized(body(dequantized(x, zero=zero, dtype=dtype)), scale=0.02, zero=zero, dtype=dtype)
        return quantized(op.exp(dequantized(inner, zero=zero, dtype=dtype)), scale=0.1)

    before = function_of(whole, (256,), dtype)
    after = Prepare(rules=(FUNCTION_OF_BYTES,))(before)
    assert set(names(after)) <= {"astype", "add", "take"}
    every = np.arange(256).astype("uint8").view(dtype)
    (want,) = reference.run(before["main"], [every], before)
    (have,) = reference.run(after["main"], [every], after)
    assert np.array_equal(have, want)


def test_short_functions_and_functions_of_two_tensors_are_no_tables() -> None:
    short = function_of(lambda x: quantized(op.nn.relu(dequantized(x))), (2, 3))
    assert "take" not in names(Prepare(rules=(FUNCTION_OF_BYTES,))(short))

    x, y = (relax.Var(name, relax.TensorType((2, 3), "uint8")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            z = builder.emit_output(
                builder.normalize(quantized(op.tanh(op.add(dequantized(x), dequantized(y)))))
            )
        builder.emit_func_output(z)
    assert "take" not in names(
        Prepare(rules=(FUNCTION_OF_BYTES,))(relax.transform.Normalize()(builder.get()))
    )


@pytest.mark.parametrize("first", [0, 100, 128])
def test_only_a_table_that_starts_at_the_lowest_byte_is_part_of_another(first: int) -> None:
    """Somebody's own table may be read from another place on."""

    def body(x: relax.Expr) -> relax.Expr:
        own = relax.const(RNG.integers(0, 256, 256).astype("uint8"))
        place = op.add(op.astype(x, "int32"), number(first, "int32"))
        return quantized(op.tanh(dequantized(op.take(own, place, axis=0, mode="clip"))))

    before = function_of(body, (2, 60), "int8")
    after = Prepare(rules=(FUNCTION_OF_BYTES,))(before)
    every = np.arange(-60, 60).reshape(2, 60).astype("int8") + np.int8(67)  # 7 to 126
    (want,) = reference.run(before["main"], [every], before)
    (have,) = reference.run(after["main"], [every], after)
    assert np.array_equal(have, want)
    assert names(after).count("take") == (1 if first == 128 else 2)


def test_a_number_with_more_axes_makes_no_table() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return quantized(op.multiply(op.tanh(dequantized(x)), relax.const(np.ones((1, 1, 1), "float32"))))

    before = function_of(body, (2, 3))
    assert names(Prepare(rules=(FUNCTION_OF_BYTES,))(before)) == names(before)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x,
        lambda x: op.reshape(x, [3, 2]),
        lambda x: op.permute_dims(x, [1, 0]),
        lambda x: op.nn.relu(x),
    ],
    ids=["nothing", "reshape", "permute", "relu"],
)
def test_quantising_what_was_quantised_alike_moves_bytes(move: Callable[[Any], relax.Expr]) -> None:
    body = lambda x: quantized(move(dequantized(x, 0.05, 0)), 0.05, 0)  # noqa: E731
    before = function_of(body, (2, 3))
    after = Prepare(rules=(QUANTIZED_AGAIN,))(before)
    assert not {"quantize", "dequantize", "nn.relu"} & set(names(after))
    assert_equal_numbers(before, after)


@pytest.mark.parametrize(
    "body",
    [
        lambda x: quantized(dequantized(x, 0.05, 7), 0.06, 7),
        lambda x: quantized(dequantized(x, 0.05, 7), 0.05, 8),
        lambda x: quantized(op.nn.relu(dequantized(x, 0.05, 7)), 0.05, 7),
        lambda x: quantized(op.nn.max_pool1d(op.reshape(dequantized(x, -0.05), [1, 2, 3]), 2), -0.05, 0),
    ],
    ids=["another scale", "another zero point", "negative numbers", "a negative scale"],
)
def test_quantising_otherwise_stays(body: Callable[[Any], relax.Expr]) -> None:
    before = function_of(body, (2, 3))
    assert names(Prepare(rules=(QUANTIZED_AGAIN,))(before)) == names(before)


def test_a_relax_function_without_dataflow_is_multiplied_too() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        return op.matmul(x, relax.const(np.ones((4, 2), "float32")))

    plain = IRModule({"main": function(body, (3, 4)).with_attr("global_symbol", "main")})
    assert names(multiplied(plain)) == ["matmul"]
