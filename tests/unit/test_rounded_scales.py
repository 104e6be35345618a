"""Scales of quantised values are rounded for costs: equal layers with other scales have one cost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.cost.asking import workloads
from unity_collage.graph.rounded_scales import rounded, with_rounded_scales
from unity_collage.passes import AnnotateCandidates
from unity_collage.schedule.tuned import kernel_name
from unity_collage.testing.fixed_cost import FixedCost

Body = Callable[[relax.Expr], relax.Expr]
WEIGHTS = np.arange(32, dtype="int8").reshape(8, 4)


def function(body: Body, dtype: str = "int32", shape: tuple[int, ...] = (2, 4)) -> relax.Function:
    x = relax.Var("x", relax.TensorType(shape, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.normalize(body(x)))
        builder.emit_func_output(y)
    func = relax.transform.Normalize()(builder.get())["main"]
    assert isinstance(func, relax.Function)
    return func


def numbers(func: relax.Function) -> list[float]:
    found: list[float] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and expr.value.numpy().size == 1:
            found.append(float(expr.value.numpy().reshape(-1)[0]))

    relax.analysis.post_order_visit(func, visit)
    return found


def const(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def layers(*scales: float) -> relax.Function:
    """For each scale: a product of bytes, widened and scaled, and the sum of them all."""
    x = relax.Var("x", relax.TensorType((2, 8), "uint8"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = []
            for scale in scales:
                product = builder.emit(R.matmul(x, relax.const(WEIGHTS), out_dtype="int32"))
                scaled.append(
                    builder.emit(R.multiply(builder.emit(R.astype(product, "float32")), const(scale)))
                )
            y = builder.emit_output(relax.Tuple(scaled))
        builder.emit_func_output(y)
    func = builder.get()["main"]
    assert isinstance(func, relax.Function)
    return func


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (lambda x: R.multiply(R.astype(x, "float32"), const(0.021)), False),
        (lambda x: R.divide(R.astype(x, "float32"), const(0.021)), False),
        (
            lambda x: R.multiply(R.reshape(R.subtract(R.astype(x, "float32"), const(1)), (8,)), const(0.021)),
            False,
        ),
        (lambda x: R.multiply(R.nn.relu(R.astype(x, "float32")), const(0.021)), True),
        (lambda x: R.add(R.astype(x, "float32"), const(0.021)), True),
    ],
)
def test_what_scales_a_widened_value_is_rounded(body: Body, kept: bool) -> None:
    func = function(body)
    changed = with_rounded_scales(func)
    assert np.isclose(numbers(changed), 0.021).any() == kept
    assert (changed is func) == kept


def test_a_scale_of_floating_point_values_is_part_of_the_computation() -> None:
    func = function(lambda x: R.multiply(x, const(0.021)), "float32")
    assert with_rounded_scales(func) is func


def test_a_product_of_two_scales_is_rounded() -> None:
    func = function(lambda x: R.multiply(x, const(0.021)), "float32", ())
    assert numbers(with_rounded_scales(func)) == [pytest.approx(rounded(0.021))]


def test_numbers_of_a_prim_func_are_rounded() -> None:
    def scaled(x: te.Tensor, scale: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: x(*at) * scale())

    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.call_te(scaled, x, const(0.021)))
        builder.emit_func_output(y)
    func = builder.get()["main"]
    assert isinstance(func, relax.Function)
    assert numbers(with_rounded_scales(func)) == [pytest.approx(rounded(0.021))]


@pytest.mark.parametrize(
    "number", [0.0, 1.0, -1.0, float("inf"), np.finfo("float32").max, np.finfo("float64").max, 1e-40, -1e9]
)
def test_limits_of_types_and_numbers_that_kernels_treat_differently_remain(number: float) -> None:
    assert rounded(float(number)) == number
    assert np.isnan(rounded(float("nan")))


@pytest.mark.parametrize("number", [1e-29, 0.021, 0.5, 2.0, 3.7, 255.0, -0.021, 9999.0])
def test_a_rounded_number_is_near_and_no_power_of_two(number: float) -> None:
    there = rounded(number)
    assert 0.31 <= there / number <= 5
    assert rounded(there) == there
    assert np.frexp(there)[0] not in (0.5, -0.5)
    assert np.isfinite(np.float16(there))


def test_layers_with_other_scales_have_one_cost_and_keep_their_scales() -> None:
    with Target("llvm"):
        mod = AnnotateCandidates(backends=("tvm",))(IRModule({"main": layers(0.021, 0.034, 0.019)}))
    func = mod["main"]
    assert isinstance(func, relax.Function)
    asked = workloads(func, FixedCost({}), mod).values()
    one = workloads(
        AnnotateCandidates(backends=("tvm",))(IRModule({"main": layers(0.03)}))["main"], FixedCost({})
    )
    assert {each.key for each in asked} == {each.key for each in one.values()}
    assert sorted(numbers(func)) == pytest.approx([0.019, 0.021, 0.034])


def test_kernels_with_one_cost_have_one_tuned_schedule() -> None:
    def kernel(scale: float) -> tirx.PrimFunc:
        a = te.placeholder((16,), name="a")
        return te.create_prim_func([a, te.compute((16,), lambda i: a[i] * tirx.const(scale, "float32"))])

    assert kernel_name(kernel(0.021)) == kernel_name(kernel(0.034))
    assert len({kernel_name(kernel(scale)) for scale in (0.021, 1.0, 300.0)}) == 3


def test_kernels_with_the_largest_number_of_a_type_have_a_name() -> None:
    def kernel(dtype: str) -> tirx.PrimFunc:
        a = te.placeholder((16,), name="a", dtype=dtype)
        return te.create_prim_func([a, te.compute((16,), lambda i: tirx.min(a[i], tirx.max_value(dtype)))])

    assert len({kernel_name(kernel(dtype)) for dtype in ("float16", "float32", "float64")}) == 3


def test_scales_and_zero_points_of_quantising_are_rounded() -> None:
    def body(scale: float, zero: int) -> relax.Function:
        def steps(x: relax.Expr) -> relax.Expr:
            real = R.dequantize(x, const(scale), relax.const(np.uint8(zero)))
            return R.quantize(real, const(2 * scale), relax.const(np.uint8(zero)), out_dtype="uint8")

        return with_rounded_scales(function(steps, "uint8"))

    tvm.ir.assert_structural_equal(body(0.03, 121), body(0.031, 17))
    assert numbers(body(0.03, 0))[1] == 0
    assert numbers(body(0.03, 121))[1] == numbers(body(0.03, 17))[1] != 0
