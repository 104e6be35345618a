"""Programs for a GPU, built without one: kernels are bound to threads, and NVRTC compiles them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from gpu_loops import ARCH, FIELDS, TARGET, check_compiles, kernels, needs_nvrtc, sources
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax import op
from tvm.script import tirx as T
from tvm.target import Target

from unity_collage.annotations import UNSCHEDULED
from unity_collage.errors import CollageError
from unity_collage.lowering import nvrtc
from unity_collage.lowering.build import build, finish, lower
from unity_collage.lowering.fuse import fused
from unity_collage.lowering.gpu_kernels import refuse_unbuilt, with_c_names
from unity_collage.schedule import gpu, schedule, scheduled_module

Emit = Callable[[relax.Expr], relax.Var]
Body = Callable[..., relax.Expr]
Shape = tuple[int | tirx.Var, ...]
nn: Any = op.nn
LAST = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


def module(
    body: Body, shapes: Sequence[Shape], dtype: str = "float32", types: Mapping[int, str] | None = None
) -> IRModule:
    """A module that computes ``body``; ``types`` are those of operands that are not of type ``dtype``."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, (types or {}).get(i, dtype)))
        for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return builder.get()


OPERATORS: dict[str, tuple[Body, Sequence[Shape]]] = {
    "conv2d": (lambda x, w: nn.conv2d(x, w, padding=1, **LAST), [(1, 14, 14, 32), (32, 3, 3, 32)]),
    "depthwise": (
        lambda x, w: nn.conv2d(x, w, padding=1, groups=32, **LAST),
        [(1, 14, 14, 32), (32, 3, 3, 1)],
    ),
    "matmul": (lambda x, w: nn.relu(op.matmul(x, w)), [(128, 256), (256, 128)]),
    "gemv": (op.matmul, [(1, 256), (256, 128)]),
    "softmax": (lambda x: nn.softmax(x, -1), [(12, 128)]),
    "layer_norm": (lambda x, g, b: nn.layer_norm(x, g, b, axes=[-1]), [(8, 64), (64,), (64,)]),
    "max_pool": (lambda x: nn.max_pool2d(x, 3, 2, 1, layout="NHWC"), [(1, 14, 14, 32)]),
    "avg_pool": (lambda x: nn.avg_pool2d(x, 2, 2, layout="NHWC"), [(1, 14, 14, 32)]),
    "mean": (lambda x: op.mean(x, [1, 2]), [(1, 7, 7, 64)]),
    "concat": (lambda x, y: op.concat([x, y], -1), [(4, 14, 8), (4, 14, 4)]),
    "split": (lambda x: op.split(x, 2, -1), [(4, 14, 8)]),
    "transpose": (lambda x: op.permute_dims(x, [0, 2, 1, 3]), [(1, 16, 4, 8)]),
    "resize": (
        lambda x: op.image.resize2d(x, relax.ShapeExpr((28, 28)), layout="NHWC", method="linear"),
        [(1, 14, 14, 8)],
    ),
    "argmax": (lambda x: op.argmax(x, -1), [(4, 100)]),
    "cumsum": (lambda x: op.cumsum(x, -1), [(4, 100)]),
    "topk": (lambda x: op.topk(x, 5), [(4, 100)]),
    "add_relu": (lambda x, y: nn.relu(op.add(x, y)), [(16, 64), (16, 64)]),
    "gelu": (nn.gelu, [(16, 64)]),
}


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compile(name: str, dtype: str):
    body, shapes = OPERATORS[name]
    check_compiles(module(body, shapes, dtype))


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_indexes_compile(dtype: str):
    check_compiles(module(lambda x, i: op.take(x, i, axis=0), [(100, 8), (16,)], dtype, {1: "int64"}))
    scattered = module(
        lambda x, i, u: op.scatter_elements(x, i, u, 1), [(8, 10), (8, 3), (8, 3)], dtype, {1: "int64"}
    )
    check_compiles(scattered)


@needs_nvrtc
def test_symbolic_shapes_compile():
    n = tirx.Var("n", "int64")
    check_compiles(module(lambda x, w: nn.softmax(op.matmul(x, w)), [(n, 64), (64, 32)]))


def basic_block(builder: relax.BlockBuilder, x: relax.Expr, channels: int, stride: int) -> relax.Var:
    """Two convolutions and a residual sum, as in ResNet-18; channels last."""
    wide = int(x.ty.shape.values[-1])

    def conv(value: relax.Expr, size: int, inputs: int, stride: int) -> relax.Var:
        weights = relax.const(np.full((channels, size, size, inputs), 0.01, "float32"))
        return builder.emit(nn.conv2d(value, weights, strides=stride, padding=size // 2, **LAST))

    first = builder.emit(nn.relu(conv(x, 3, wide, stride)))
    second = conv(first, 3, channels, 1)
    shortcut = x if wide == channels and stride == 1 else conv(x, 1, wide, stride)
    return builder.emit(nn.relu(builder.emit(op.add(second, shortcut))))


def small_resnet() -> IRModule:
    def body(x: relax.Expr) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        for channels, stride in ((16, 1), (32, 2), (32, 1)):
            x = basic_block(builder, x, channels, stride)
        pooled = builder.emit(op.mean(x, [1, 2]))
        return builder.emit(op.matmul(pooled, relax.const(np.full((32, 10), 0.1, "float32"))))

    return module(body, [(1, 32, 32, 16)])


def small_transformer() -> IRModule:
    """Embedding, one block of attention with a mask, and a feed-forward block."""
    width, heads, length = 64, 4, 16

    def weights(*shape: int) -> relax.Expr:
        return relax.const(np.full(shape, 0.02, "float32"))

    def body(tokens: relax.Expr, mask: relax.Expr) -> relax.Expr:
        emit = relax.BlockBuilder.current().emit
        x = emit(op.take(weights(100, width), tokens, axis=0))
        split = [
            emit(op.reshape(emit(op.matmul(x, weights(width, width))), (length, heads, -1))) for _ in range(3)
        ]
        q, k, v = (emit(op.permute_dims(part, [1, 0, 2])) for part in split)
        scores = emit(op.add(emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1])))), mask))
        mixed = emit(op.permute_dims(emit(op.matmul(emit(nn.softmax(scores)), v)), [1, 0, 2]))
        y = emit(op.add(x, emit(op.reshape(mixed, (length, width)))))
        y = emit(nn.layer_norm(y, weights(width), weights(width), axes=[-1]))
        return emit(op.matmul(emit(nn.gelu(emit(op.matmul(y, weights(width, 128))))), weights(128, width)))

    return module(body, [(length,), (length, length)], types={0: "int64"})


@pytest.mark.parametrize("mod", [small_resnet(), small_transformer()], ids=["resnet", "transformer"])
def test_programs_become_one_graph(mod: IRModule):
    lowered = lower(fused(mod, TARGET), TARGET)
    assert all(gpu.why_not_built(kernel, TARGET) is None for kernel in kernels(lowered))
    assert finish(lowered, TARGET)(lowered)["main"].script().count("cuda_graph.run_or_capture") == 1


@needs_nvrtc
@pytest.mark.parametrize("mod", [small_resnet(), small_transformer()], ids=["resnet", "transformer"])
def test_programs_compile(mod: IRModule):
    check_compiles(mod)


def test_a_program_is_exported_with_its_sources(tmp_path: Path):
    program = build(fused(small_resnet(), TARGET), TARGET)
    program.export_library(str(tmp_path / "program.so"))
    assert (tmp_path / "program.so").stat().st_size > 10_000


def test_a_target_without_a_host_gets_this_one():
    target = Target(FIELDS)
    program = build(fused(module(nn.relu, [(8, 8)]), target), target)
    assert list(sources(program.mod))


@T.prim_func(private=True, s_tir=True)
def running_sum(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    for i in range(15):
        with T.sblock("sum"):
            T.reads(a[0:16], b[0:16])
            T.writes(b[0:16])
            b[i + 1] = b[i] + a[i]


def test_a_kernel_that_no_rule_takes_runs_in_one_thread():
    kernel = schedule(running_sum, TARGET, "running_sum")
    assert kernel.attrs[UNSCHEDULED].startswith("one thread runs it, since no rule of dlight takes it")
    assert gpu.why_not_built(running_sum, TARGET) == "a loop of it is not bound to threads"
    assert gpu.why_not_built(kernel, TARGET) is None


def test_a_rule_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch):
    class Planted:
        def apply(self, *_args: object) -> None:
            raise KeyError("planted")

    (kernel,) = kernels(fused(module(nn.relu, [(8, 8)]), TARGET, schedule=False))
    monkeypatch.setattr(gpu, "_RULES", (Planted(),))
    assert "Planted: KeyError: 'planted'" in schedule(kernel, TARGET).attrs[UNSCHEDULED]
    monkeypatch.setattr(gpu, "_RULES", (Planted(), gpu.dlight.gpu.Fallback()))
    assert UNSCHEDULED not in schedule(kernel, TARGET).attrs


def test_blocks_that_are_too_large_are_refused():
    @T.prim_func(private=True, s_tir=True)
    def copy(a: T.Buffer((2048,), "float32"), b: T.Buffer((2048,), "float32")):
        for i in T.thread_binding(2048, thread="threadIdx.x"):
            with T.sblock("copy"):
                v = T.axis.spatial(2048, i)
                b[v] = a[v]

    assert gpu.why_not_built(copy, TARGET) == "its blocks exceed 1024 threads or 49152 bytes of shared memory"


def test_a_kernel_that_cannot_be_built_is_an_error_in_one_line():
    @T.prim_func(private=True, s_tir=True)
    def host(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        with T.sblock("host"):
            T.reads(a[0:16])
            T.writes(b[0:16])
            T.evaluate(T.call_packed("function.of.the.host", a.data, b.data))

    mod = scheduled_module(IRModule({"host": host}), TARGET)
    with pytest.raises(
        CollageError, match="kernel host cannot be built for a GPU: it calls a function of the host"
    ):
        refuse_unbuilt(mod, TARGET)


def test_kernels_get_names_of_c():
    mod = module(lambda x: op.add(x, op.full((4,), relax.const(1.0), "float32")), [(4,)])
    found = fused(mod, TARGET)
    assert all(gvar.name_hint.isidentifier() for gvar in found.functions)
    assert with_c_names(found) is found


def test_what_is_scheduled_already_stays():
    mod = fused(module(nn.relu, [(8, 8)]), TARGET)
    tvm.ir.assert_structural_equal(fused(mod, TARGET), mod)


@needs_nvrtc
def test_quotients_are_rounded_as_ieee_754_says():
    source = 'extern "C" __global__ void f(float* a) { a[0] = a[1] / a[2]; }'
    assert b"div_rn_noftz" in nvrtc.compiled(source, ARCH)


@needs_nvrtc
def test_sources_that_need_all_of_cccl_compile():
    source = """#include <cuda/std/type_traits>
static_assert(cuda::std::is_integral<int>::value, "");
extern "C" __global__ void f(float* a) { a[0] = INFINITY; }"""
    assert nvrtc.compiled(source, ARCH).startswith(b"\x7fELF")


@needs_nvrtc
def test_a_mistake_in_a_source_is_told_with_its_place():
    with pytest.raises(nvrtc.CompileError, match=r'(?s)NVRTC_ERROR_COMPILATION.*kernels.cu.*identifier "b"'):
        nvrtc.compiled('extern "C" __global__ void f(float* a) { a[0] = b; }', ARCH)
    with pytest.raises(RuntimeError, match="--gpu-architecture"):
        nvrtc.compiled("", "sm_13")
