"""Vectors of a GPU's threads: their loops, and their numbers without threads on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from gpu_loops import TARGET, check_compiles, kernels, needs_nvrtc, without_threads
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import op
from tvm.script import tirx as T

from unity_collage import reference
from unity_collage.lowering.fuse import fused
from unity_collage.schedule import gpu
from unity_collage.schedule.gpu_vectors import work_of
from unity_collage.schedule.stage import nodes
from unity_collage.target import host_target

nn: Any = op.nn
Body = Callable[..., Any]
Shape = tuple[int, ...]


def module(body: Body, shape: Shape, constants: Sequence[Shape], dtype: str) -> IRModule:
    rng = np.random.default_rng(1)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            others = [relax.const(rng.standard_normal(each).astype(dtype)) for each in constants]
            result = builder.emit_output(builder.normalize(body(x, *others)))
        builder.emit_func_output(result)
    return builder.get()


def depthwise(size: int) -> Body:
    def body(x: Any, weight: Any, bias: Any) -> Any:
        conv = nn.conv2d(
            x,
            weight,
            padding=size // 2,
            groups=int(x.ty.shape[3]),
            data_layout="NHWC",
            kernel_layout="HWOI",
        )
        return op.clip(op.add(conv, bias), 0, 6)

    return body


def pooled(kind: Any, **options: Any) -> Body:
    return lambda x: kind(x, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC", **options)


def heads(x: Any, bias: Any) -> Any:
    return op.permute_dims(op.reshape(op.add(x, bias), (2, 5, 3, 16)), [0, 2, 1, 3])


ROWS = np.array([3, 0, 6, 6, 1], np.int32)

CASES: dict[str, tuple[Body, Shape, list[Shape]]] = {
    "elementwise": (lambda x, y: nn.relu(op.multiply(x, y)), (3, 7, 16), [(3, 7, 16)]),
    "a bias": (lambda x, y: op.exp(op.add(x, y)), (5, 9, 24), [(24,)]),
    "one number a row": (lambda x, y: op.subtract(x, y), (5, 9, 8), [(5, 9, 1)]),
    "heads": (heads, (2, 5, 48), [(48,)]),
    "concatenation": (lambda x, y: op.concat([x, y, x], -1), (4, 5, 8), [(4, 5, 16)]),
    "part of an axis": (lambda x: op.strided_slice(x, [2], [8], [24]), (4, 5, 32), []),
    "padding": (lambda x: nn.pad(x, [0, 0, 1, 2, 0, 0]), (2, 3, 8), []),
    "exponentials of two parts": (lambda x, y: op.exp(op.concat([op.tanh(x), y], 1)), (3, 4, 8), [(3, 2, 8)]),
    "parts of one tensor": (lambda x: op.concat([op.tanh(x), x], -1), (4, 5, 8), []),
    "rows of a table": (lambda x: op.take(x, relax.const(ROWS), axis=0, mode="clip"), (7, 16), []),
    "depthwise 3x3": (depthwise(3), (2, 7, 9, 16), [(3, 3, 16, 1), (16,)]),
    "depthwise 5x5": (depthwise(5), (1, 7, 7, 8), [(5, 5, 8, 1), (8,)]),
    "depthwise 7x7": (depthwise(7), (1, 32, 32, 16), [(7, 7, 16, 1), (16,)]),
    "mean of a window": (pooled(nn.avg_pool2d, count_include_pad=False), (1, 11, 9, 8), []),
    "maximum of a window": (pooled(nn.max_pool2d), (1, 11, 9, 8), []),
    "a cast": (lambda x: op.astype(x, "int32"), (4, 8), []),
}


def scheduled(body: Body, shape: Shape, constants: Sequence[Shape], dtype: str) -> tirx.PrimFunc:
    made = fused(module(body, shape, constants, dtype), TARGET)
    (kernel,) = kernels(made)
    return kernel


def run(mod: IRModule, x: np.ndarray) -> np.ndarray:
    """The result of a module bound to threads, with its threads one after the other."""
    functions = {
        gvar: without_threads(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    compiled = relax.build(IRModule(functions), host_target())
    return relax.VirtualMachine(compiled, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, dtype: str) -> None:
    body, shape, constants = CASES[name]
    mod = module(body, shape, constants, dtype)
    kernel = scheduled(body, shape, constants, dtype)
    assert "T.vectorized" in kernel.script()
    assert gpu.why_not_built(kernel, TARGET) is None
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    (expected,) = reference.run(mod["main"], [x])
    accuracy = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(run(fused(mod, TARGET), x), expected, rtol=accuracy, atol=accuracy)


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_compiles(name: str, dtype: str) -> None:
    body, shape, constants = CASES[name]
    check_compiles(module(body, shape, constants, dtype))


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda x: op.permute_dims(x, [0, 2, 1]), (4, 8, 16)),
        (lambda x: op.strided_slice(x, [1], [3], [19]), (4, 32)),
        (lambda x: nn.relu(x), (4, 7)),
        (lambda x: op.concat([x, op.strided_slice(x, [1], [0], [4])], -1), (3, 12)),
    ],
    ids=["turned", "not from a multiple on", "an odd number", "cut inside a vector"],
)
def test_what_is_no_vector_of_eight(body: Body, shape: Shape) -> None:
    kernel = scheduled(body, shape, [], "float16")
    assert "T.vectorized(T.int64(8)" not in kernel.script()


def test_more_results_have_wider_vectors() -> None:
    def widths(rows: int) -> list[int]:
        script = scheduled(nn.relu, (rows, 64), [], "float16").script()
        return [w for w in (2, 4, 8) if f"T.vectorized(T.int64({w}))" in script]

    assert [widths(rows) for rows in (64, 1024, 2048, 4096)] == [[2], [2], [4], [8]]


def test_tensors_that_are_joined_are_read_in_statements_of_their_own() -> None:
    def body(x: Any, y: Any) -> Any:
        return nn.relu(op.concat([op.add(x, x), y, x], -1))

    script = scheduled(body, (4, 5, 8), [(4, 5, 16)], "float16").script()
    assert "T.if_then_else" not in script and script.count("else:") == 2


def test_an_access_has_at_most_16_bytes() -> None:
    script = scheduled(lambda x: op.astype(x, "float32"), (4096, 64), [], "float16").script()
    assert "T.vectorized(T.int64(4))" in script and "T.vectorized(T.int64(8))" not in script


@T.prim_func(private=True, s_tir=True)
def shifted(x: T.Buffer((64, 64), "float32"), y: T.Buffer((64, 64), "float32")):
    for i, j in T.grid(64, 64):
        with T.sblock("shifted"):
            row, column = T.axis.remap("SS", [i, j])
            y[row, column] = T.Select(row > 0, x[row - 1, column], T.float32(0))


def test_a_row_that_is_not_selected_is_not_read() -> None:
    found = gpu.scheduled_on_gpu(shifted, TARGET, "shifted")
    (copy,) = (line for line in found.script().splitlines() if "x[" in line and "registers" in line)
    assert "T.if_then_else(" in copy


@T.prim_func(private=True, s_tir=True)
def pooled_twice(
    x: T.Buffer((64, 3, 64), "float32"),
    total: T.Buffer((64, 64), "float32"),
    positive: T.Buffer((64, 64), "float32"),
):
    for i, j, k in T.grid(64, 64, 3):
        with T.sblock("total"):
            row, column, step = T.axis.remap("SSR", [i, j, k])
            with T.init():
                total[row, column] = T.float32(0)
            total[row, column] = total[row, column] + x[row, step, column]
    for i, j in T.grid(64, 64):
        with T.sblock("positive"):
            row, column = T.axis.remap("SS", [i, j])
            positive[row, column] = T.max(total[row, column], T.float32(0))


@T.prim_func(private=True, s_tir=True)
def pooled_in_place(x: T.Buffer((64, 64), "float32")):
    total = T.sblock_alloc_buffer((64, 64), "float32")
    for i, j, k in T.grid(64, 64, 2):
        with T.sblock("total"):
            row, column, step = T.axis.remap("SSR", [i, j, k])
            with T.init():
                total[row, column] = T.float32(0)
            total[row, column] = total[row, column] + x[T.min(row + step, 63), column]
    for i, j in T.grid(64, 64):
        with T.sblock("positive"):
            row, column = T.axis.remap("SS", [i, j])
            x[row, column] = T.max(total[row, column], T.float32(0))


def test_a_reduction_that_is_a_result_is_written() -> None:
    assert work_of(pooled_twice) == "its reduction is a result too, or reads what is written behind it"
    found = gpu.scheduled_on_gpu(pooled_twice, TARGET, "pooled_twice")
    written = {store.buffer.name for store in nodes(found.body, tirx.BufferStore)}
    assert {"total", "positive"} <= written


def test_a_reduction_in_place_is_complete_before_its_operand_changes() -> None:
    assert work_of(pooled_in_place) == "its reduction is a result too, or reads what is written behind it"
