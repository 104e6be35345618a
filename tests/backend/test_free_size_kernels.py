"""Kernels of every backend whose sizes are known only when they run, against TVM's kernels without schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import DrawnCost
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import op

import unity_collage as uc
from unity_collage.graph.variants import LIKE
from unity_collage.lowering.build import build
from unity_collage.pipeline import collage

BACKENDS = ("onednn", "openblas", "kernels")
B, N, M = tirx.Var("b", "int64"), tirx.Var("n", "int64"), tirx.Var("m", "int64")
random = np.random.default_rng(0)

Body = Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]


def weights(*shape: int) -> relax.Expr:
    return relax.const((random.standard_normal(shape) / shape[0]).astype("float32"))


def of(body: Body, *shape: Any) -> IRModule:
    """``main`` of one input, whose kernels are measured at two samples of 32 rows."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    mod = builder.get()
    return IRModule({"main": mod["main"].with_attr(LIKE, {"n": 32, "m": 24, "b": 2})})


def linear(builder: relax.BlockBuilder, x: relax.Expr, inner: int, outer: int) -> relax.Expr:
    product = builder.emit(op.matmul(x, weights(inner, outer)))
    return builder.emit(op.add(product, weights(outer)))


def perceptron(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return linear(builder, builder.emit(op.nn.gelu(linear(builder, x, 24, 40))), 40, 24)


def residual(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    sum_ = builder.emit(op.add(linear(builder, x, 24, 24), x))
    return builder.emit(op.nn.layer_norm(sum_, weights(24), weights(24), axes=[-1]))


def attention(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    def heads(axes: list[int]) -> relax.Expr:
        parts = builder.emit(op.reshape(linear(builder, x, 24, 24), (B, N, 3, 8)))
        return builder.emit(op.permute_dims(parts, axes))

    scores = builder.emit(op.matmul(heads([0, 2, 1, 3]), heads([0, 2, 3, 1])))
    scores = builder.emit(op.nn.softmax(builder.emit(op.multiply(scores, relax.const(0.3, "float32"))), -1))
    mixed = builder.emit(op.matmul(scores, heads([0, 2, 1, 3])))
    joined = builder.emit(op.reshape(builder.emit(op.permute_dims(mixed, [0, 2, 1, 3])), (B, N, 24)))
    return builder.emit(op.add(joined, x))


def elementwise(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    a = builder.emit(op.tanh(builder.emit(op.multiply(x, weights(24)))))
    return builder.emit(op.maximum(builder.emit(op.exp(a)), x))


def filters(*shape: int) -> relax.Expr:
    return relax.const(random.standard_normal(shape).astype("float32") * 0.1)


def convolutions(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """With a stride, behind it one with a residual, and pooling."""
    layout: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    a = builder.emit(op.nn.conv2d(x, filters(3, 3, 16, 16), strides=2, padding=1, **layout))
    a = builder.emit(op.nn.relu(builder.emit(op.add(a, filters(16)))))
    b = builder.emit(op.nn.conv2d(a, filters(3, 3, 16, 16), padding=1, **layout))
    b = builder.emit(op.nn.relu(builder.emit(op.add(builder.emit(op.add(b, filters(16))), a))))
    c = builder.emit(op.nn.max_pool2d(b, pool_size=3, strides=2, padding=1, layout="NHWC"))
    return builder.emit(op.nn.conv2d(c, filters(1, 1, 16, 8), **layout))


def grouped(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    layout: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return builder.emit(op.nn.conv2d(x, filters(3, 3, 4, 16), padding=1, groups=4, **layout))


IMAGES: dict[str, Body] = {"convolutions": convolutions, "grouped": grouped}

BODIES: dict[str, Body] = {
    "perceptron": perceptron, "residual": residual, "attention": attention, "elementwise": elementwise,
}  # fmt: skip


@cache
def machines(name: str, backend: str) -> tuple[relax.VirtualMachine, relax.VirtualMachine, str]:
    """The program of one backend alone, that of TVM alone, and the script of the first."""
    mod = of(BODIES[name], B, N, 24) if name in BODIES else of(IMAGES[name], B, N, M, 16)
    target = uc.host_target()
    with target:
        ours = collage((backend,), measure=False)(mod)
    executables = build(ours, target), relax.build(mod, tvm.target.Target("llvm"))
    first, second = (relax.VirtualMachine(each, tvm.cpu()) for each in executables)
    return first, second, ours["main"].script(show_meta=False)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15, deadline=None, phases=(Phase.generate,))
@given(batch=st.integers(0, 5), rows=st.one_of(st.integers(0, 9), st.integers(0, 130)))
def test_all_sizes(name: str, backend: str, batch: int, rows: int) -> None:
    if reason := uc.runtime.why_unavailable(backend):
        pytest.skip(reason)
    ours, plain, _ = machines(name, backend)
    x = np.random.default_rng(batch * 1000 + rows).standard_normal((batch, rows, 24), dtype=np.float32)
    got = ours["main"](tvm.runtime.tensor(x)).numpy()
    assert got.shape == x.shape
    if x.size:
        right = plain["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=15, deadline=None, phases=(Phase.generate,))
@given(batch=st.integers(0, 3), height=st.integers(1, 40), width=st.integers(1, 40))
def test_all_sizes_of_images(name: str, backend: str, batch: int, height: int, width: int) -> None:
    if reason := uc.runtime.why_unavailable(backend):
        pytest.skip(reason)
    ours, plain, _ = machines(name, backend)
    random_ = np.random.default_rng(batch * 10000 + height * 100 + width)
    x = random_.standard_normal((batch, height, width, 16), dtype=np.float32)
    got = ours["main"](tvm.runtime.tensor(x)).numpy()
    if x.size:
        right = plain["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-4)
    else:
        assert got.size == 0


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("convolutions", "onednn"),
        ("convolutions", "openblas"),
        ("convolutions", "kernels"),
        ("grouped", "kernels"),
        ("perceptron", "onednn"),
        ("perceptron", "openblas"),
        ("residual", "onednn"),
        ("attention", "kernels"),
        ("elementwise", "onednn"),
    ],
)
def test_the_library_takes_part(name: str, backend: str) -> None:
    if reason := uc.runtime.why_unavailable(backend):
        pytest.skip(reason)
    assert f"_{backend}" in machines(name, backend)[2]


def test_a_merge_with_a_size_of_its_own_between_its_parts_is_not_offered() -> None:
    """Two convolutions with strides: the extent between them is that of no argument."""
    layout: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO", "strides": 2, "padding": 1}

    def body(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        first = builder.emit(op.nn.conv2d(x, filters(3, 3, 16, 16), **layout))
        return builder.emit(op.nn.conv2d(first, filters(3, 3, 16, 16), **layout))

    target = uc.host_target()
    with target:
        mod = collage(("onednn",), DrawnCost("a"))(of(body, B, N, M, 16))
    machine = relax.VirtualMachine(build(mod, target), tvm.cpu())
    assert machine["main"](tvm.runtime.empty((1, 9, 7, 16))).shape == (1, 3, 2, 16)


def test_what_libraries_compile_for_new_sizes_is_counted() -> None:
    if reason := uc.runtime.why_unavailable("onednn"):
        pytest.skip(reason)
    main = machines("perceptron", "onednn")[0]["main"]

    def kernels_of_a_call(rows: int) -> int:
        before = uc.runtime.compiled_for_sizes()
        main(tvm.runtime.empty((1, rows, 24)))
        after = uc.runtime.compiled_for_sizes()
        assert (after.seconds > before.seconds) == (after.kernels > before.kernels)
        return after.kernels - before.kernels

    assert kernels_of_a_call(151) == 2
    assert kernels_of_a_call(151) == 0
