"""Accuracy over the model zoo: forced and odd mixed plans against ONNX Runtime, every tenth inner tensor too.

usage: accuracy.py [--unseen] [MODEL ...]

Nothing is measured: costs are drawn by hash, so that plans mix backends as true costs never would.
Prints the largest error over the range of its tensor for each plan, and exits with 1 if any is above 1e-3.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import networks
import numpy as np
import onnx
import onnxruntime
import tvm
import zoo_models as models

from unity_collage.compiler import compile_with
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.pipeline import collage
from unity_collage.plan.costs import Cost

ALLOWED = 1e-3
EVERY = 10
PLANS: dict[str, tuple[list[str] | None, str]] = {
    "onednn": (["onednn"], "a"),
    "openblas": (["openblas"], "a"),
    "kernels": (["kernels"], "a"),
    "tvm": (["tvm"], "a"),
    "mixed a": (None, "a"),
    "mixed b": (None, "b"),
    "mixed c": (None, "c"),
}
"""Backends (None: all) and the salt of the costs, by the name of the plan."""


@dataclass(frozen=True)
class HashedCost(CostModel):
    """Costs between 1 and 10 microseconds, drawn from a hash of the question and a salt."""

    salt: str

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload.key) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(3e-7)

    def _cost(self, key: str) -> Cost:
        drawn = int(hashlib.sha256(f"{self.salt}{key}".encode()).hexdigest()[:8], 16) / 2**32
        seconds = (1 + 9 * drawn) * 1e-6
        return Cost(seconds, seconds, seconds, 1, "formula")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    worst = 0.0
    for name in options.models or networks.names(options.unseen):
        model = tapped(networks.load(name))
        feeds = models.inputs(model, seed=3)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        expected = [np.asarray(value) for value in session.run(None, feeds)]
        for plan, (backends, salt) in PLANS.items():
            program = compile_with(collage(backends, HashedCost(salt)), model)
            outputs = program(**feeds)
            got = [outputs] if isinstance(outputs, tvm.runtime.Tensor) else list(outputs)
            error = max(error_of(g.numpy(), right) for g, right in zip(got, expected, strict=True))
            kernels = Counter(kernel.backend for kernel in (program.plan or {})["main"].kernels)
            print(f"{name:24s} {plan:10s} {len(got):3d} tensors  {error:.1e}  {dict(kernels)}", flush=True)
            worst = max(worst, error)
    return int(worst > ALLOWED)


def tapped(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with every tenth inner tensor as an output: NASNet's own output hardly depends on its input."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {value.name: value for value in inferred.graph.value_info}
    outputs = {output.name for output in inferred.graph.output}
    inner = [n for node in inferred.graph.node for n in node.output if n in known and n not in outputs]
    inferred.graph.output.extend(known[name] for name in inner[::EVERY])
    return inferred


def error_of(got: np.ndarray, right: np.ndarray) -> float:
    """The largest error over the range of ``right``; infinite for another shape or dtype, or NaN where it has none."""
    if got.shape != right.shape or got.dtype != right.dtype:
        return float("inf")
    finite = np.isfinite(right)
    if not np.array_equal(got[~finite], right[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    got, right = got[finite].astype(np.float64), right[finite].astype(np.float64)
    if not right.size:
        return 0.0
    span = float(np.ptp(right)) or float(np.abs(right).max()) or 1.0
    return float(np.abs(got - right).max()) / span


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--unseen", action="store_true", help="the networks of unseen/ in place of the zoo")
    everything = [*networks.names(False), *networks.names(True)]
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(everything))
    options = parser.parse_args(arguments)
    for name in options.models:
        if name not in everything:
            parser.error(f"there is no model {name}; there are {', '.join(everything)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
