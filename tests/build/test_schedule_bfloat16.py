"""Kernels of TVM that store bfloat16 and compute in float32: scheduled, vectorised, and right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
from schedule_checks import TARGET, module, run
from tvm import relax, tirx

from unity_collage import reference
from unity_collage.passes.schedule_cpu import ScheduleCPU

op, nn = relax.op, relax.op.nn
NARROW = "bfloat16"


def wide(x: relax.Expr) -> relax.Expr:
    return op.astype(x, "float32")


def rounded(x: relax.Expr) -> relax.Expr:
    return op.astype(x, NARROW)


def convolution(x: relax.Expr, weights: relax.Expr) -> relax.Expr:
    return nn.conv2d(x, weights, padding=(1, 1), data_layout="NHWC", kernel_layout="OHWI",
                     out_dtype="float32")  # fmt: skip


CASES: dict[str, tuple[Callable[..., relax.Expr], Sequence[tuple[int, ...]]]] = {
    "chain": (lambda x, y: rounded(nn.relu(op.add(wide(x), wide(y)))), [(4, 200), (4, 200)]),
    "steps around exp": (lambda x: op.multiply(rounded(op.exp(wide(op.add(x, x)))), x), [(4, 200)]),
    "gelu": (lambda x: rounded(nn.gelu(wide(x))), [(4, 200)]),
    "softmax": (lambda x: rounded(nn.softmax(wide(x))), [(8, 100)]),
    "layer_norm": (
        lambda x, scale, shift: rounded(nn.layer_norm(wide(x), wide(scale), wide(shift), axes=[-1])),
        [(8, 96), (96,), (96,)],
    ),
    "mean": (lambda x: rounded(op.mean(wide(x), axis=[1, 2])), [(1, 7, 7, 64)]),
    "product": (lambda x, y: rounded(op.matmul(x, y, "float32")), [(16, 64), (64, 48)]),
    "convolution": (lambda x, w: rounded(nn.relu(convolution(x, w))), [(1, 8, 8, 16), (24, 3, 3, 16)]),
    "max_pool": (lambda x: nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC"), [(1, 8, 8, 16)]),
    "max_pool of many channels": (
        lambda x: nn.max_pool2d(x, (3, 3), (2, 2), layout="NHWC"), [(1, 27, 27, 256)]
    ),
    "transpose": (lambda x: op.permute_dims(x, [0, 2, 1]), [(2, 32, 48)]),
    "concat": (lambda x, y: op.concat([x, y], axis=1), [(4, 32), (4, 48)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str) -> None:
    body, shapes = CASES[name]
    mod = module(body, shapes, [NARROW] * len(shapes), one_kernel=True)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype="float32").astype(ml_dtypes.bfloat16) for shape in shapes]
    (got,) = run(mod, *arrays)
    (want,) = reference.run(plain(body, shapes), arrays)
    error = (
        np.abs(got.astype("float64") - want.astype("float64")).max() / np.abs(want.astype("float64")).max()
    )
    assert got.dtype == want.dtype and error <= 2**-7  # one unit in the last of eight bits


@pytest.mark.parametrize("name", CASES)
def test_loops_are_ours_and_in_vectors(name: str) -> None:
    body, shapes = CASES[name]
    mod = ScheduleCPU(TARGET)(module(body, shapes, [NARROW] * len(shapes), one_kernel=True))
    kernels = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert kernels and not any("collage.unscheduled" in (func.attrs or {}) for func in kernels)
    assert all("T.vectorized" in func.script() for func in kernels)


def plain(body: Callable[..., relax.Expr], shapes: Sequence[tuple[int, ...]]) -> relax.Function:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, NARROW)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(*params))
        builder.emit_func_output(out)
    return builder.get()["main"]
