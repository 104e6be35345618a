"""Small kernels through LegalizeOps, FuseOps, FuseTIR and ScheduleCPU, run and looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from unity_collage.legalization import legalize_ops
from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule import schedule

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": 2})
"""This machine, for kernels that run."""
WIDE = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4", "num-cores": 2})
"""A machine with vectors of 64 bytes, for kernels that are looked at."""
LOWERING = (
    legalize_ops(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
)


def module(
    build: Callable[..., relax.Expr], shapes: Sequence[tuple], dtypes: Sequence[str], one_kernel: bool = False
) -> tvm.IRModule:
    """``main`` calls the kernels of ``build``; all of it is one with ``one_kernel``. Not scheduled yet."""
    builder = relax.BlockBuilder()
    if one_kernel:
        inner = _function(builder, "kernel", build, shapes, dtypes, {"Primitive": True})
        _function(builder, "main", lambda *args: relax.Call(inner, args), shapes, dtypes, {})
    else:
        _function(builder, "main", build, shapes, dtypes, {})
    with TARGET:
        return tvm.transform.Sequential(LOWERING)(builder.finalize())


def _function(builder, name, build, shapes, dtypes, attrs):
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, dtype))
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    with builder.function(name, params, attrs=attrs, private=bool(attrs)):
        with builder.dataflow():
            out = builder.emit_output(build(*params))
        return builder.emit_func_output(out)


def scheduled(
    build: Callable[..., relax.Expr],
    *shapes: tuple,
    one_kernel: bool = False,
    target: tvm.target.Target = WIDE,
) -> str:
    """The scheduled kernels of ``build`` over float32 tensors, as text."""
    mod = ScheduleCPU(target)(module(build, shapes, ["float32"] * len(shapes), one_kernel))
    return "\n".join(func.script() for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))


def run(mod: tvm.IRModule, *arrays: np.ndarray, target: tvm.target.Target = TARGET) -> list[np.ndarray]:
    """The outputs of ``main`` on ``arrays``, after scheduling."""
    with target:
        executable = relax.build(ScheduleCPU()(mod), target)
    out = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    return [out.numpy()] if isinstance(out, tvm.runtime.Tensor) else [each.numpy() for each in out]


def built(func: tirx.PrimFunc) -> Callable[..., None]:
    """A scheduled kernel of this machine, which takes tensors of TVM."""
    made = schedule(func, TARGET).with_attr("global_symbol", "main")
    return tvm.compile(tvm.IRModule({"main": made}), TARGET)["main"]


def check(
    build: Callable[..., relax.Expr],
    reference: Callable[..., np.ndarray | tuple],
    *arrays: np.ndarray,
    one_kernel: bool = False,
    rtol: float = 2e-5,
    target: tvm.target.Target = TARGET,
) -> None:
    """The scheduled kernels compute what ``reference`` does, to ``rtol`` of the largest value."""
    shapes, dtypes = [array.shape for array in arrays], [str(array.dtype) for array in arrays]
    expected = reference(*arrays)
    outputs = run(module(build, shapes, dtypes, one_kernel), *arrays, target=target)
    for out, value in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert out.shape == value.shape
        scale = max(float(np.abs(value.astype("float64")).max(initial=0)), 1.0)
        np.testing.assert_allclose(out, value, rtol=0, atol=rtol * scale)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32 numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32")


def padded(x: np.ndarray, pad: int, axes: tuple[int, int], value: float = 0.0) -> np.ndarray:
    """``x`` with ``pad`` values on both sides of the two axes."""
    widths = [(pad, pad) if axis in axes else (0, 0) for axis in range(x.ndim)]
    return np.pad(x, widths, constant_values=value)


def windows(x: np.ndarray, kernel: int, stride: int, axes: tuple[int, int]) -> np.ndarray:
    """All ``kernel`` x ``kernel`` windows over the two axes, the window's axes last."""
    views = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axes)
    steps = tuple(slice(None, None, stride) if axis in axes else slice(None) for axis in range(x.ndim))
    return views[steps]
