"""Small TVM kernels on one thread and on all, and which of the two the schedules choose: microseconds.

    python benchmarks/threshold.py

Inputs are written by all cores before each run, as by a parallel kernel in front. *Loss* is what the choice takes over
the better of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax, tirx
from tvm.relax import op

import unity_collage as uc
from unity_collage import runtime
from unity_collage.passes.schedule_cpu import ScheduleCPU
from unity_collage.schedule import injective
from unity_collage.scratch import Scratch

NHWC: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
CHOSEN, NEVER, ALWAYS = injective.PARALLEL_WORK, 1 << 60, 1

Shape = tuple[int, ...]
Kernel = tuple[str, Callable[..., Any], tuple[Shape, ...]]


def kernels() -> Iterator[Kernel]:
    """Kernels of sizes around the threshold: name, operator, shapes of the inputs."""
    pool = {"strides": (1, 1), "padding": (1, 1, 1, 1), "layout": "NHWC"}
    for n in (2, 4, 6, 8, 12, 16, 32):
        yield f"relu {n}k", op.nn.relu, ((n * 16, 64),)
    for n in (1, 2, 4, 8):
        yield f"sigmoid {n}k", op.sigmoid, ((n * 16, 64),)
        yield f"gelu {n}k", op.nn.gelu, ((n * 8, 128),)
        yield f"softmax {n}k", op.nn.softmax, ((n * 8, 128),)
        yield f"mean of rows {n}k", lambda x: op.mean(x, [-1]), ((n * 8, 128),)
    for rows in (8, 16, 32, 64):
        yield f"product {rows}x64x64", op.matmul, ((rows, 64), (64, 64))
    for inner in (128, 256, 512, 1024):
        yield f"product 1x{inner}x128", op.matmul, ((1, inner), (inner, 128))
    for c in (8, 16, 32, 64):
        image = (1, 14, 14, c)
        yield f"max pool 14x14x{c}", lambda x: op.nn.max_pool2d(x, (3, 3), **pool), (image,)
        yield f"average pool 14x14x{c}", lambda x: op.nn.avg_pool2d(x, (3, 3), **pool), (image,)
        yield f"depthwise 14x14x{c}", _convolution(padding=(1, 1), groups=c), (image, (3, 3, 1, c))
        yield f"convolution 1x1 14x14x{c}", _convolution(), (image, (1, 1, c, c))
        yield f"concat 14x14x{c}", lambda x, y: op.concat([x, y], -1), (image, image)


def _convolution(**options: Any) -> Callable[..., Any]:
    return lambda x, w: op.nn.conv2d(x, w, **options, **NHWC)


def built(kernel: Kernel, threshold: int, path: Path) -> tuple[runtime.Runner, bool]:
    """The kernel with this threshold of work, and whether it is parallel."""
    _name, operator, shapes = kernel
    builder: Any = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(operator(*inputs))
        builder.emit_func_output(result)
    target = uc.host_target()
    passes = (relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(),
              relax.transform.FuseTIR(), ScheduleCPU(target))  # fmt: skip
    with mock.patch.object(injective, "PARALLEL_WORK", threshold), target:
        mod: Any = tvm.transform.Sequential(passes)(builder.finalize())
    (func,) = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc)]
    executable: Any = tvm.compile(func.with_attr("global_symbol", "kernel"), target)
    executable.export_library(str(path))
    rng = np.random.default_rng(0)
    extents = [*shapes, tuple(int(extent) for extent in mod["main"].ret_ty.shape.values)]
    tensors = [tvm.runtime.tensor(rng.random(shape, dtype="float32")) for shape in extents]
    function = tvm.runtime.load_module(str(path))["kernel"]
    return runtime.Runner(function, tensors, tensors), "T.parallel" in func.script()


def main() -> None:
    runtime.set_num_threads(runtime.num_threads())  # loads the pool before any kernel is
    table = Table("kernel", "one thread", "all threads", "chosen", "loss", box=None)
    with Scratch("threshold") as folder:
        for number, kernel in enumerate(kernels()):
            made = [
                built(kernel, threshold, Path(folder) / f"{number}_{threshold}.so")
                for threshold in (NEVER, ALWAYS, CHOSEN)
            ]
            times = runtime.time_in_turns(
                [runner for runner, _ in made], tolerance=0.0, min_runs=300, max_runs=400
            )
            one, every, chosen = (float(np.median(timed.seconds)) * 1e6 for timed in times)
            choice = f"{chosen:.2f} {'all' if made[-1][1] else 'one'}"
            table.add_row(kernel[0], f"{one:.2f}", f"{every:.2f}", choice, f"{chosen / min(one, every):.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
