"""Single kernels by every backend, compared with the peaks of the machine, in microseconds.

    python benchmarks/kernels.py [--rounds 3] [--only softmax] [--backends tvm onednn openblas kernels]

Each kernel is measured by the worker process that measures candidates when a model is compiled: inputs as a neighbour
leaves them, weights where ``--weights`` says. Rounds are interleaved; the best counts, since other work on the machine
only ever adds. The floor is the arithmetic of the direct algorithm, or each input, weight and output moved once,
at the rates of the machine's caches and memory; Winograd's algorithm can go below it.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import roofline
from rich.console import Console
from rich.table import Table
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

import unity_collage as uc
from unity_collage import reference, runtime
from unity_collage.annotations import CANDIDATES
from unity_collage.backends.registry import get
from unity_collage.cost.model import Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.graph.shapes import extents_of
from unity_collage.machine import last_level
from unity_collage.machine import peaks as machine
from unity_collage.machine.caches import Caches
from unity_collage.measure.kernels import activation_tensors, make_kernel, output_tensors
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import estimate_costs
from unity_collage.passes.annotate_candidates import AnnotateCandidates
from unity_collage.report import duration
from unity_collage.scratch import Scratch
from unity_collage.testing.fixed_cost import FixedCost

NHWC: dict[str, Any] = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
BACKENDS = ("tvm", "onednn", "openblas", "kernels")
ALLOWED = 1e-4
"""Largest difference to numpy, as a part of the range."""
PLACES = ("L2", "L3", "memory")

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel: ``build(*inputs, *constants)``."""

    name: str
    build: Callable[..., Any]
    inputs: tuple[Shape, ...]
    constants: tuple[Shape, ...] = ()
    flops: float = 0.0


def _convolution(
    height: int, channels: int, out_channels: int, kernel: int = 3, groups: int = 1, stride: int = 1
) -> Row:
    """relu(conv2d(x, weights) + bias) of a square image, padded so that each stride has a result."""
    options: dict[str, Any] = {
        "padding": ((kernel - 1) // 2,) * 2 + (kernel // 2,) * 2, "strides": (stride,) * 2, "groups": groups, **NHWC
    }  # fmt: skip
    kind = "depthwise" if groups == channels else "grouped" if groups > 1 else "convolution"
    return Row(
        f"{kind} {kernel}x{kernel} {channels}-{out_channels} {height}x{height}"
        + f" / {stride}" * (stride > 1),
        lambda x, w, b: op.nn.relu(op.add(op.nn.conv2d(x, w, **options), b)),
        ((1, height, height, channels),),
        ((kernel, kernel, channels // groups, out_channels), (1, 1, 1, out_channels)),
        2.0 * (height // stride) ** 2 * kernel**2 * channels // groups * out_channels,
    )


def _product(rows: int, inner: int, columns: int) -> Row:
    shapes = ((rows, inner),), ((inner, columns),)
    return Row(f"product {rows}x{inner}x{columns}", op.matmul, *shapes, 2.0 * rows * inner * columns)


def _pool(pool: Callable[..., Any], stride: int) -> Callable[..., Any]:
    return lambda x: pool(x, (3, 3), (stride,) * 2, (1, 1, 1, 1), layout="NHWC")


ROWS = (
    Row("add+relu 56x56x256", lambda x, y: op.nn.relu(op.add(x, y)), ((1, 56, 56, 256),) * 2),
    Row("bias+relu NCHW", lambda x, b: op.nn.relu(op.add(x, b)), ((1, 512, 7, 7),), ((1, 512, 1, 1),)),
    Row("gelu 128x3072", op.nn.gelu, ((128, 3072),)),
    Row("sigmoid 672x14x14", op.sigmoid, ((1, 672, 14, 14),)),
    Row("tanh 1x1024", op.tanh, ((1, 1024),)),
    Row("softmax 12x128x128", op.nn.softmax, ((12, 128, 128),)),
    Row("softmax 6x197x197", op.nn.softmax, ((6, 197, 197),)),
    Row("softmax over channels", lambda x: op.nn.softmax(x, 1), ((1, 21, 64, 64),)),
    Row(
        "layer norm 128x768", lambda x, g, b: op.nn.layer_norm(x, g, b, [-1]), ((128, 768),), ((768,), (768,))
    ),
    Row("mean NHWC 7x7x2048", lambda x: op.mean(x, [1, 2]), ((1, 7, 7, 2048),)),
    Row("mean NCHW 2048x7x7", lambda x: op.mean(x, [2, 3]), ((1, 2048, 7, 7),)),
    Row("concat NHWC 256+32", lambda x, y: op.concat([x, y], -1), ((1, 28, 28, 256), (1, 28, 28, 32))),
    Row("transpose 0213", lambda x: op.permute_dims(x, [0, 2, 1, 3]), ((1, 128, 12, 64),)),
    Row("NCHW to NHWC", lambda x: op.permute_dims(x, [0, 2, 3, 1]), ((1, 256, 56, 56),)),
    Row("max pool 3x3, stride 2", _pool(op.nn.max_pool2d, 2), ((1, 112, 112, 64),)),
    Row("average pool 3x3", _pool(op.nn.avg_pool2d, 1), ((1, 28, 28, 192),)),
    _convolution(28, 192, 192, groups=192),
    _convolution(56, 128, 128, groups=32),
    _convolution(56, 256, 64, kernel=1),
    _convolution(56, 64, 64),
    _convolution(28, 128, 128),
    _convolution(14, 256, 256),
    _convolution(7, 512, 512),
    _convolution(224, 64, 64),
    _convolution(28, 512, 512),
    _convolution(28, 128, 32),
    _convolution(112, 64, 64, stride=2),
    _convolution(56, 128, 128, stride=2),
    _convolution(56, 128, 256, stride=2),
    _convolution(28, 256, 256, stride=2),
    _convolution(28, 256, 512, stride=2),
    _convolution(14, 512, 512, stride=2),
    _convolution(80, 32, 64, stride=2),
    _convolution(16, 128, 64, kernel=2),
    _convolution(8, 256, 128, kernel=2),
    _convolution(4, 512, 256, kernel=2),
    _product(128, 768, 768),
    _product(197, 384, 384),
    _product(1, 768, 3072),
    _product(1, 784, 256),
)


def weights(row: Row) -> list[np.ndarray]:
    """The constants of a kernel, the same in every run."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype="float32") for shape in row.constants]


def function(row: Row) -> relax.Function:
    """The kernel as a model: its weights are constants."""
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(row.inputs)]
    constants = [relax.const(array) for array in weights(row)]
    builder: Any = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(row.build(*inputs, *constants)))
        builder.emit_func_output(result)
    return builder.get()["main"]


def workloads(row: Row, backends: Sequence[str], evict_bytes: int) -> dict[str, Workload]:
    """The candidates that are the whole kernel, by backend, or algorithm where it offers several."""
    mod: Any = AnnotateCandidates(tuple(backends))(IRModule({"main": function(row)}))
    questions = estimate_costs.workloads(mod["main"], FixedCost())
    candidates = CANDIDATES.read(mod["main"])
    whole = max((len(candidate.indexes) for candidate in candidates), default=0)
    return {
        candidate.label if candidate.composites else candidate.backend: replace(
            questions[candidate.id], evict_bytes=evict_bytes
        )
        for candidate in candidates
        if len(candidate.indexes) == whole
    }


def costed(asked: dict[str, Workload], rounds: int, here: Caches) -> dict[str, float | str]:
    """The best seconds of each candidate, or why it has no cost."""
    best: dict[str, float | str] = {}
    for _ in range(rounds):
        with Scratch("kernels") as folder:
            database = CostDatabase(Path(folder) / "costs.db")
            last_level.store(database, here.l3_bytes)
            costs = MeasuredCost(database).costs(list(asked.values()))
        for name, workload in asked.items():
            cost = costs[workload.key]
            before = best.get(name)
            if cost.seconds is None:
                best.setdefault(name, str(cost.reason))
            else:
                best[name] = min(cost.low, before) if isinstance(before, float) else cost.low
    return best


def floor(row: Row, place: str, peaks: machine.Machine, here: Caches) -> float:
    """The least seconds at the machine's peaks."""
    rates = roofline.bandwidths_of(peaks)
    result = math.prod(extents_of(function(row).ret_ty))
    activations = 4 * (sum(map(math.prod, row.inputs)) + result)
    weights = 4 * sum(map(math.prod, row.constants))
    moved = activations / rates[roofline.place_of(activations, here)] + weights / rates[place]
    return max(row.flops / (peaks.flops * peaks.threads), moved)


def arrays(row: Row) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Inputs, weights and the result of a kernel."""
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape, dtype="float32") for shape in row.inputs]
    (expected,) = reference.run(function(row), inputs)
    return inputs, weights(row), np.asarray(expected)


def why_wrong(got: np.ndarray, expected: np.ndarray) -> str | None:
    """That numbers are too far from numpy's, or None."""
    error = float(np.abs(got.reshape(expected.shape) - expected).max() / np.ptp(expected))
    return None if error <= ALLOWED else f"wrong numbers, by {error:.0e} of the range"


def timed_kernels(row: Row, backends: Sequence[str] = BACKENDS) -> dict[str, Callable[[float], float]]:
    """The kernels of our backends, each as what times it: seconds to spend, and the median seconds of a run."""
    found: dict[str, Callable[[float], float]] = {}
    inputs, constants, expected = arrays(row)
    target = uc.host_target()
    with target:
        asked = workloads(row, backends, 0)
    for name, workload in asked.items():
        func = workload.func
        shapes = [extents_of(param) for param in func.params]
        values = [_of_shape(shape, [*inputs, *constants], i) for i, shape in enumerate(shapes)]
        kernel = make_kernel(func, values, get(workload.backend), target)
        outputs = output_tensors(func)
        args = [*activation_tensors(func, values), *kernel.constants, *outputs]
        kernel.function(*args)
        if (reason := why_wrong(outputs[0].numpy(), expected)) is not None:
            raise SystemExit(f"{row.name}, {name}: {reason}")

        def timed(seconds: float, run: Any = kernel.function, args: list[Any] = args) -> float:
            return statistics.median(
                runtime.measure(run, args, warmup_seconds=seconds / 5, min_runs=5, min_seconds=seconds)
            )

        found[name] = timed
    return found


def _of_shape(shape: tuple[int, ...], values: list[np.ndarray], position: int) -> np.ndarray:
    """The value of a parameter: inputs and weights come in order."""
    assert values[position].shape == shape, f"parameter {position} is {shape}, not {values[position].shape}"
    return values[position]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--weights", choices=PLACES, default="memory", help="where weights are found")
    options = parser.parse_args()
    database = uc.CostDatabase()
    peaks, here = machine.machine(database), last_level.caches(database)
    behind = {"L2": 0, "L3": 2 * here.l2_bytes, "memory": here.all_bytes}[options.weights]
    table = Table("kernel", "floor", "fastest", "of the floor", "the others", box=None)
    for row in ROWS:
        if options.only not in row.name:
            continue
        with uc.host_target():
            found = costed(workloads(row, options.backends, behind), options.rounds, here)
        known = sorted((s, name) for name, s in found.items() if isinstance(s, float))
        least = floor(row, options.weights, peaks, here)
        if not known:
            table.add_row(row.name, duration(least), "; ".join(map(str, found.values())))
            continue
        (best, name), *others = known
        rest = [f"{other} {s / best:.2f}x" for s, other in others]
        rest += [f"{other} -" for other, s in found.items() if isinstance(s, str)]
        table.add_row(
            row.name, duration(least), f"{name} {duration(best)}", f"{least / best:.0%}", ", ".join(rest)
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
