"""Quantised networks of the zoo: ours with kernels alone and with runtimes, against other runtimes.

    python benchmarks/quantised.py [--models NAME ...] [--rounds 7] [--budget 40] [--json FILE]

ONNX Runtime makes each network. ``quantize_dynamic`` makes ``MatMulInteger`` of products with weights, and activations
are quantised when the program runs. A name that ends in ``/qdq`` is that of a network that ``quantize_static`` makes:
``QuantizeLinear`` and ``DequantizeLinear`` are around its operators, with a scale for each channel of the weights; the
scales of activations are those for the inputs that are timed.

*kernels* is a compile without runtimes, *ours* one with all that is installed; each has a new database. All run in
turns in processes of their own. *float32* is ONNX Runtime with the network before it was quantised. A ratio is the
time of the other one over that of *ours*; *error* is the largest difference of ours from ONNX Runtime with the
quantised network, over the range of its result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import zoo_models
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.profile.peers.bench import interleaved, started
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import ONNX_RUNTIME, OURS
from unity_collage.profile.rounds import speedup
from unity_collage.scratch import Scratch

MODELS = (
    "bert_base_128",
    "vit_small_patch16_224",
    "t5_small_encoder",
    "resnet50/qdq",
    "mobilenetv2_100/qdq",
    "bert_base_128/qdq",
)
KERNELS, WIDE = "kernels", "float32"
_UNSEEN = Path(__file__).resolve().parent / "unseen"


class _Inputs(CalibrationDataReader):
    """One set of inputs."""

    def __init__(self, inputs: Mapping[str, np.ndarray]):
        self._left = iter([dict(inputs)])

    def get_next(self) -> dict[str, np.ndarray]:
        return next(self._left, None)  # type: ignore[return-value]


def quantise(float32: Path, made: Path, inputs: Mapping[str, np.ndarray], is_static: bool) -> None:
    """Write the quantised network of a file to ``made``."""
    if not is_static:
        quantize_dynamic(float32, made, weight_type=QuantType.QInt8)
        return
    simpler = made.with_suffix(".simpler.onnx")
    quant_pre_process(float32, simpler, skip_symbolic_shape=True)
    kinds = {"weight_type": QuantType.QInt8, "activation_type": QuantType.QUInt8, "per_channel": True}
    quantize_static(simpler, made, _Inputs(inputs), quant_format=QuantFormat.QDQ, **kinds)


def measured(title: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The times of all programs of one network, by round, and how long ours were compiled."""
    name, _, form = title.partition("/")
    float32, source = folder / f"{name}{form}.onnx", folder / f"{name}{form}_int8.onnx"
    model = zoo_models.load(name, None if name in zoo_models.names() else _UNSEEN)
    inputs = zoo_models.inputs(model)
    onnx.save(model, float32)
    quantise(float32, source, inputs, form == "qdq")
    compiled: dict[str, float] = {}
    backends = {KERNELS: ["onednn", "openblas", "kernels", "tvm"], OURS: None}
    for label, names in backends.items():
        begun = time.perf_counter()
        database = folder / f"{name}{form}_{label}.sqlite"
        program = uc.compile(source, backends=names, database=database, budget_seconds=options.budget)
        compiled[label] = time.perf_counter() - begun
        program.save(folder / f"{name}{form}_{label}.so")
    threads = uc.num_threads()
    with ExitStack() as stack:
        running = {
            label: stack.enter_context(
                RuntimeProcess(OURS, folder / f"{name}{form}_{label}.so", inputs, threads)
            )
            for label in backends
        }
        running[WIDE] = stack.enter_context(RuntimeProcess(ONNX_RUNTIME, float32, inputs, threads))
        makers = {
            peer: lambda peer=peer: RuntimeProcess(peer, source, inputs, threads)
            for peer in (ONNX_RUNTIME, "openvino")
        }
        found, missing = started(makers, source, inputs, stack)
        pairs = zip(running[OURS].outputs(), found[ONNX_RUNTIME].outputs(), strict=True)
        error = max(float(np.abs(a - b).max() / (np.ptp(b) or 1)) for a, b in pairs)
        times = interleaved(running | found, options.rounds, options.seconds)
    return {
        "compile_seconds": compiled,
        "seconds": {label: statistics.median(rounds) for label, rounds in times.items()},
        "ratios": {label: speedup(times[OURS], rounds) for label, rounds in times.items() if label != OURS},
        "error": error,
        "missing": missing,
    }


def table_of(found: Mapping[str, Any]) -> Table:
    columns = (KERNELS, ONNX_RUNTIME, "openvino", WIDE)
    table = Table("model", "ours, ms", *(f"/ {label}" for label in columns), "error", "compiled in, s")
    for name, row in found.items():
        ratios = [f"{row['ratios'][label]:.2f}" if label in row["ratios"] else "" for label in columns]
        seconds = " + ".join(f"{value:.0f}" for value in row["compile_seconds"].values())
        table.add_row(name, f"{row['seconds'][OURS] * 1e3:.2f}", *ratios, f"{row['error']:.1e}", seconds)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each program in each round")
    parser.add_argument("--budget", type=float, default=40.0, help="seconds of measuring in each compile")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with Scratch("quantised") as folder:
        for name in options.models:
            found[name] = measured(name, options, Path(folder))
            if options.json:
                known = {"threads": uc.num_threads(), "target": str(uc.host_target()), "models": found}
                options.json.write_text(json.dumps(known, indent=1) + "\n")
    Console(width=120).print(table_of(found))


if __name__ == "__main__":
    main()
