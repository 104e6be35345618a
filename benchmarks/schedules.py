"""Our schedules of TVM kernels against the machine: microseconds, and the share of the memory's speed.

    python benchmarks/schedules.py [--cores 2] [--only softmax]

Each kernel's bytes (inputs and outputs once) over its time is set against a copy of a tensor that
fits the outer cache; products and convolutions show GFLOP/s instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

from unity_collage.schedule import ScheduleCPU

NHWC: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of the table."""

    name: str
    build: Callable[..., Any]
    shapes: tuple[Any, ...]
    flops: float = 0.0


def gelu(x: Any) -> Any:
    return op.nn.gelu(x)


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: op.nn.relu(op.nn.conv2d(x, w, **options, **NHWC))


ROWS = (
    Row("copy", op.negative, ((1024, 1024),)),
    Row("add+relu 256x56x56", lambda x, y: op.nn.relu(op.add(x, y)), ((1, 56, 56, 256),) * 2),
    Row("bias+relu NCHW", lambda x, b: op.nn.relu(op.add(x, b)), ((1, 512, 7, 7), (1, 512, 1, 1))),
    Row("gelu 128x3072", gelu, ((128, 3072),)),
    Row("sigmoid 672x14x14", op.sigmoid, ((1, 672, 14, 14),)),
    Row("tanh 1x1024", op.tanh, ((1, 1024),)),
    Row("softmax 12x128x128", op.nn.softmax, ((12, 128, 128),)),
    Row("softmax 6x197x197", op.nn.softmax, ((6, 197, 197),)),
    Row("softmax over channels", lambda x: op.nn.softmax(x, 1), ((1, 21, 64, 64),)),
    Row("layer norm 128x768", lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), ((128, 768), (768,), (768,))),
    Row("mean NHWC 7x7x2048", lambda x: op.mean(x, [1, 2]), ((1, 7, 7, 2048),)),
    Row("mean NCHW 2048x7x7", lambda x: op.mean(x, [2, 3]), ((1, 2048, 7, 7),)),
    Row("concat NHWC 256+32", lambda x, y: op.concat([x, y], -1), ((1, 28, 28, 256), (1, 28, 28, 32))),
    Row("transpose 0213", lambda x: op.permute_dims(x, [0, 2, 1, 3]), ((1, 128, 12, 64),)),
    Row("transpose NCHW to NHWC", lambda x: op.permute_dims(x, [0, 2, 3, 1]), ((1, 256, 56, 56),)),
    Row("max pool 3x3s2", lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC"),
        ((1, 112, 112, 64),)),
    Row("average pool 3x3", lambda x: op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), layout="NHWC"),
        ((1, 28, 28, 192),)),
    Row("depthwise 3x3", conv(padding=(1, 1), groups=192), ((1, 28, 28, 192), (3, 3, 1, 192)), 2 * 28**2 * 9 * 192),
    Row("convolution 3x3 64", conv(padding=(1, 1)), ((1, 56, 56, 64), (3, 3, 64, 64)), 2 * 56**2 * 9 * 64**2),
    Row("convolution 1x1 256-64", conv(), ((1, 56, 56, 256), (1, 1, 256, 64)), 2 * 56**2 * 256 * 64),
    Row("product 128x768x768", op.matmul, ((128, 768), (768, 768)), 2 * 128 * 768**2),
    Row("vector x matrix 768x3072", op.matmul, ((1, 768), (768, 3072)), 2 * 768 * 3072),
)  # fmt: skip


def kernel(row: Row, target: tvm.target.Target) -> tuple[Any, Any]:
    """The scheduled kernel of ``row``, and the function that calls it."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(shape), "float32")) for i, shape in enumerate(row.shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(row.build(*params))
        builder.emit_func_output(out)
    passes = (relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(),
              relax.transform.FuseTIR(), ScheduleCPU(target))  # fmt: skip
    with target:
        mod: Any = tvm.transform.Sequential(passes)(builder.finalize())
    (found,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    return found, mod["main"]


def measure(row: Row, target: tvm.target.Target) -> tuple[float, int]:
    """Seconds of one call (the median of ten means), and the bytes it reads and writes."""
    func, main = kernel(row, target)
    built: Any = tvm.compile(func.with_attr("global_symbol", "kernel"), target)
    rng = np.random.default_rng(0)
    shapes = [*row.shapes, tuple(int(extent) for extent in main.ret_ty.shape.values)]
    tensors = [tvm.runtime.tensor(rng.standard_normal(shape).astype("float32")) for shape in shapes]
    timer = built.mod.time_evaluator("kernel", tvm.cpu(), number=10, repeat=10)
    return float(np.median(timer(*tensors).results)), sum(4 * int(np.prod(shape)) for shape in shapes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": options.cores})
    seconds, nbytes = measure(ROWS[0], target)
    speed = nbytes / seconds
    print(f"{'kernel':28s} {'us':>9s} {'GB/s':>7s} {'of copy':>8s} {'GFLOP/s':>8s}")
    for row in ROWS:
        if options.only in row.name:
            seconds, nbytes = measure(row, target)
            flops = f"{row.flops / seconds / 1e9:8.0f}" if row.flops else ""
            gigabytes = nbytes / seconds / 1e9
            share = nbytes / seconds / speed
            print(f"{row.name:28s} {seconds * 1e6:9.2f} {gigabytes:7.1f} {share:7.0%} {flops}")


if __name__ == "__main__":
    main()
