"""The gain of choosing layouts: convolutions of few channels, and networks of the benchmarks if they are named.

    python benchmarks/layouts.py [--models squeezenet shufflenet_v2] [--rounds 15]

Each is compiled with images in channels last between kernels, and with ``search_layouts``; both programs run in turns.
*First* is how many kernels of the second read or write an image in channels first where it is not the network's own.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networks
import numpy as np
from rich.console import Console
from rich.table import Table
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op

import unity_collage as uc
from unity_collage.database.costs import CostDatabase
from unity_collage.frontend.models import import_model
from unity_collage.measure.inputs import random_inputs
from unity_collage.scratch import Scratch

EDGE, LAYERS = 256, 4
SECONDS = 0.1
"""Of each program in each round."""


def few_channels(channels: int, kernel: int) -> IRModule:
    """Convolutions with ReLU behind, of images as the model has them: channels first."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, channels, EDGE, EDGE), "float32"))
    builder: Any = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for _ in range(LAYERS):
                weights = rng.standard_normal((channels, channels, kernel, kernel)) / kernel
                convolved = op.nn.conv2d(y, relax.const(weights.astype("float32")), padding=kernel // 2)
                y = builder.emit(op.nn.relu(builder.emit(convolved)))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get()


def subjects(models: list[str]) -> Iterator[tuple[str, IRModule]]:
    """The networks by name."""
    for kernel in (1, 3):
        for channels in (2, 4, 8, 16):
            yield f"{kernel}x{kernel} of {channels} channels", few_channels(channels, kernel)
    for name in models:
        yield name, import_model(networks.load(name)).mod


def seconds_of(program: uc.Program, inputs: list[np.ndarray]) -> float:
    """The median of runs one after the other."""
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(found) < 3:
        start = time.perf_counter()
        program(*inputs)
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def in_channels_first(program: uc.Program) -> int:
    """Kernels with a permutation that OfferLayouts has made."""
    kernels = (program.plan or {})["main"].kernels
    return sum(any(name.endswith(("_first", "_last")) for name in kernel.bindings) for kernel in kernels)


def row(name: str, mod: IRModule, database: CostDatabase, rounds: int) -> list[str]:
    """Both programs of a network: predicted and measured."""
    programs = [uc.compile(mod, database=database, search_layouts=search) for search in (False, True)]
    inputs = random_inputs(mod["main"])
    times = [[seconds_of(program, inputs) for program in programs] for _ in range(rounds)]
    plans = [(program.plan or {})["main"] for program in programs]
    low, middle, high = statistics.quantiles([searched / last for last, searched in times], n=4)
    return [
        name,
        *(f"{plan.seconds * 1e6:.0f}" for plan in plans),
        *(f"{statistics.median(column) * 1e6:.0f}" for column in zip(*times, strict=True)),
        f"{middle:.2f} ({low:.2f}-{high:.2f})",
        str(in_channels_first(programs[1])),
        "yes" if plans[1].proved else "no",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = [*networks.names(unseen=False), *networks.names(unseen=True)]
    parser.add_argument("--models", nargs="*", choices=everything, default=[], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    table = Table(
        "network",
        "measured, last",
        "measured, searched",
        "us, last",
        "us, searched",
        "ratio",
        "first",
        "proved",
    )
    with Scratch("layouts") as folder:
        database = CostDatabase(Path(folder) / "costs.db")
        for name, mod in subjects(options.models):
            table.add_row(*row(name, mod, database, options.rounds))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
