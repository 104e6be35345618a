"""3x3 convolutions of two networks by every backend: microseconds, and GFLOP/s of the plain algorithm.

    python benchmarks/winograd.py [--rounds 3] [--only 256] [--backends onednn,kernels,tvm]

Each layer is a convolution with bias and ReLU, channels last, priced by the same worker process that prices
candidates when a model is compiled, with weights that are in no cache. Rounds are interleaved; the best counts, since
other work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

from unity_collage.annotations import CANDIDATES
from unity_collage.cost.database import CostDatabase
from unity_collage.cost.measured import MeasuredCost
from unity_collage.cost.workload import Workload
from unity_collage.passes import estimate_costs
from unity_collage.passes.annotate_candidates import AnnotateCandidates
from unity_collage.target import host_target


@dataclass(frozen=True, slots=True)
class Layer:
    """A square image of ``size`` pixels a side, padded by one."""

    name: str
    channels: int
    out_channels: int
    size: int

    @property
    def flops(self) -> float:
        return 2.0 * self.size**2 * 9 * self.channels * self.out_channels


LAYERS = (
    Layer("resnet50", 64, 64, 56),
    Layer("resnet50", 128, 128, 28),
    Layer("resnet50", 256, 256, 14),
    Layer("resnet50", 512, 512, 7),
    Layer("vgg19", 64, 64, 224),
    Layer("vgg19", 64, 128, 112),
    Layer("vgg19", 128, 128, 112),
    Layer("vgg19", 128, 256, 56),
    Layer("vgg19", 256, 256, 56),
    Layer("vgg19", 256, 512, 28),
    Layer("vgg19", 512, 512, 28),
    Layer("vgg19", 512, 512, 14),
    Layer("densenet", 128, 32, 28),
)


def function(layer: Layer) -> relax.Function:
    """relu(conv2d(x, weights) + bias)"""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, layer.size, layer.size, layer.channels), "float32"))
    weights = relax.const(rng.standard_normal((3, 3, layer.channels, layer.out_channels), dtype="float32"))
    bias = relax.const(rng.standard_normal((1, 1, 1, layer.out_channels), dtype="float32"))
    builder: Any = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            options: dict[str, Any] = {"padding": (1, 1), "data_layout": "NHWC", "kernel_layout": "HWIO"}
            summed = builder.emit(op.add(builder.emit(op.nn.conv2d(x, weights, **options)), bias))
            result = builder.emit_output(op.nn.relu(summed))
        builder.emit_func_output(result)
    return builder.get()["main"]


def workloads(layer: Layer, backends: Sequence[str]) -> dict[str, Workload]:
    """The candidates that are the whole layer, by backend and algorithm."""
    mod: Any = AnnotateCandidates(tuple(backends))(IRModule({"main": function(layer)}))
    questions = estimate_costs.workloads(mod["main"])
    return {
        candidate.label if candidate.composites else candidate.backend: replace(
            questions[candidate.id], weights_in="memory"
        )
        for candidate in CANDIDATES.read(mod["main"])
        if len(candidate.indexes) == 3
    }


def priced(layer: Layer, backends: Sequence[str], rounds: int) -> dict[str, float | str]:
    """The best seconds of each candidate, or why it has no price."""
    asked = workloads(layer, backends)
    best: dict[str, float | str] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            costs = MeasuredCost(CostDatabase(Path(folder) / "prices.db")).prices(list(asked.values()))
        for name, workload in asked.items():
            cost = costs[workload.key]
            if cost.low is None or cost.seconds is None:
                best.setdefault(name, str(cost.reason))
            else:
                before = best.get(name)
                best[name] = min(cost.low, before) if isinstance(before, float) else cost.low
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="layers whose channels or network contain this")
    parser.add_argument("--backends", default="onednn,kernels,tvm")
    options = parser.parse_args()
    for layer in LAYERS:
        text = f"{layer.name} {layer.channels}-{layer.out_channels} {layer.size}x{layer.size}"
        if options.only not in text:
            continue
        with host_target():
            prices = priced(layer, options.backends.split(","), options.rounds)
        reference = prices.get("onednn")
        print(text)
        for name, seconds in prices.items():
            if isinstance(seconds, str):
                print(f"  {name:18s} {seconds}")
                continue
            ratio = f"{reference / seconds:6.2f}x of onednn" if isinstance(reference, float) else ""
            print(
                f"  {name:18s} {seconds * 1e6:9.1f} us {layer.flops / seconds / 1e9:7.0f} GFLOP/s {ratio}",
                flush=True,
            )


if __name__ == "__main__":
    main()
