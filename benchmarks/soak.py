"""A million calls with random sizes: whether the memory of a process that runs such programs grows.

    python benchmarks/soak.py [--models NAME ...] [--calls 250000] [--budget 15] [--json FILE]

Each model is compiled once with its sizes left open, and called in a process of its own. The sizes of each call are
drawn. The batches of ``perceptron`` have more sizes than a library's kernel keeps primitives for (256), so primitives
are made and dropped all the time. The table has the resident memory after each tenth of the calls, in MB, and what came
after the first tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sized_models
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.scratch import Scratch

TENTHS = 10
_DRAWN = 1000
"""How many sets of inputs are drawn; calls take one of them by chance."""


@dataclass(frozen=True)
class Subject:
    """A model, and the smallest and greatest size of each dimension that calls have."""

    model: Callable[[], onnx.ModelProto]
    ranges: Mapping[str, tuple[int, int]]


SUBJECTS = {
    "perceptron": Subject(sized_models.perceptron, {"batch": (1, 1000)}),
    "convolutions": Subject(sized_models.convolutions, {"batch": (1, 64)}),
    "encoder": Subject(sized_models.transformer, {"batch": (1, 4), "length": (1, 24)}),
    "decoder": Subject(sized_models.decoder, {"length": (1, 1), "past": (0, 63)}),
}


def inputs_of(model: onnx.ModelProto, sizes: Mapping[str, int], random: Any) -> dict[str, np.ndarray]:
    """Random inputs of these sizes."""
    made: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        ty = value.type.tensor_type
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in ty.shape.dim]
        whole = ty.elem_type == onnx.TensorProto.INT64
        made[value.name] = (
            random.integers(0, 50, shape) if whole else random.standard_normal(shape, dtype=np.float32)
        )
    return made


def drawn(name: str) -> Iterator[dict[str, np.ndarray]]:
    """The sets of inputs that calls choose from."""
    random, subject = np.random.default_rng(0), SUBJECTS[name]
    model = subject.model()
    for _ in range(_DRAWN):
        sizes = {dim: int(random.integers(low, high + 1)) for dim, (low, high) in subject.ranges.items()}
        yield inputs_of(model, sizes, random)


def soaked(name: str, path: Path, calls: int) -> dict[str, Any]:
    """Resident bytes after each tenth of the calls; runs in a process of its own."""
    program, sets, random = uc.load(path), list(drawn(name)), np.random.default_rng(1)
    resident: list[int] = []
    begun = time.perf_counter()
    for _ in range(TENTHS):
        for number in random.integers(0, len(sets), calls // TENTHS):
            program(sets[number])
        resident.append(_resident())
    return {"calls": calls, "seconds": time.perf_counter() - begun, "resident": resident}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def table_of(found: Mapping[str, Any]) -> Table:
    table = Table("model", "calls", "seconds", *(f"{n}0 %" for n in range(1, TENTHS + 1)), "growth")
    for name, row in found.items():
        megabytes = [nbytes / 1e6 for nbytes in row["resident"]]
        figures = [f"{value:.1f}" for value in (*megabytes, megabytes[-1] - megabytes[0])]
        table.add_row(name, f"{row['calls']:,}", f"{row['seconds']:.0f}", *figures)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", choices=list(SUBJECTS), default=list(SUBJECTS), metavar="NAME")
    parser.add_argument("--calls", type=int, default=250_000, help="of each model")
    parser.add_argument("--budget", type=float, default=15.0, help="seconds of measuring in each compile")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with Scratch("soak") as folder, get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for name in options.models:
            path = Path(folder) / f"{name}.so"
            model, database = SUBJECTS[name].model(), Path(folder) / "costs.sqlite"
            uc.compile(model, budget_seconds=options.budget, database=database).save(path)
            found[name] = processes.apply(soaked, (name, path, options.calls))
            print(f"{name}: {found[name]['seconds']:.0f} s", flush=True)
    if options.json:
        target = str(uc.host_target())
        options.json.write_text(
            json.dumps({"threads": uc.num_threads(), "target": target, "models": found}, indent=1) + "\n"
        )
    Console(width=160).print(table_of(found))


if __name__ == "__main__":
    main()
