"""What plans by size are worth: models with free sizes at samples and between, against other runtimes and fixed sizes.

    python benchmarks/sizes.py [--models convolutions speech encoder detector] [--rounds 5] [--budget 35]

Each model is compiled once with sizes left open (*ours*), and for each size once with that size fixed (*fixed*). All
run in turns in processes of their own, on the same inputs. A ratio is how many times faster ours is; *plan* says
whether the size is one of the samples. The column of a runtime that is not installed is empty.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import sized_models
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.database.costs import CostDatabase
from unity_collage.profile.peers.bench import interleaved, started
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import OURS
from unity_collage.profile.rounds import speedup
from unity_collage.scratch import Scratch

AGAINST = ("onnxruntime", "openvino")
FIXED = "fixed"

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Subject:
    """A model, its samples by dimension, and the sizes at which it runs: half of them are samples."""

    model: onnx.ModelProto
    samples: Mapping[str, Sequence[int]]
    sizes: Sequence[Sizes]

    def names(self) -> list[str]:
        """The dimensions whose sizes are free, in order."""
        dims = self.model.graph.input[0].type.tensor_type.shape.dim
        return [dim.dim_param for dim in dims if dim.dim_param]

    def inputs(self, sizes: Sizes) -> dict[str, np.ndarray]:
        """Random inputs of these sizes."""
        ty, left = self.model.graph.input[0].type.tensor_type, iter(sizes)
        shape = [next(left) if dim.dim_param else dim.dim_value for dim in ty.shape.dim]
        random = np.random.default_rng(0)
        if ty.elem_type == onnx.TensorProto.INT64:
            return {"x": random.integers(0, 50, shape)}
        return {"x": random.standard_normal(shape, dtype=np.float32)}


def subjects() -> dict[str, Subject]:
    """The models by name."""
    batches = [(n,) for n in (1, 2, 4, 5, 8, 12, 16, 24)]
    images = [(224, 224), (256, 320), (480, 640), (97, 133)]
    lengths = [(1, 16), (1, 32), (1, 64), (1, 128), (1, 20), (1, 77), (2, 32), (3, 100)]
    return {
        "convolutions": Subject(sized_models.convolutions(64, 16, 4), {"batch": [1, 4, 8, 16]}, batches),
        "speech": Subject(sized_models.speech(300, 120), {"batch": [1, 4, 8, 16]}, batches),
        "encoder": Subject(
            sized_models.transformer(256, 4, 128, 2),
            {"batch": [1], "length": [16, 32, 64, 128]},
            lengths,
        ),
        "detector": Subject(sized_models.detector(), {}, [(1, *edges) for edges in images]),
    }


def rows(
    name: str, subject: Subject, database: CostDatabase, options: argparse.Namespace, folder: Path
) -> list[list[str]]:
    """A row for each size of one model."""
    source, ours = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(subject.model, source)
    start = time.perf_counter()
    program = uc.compile(
        subject.model, shapes=subject.samples, database=database, budget_seconds=options.budget
    )
    seconds = time.perf_counter() - start
    program.save(ours)
    print(f"{name}: compiled in {seconds:.0f} s, {ours.stat().st_size >> 10} KiB", flush=True)
    variants = [tuple(sizes.values()) for sizes in (program.plan or {})["main"].variants.values()]
    return [
        _row(name, subject, sizes, sizes in variants, database, options, folder) for sizes in subject.sizes
    ]


def _row(
    name: str,
    subject: Subject,
    sizes: Sizes,
    has_plan: bool,
    database: CostDatabase,
    options: argparse.Namespace,
    folder: Path,
) -> list[str]:
    """Ours, the program of a fixed size and the peers, in turns at one size."""
    dims: dict[str, int] = dict(zip(subject.names(), sizes, strict=True))
    fixed = folder / f"{name}_{'_'.join(map(str, sizes))}.so"
    uc.compile(subject.model, dims=dims, database=database, budget_seconds=options.budget).save(fixed)
    inputs, threads = subject.inputs(sizes), uc.num_threads()
    with ExitStack() as stack:
        running = {
            label: stack.enter_context(RuntimeProcess(OURS, path, inputs, threads))
            for label, path in ((OURS, folder / f"{name}.so"), (FIXED, fixed))
        }
        source = folder / f"{name}.onnx"
        makers = {peer: lambda peer=peer: RuntimeProcess(peer, source, inputs, threads) for peer in AGAINST}
        found, _ = started(makers, source, inputs, stack)
        medians = interleaved(running | found, options.rounds, options.seconds)
    ratios = [
        f"{speedup(medians[OURS], medians[peer]):.2f}" if peer in medians else ""
        for peer in (FIXED, *AGAINST)
    ]
    return [
        name,
        " x ".join(map(str, sizes)),
        "yes" if has_plan else "no",
        f"{np.median(medians[OURS]) * 1e6:.1f}",
        *ratios,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    everything = subjects()
    parser.add_argument(
        "--models", nargs="*", choices=list(everything), default=list(everything), metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each program in each round")
    parser.add_argument("--budget", type=float, default=35.0, help="seconds of measuring in each compile")
    options = parser.parse_args()
    table = Table("model", "size", "plan", "us", *(f"/ {peer}" for peer in (FIXED, *AGAINST)))
    with Scratch("sizes") as folder:
        database = CostDatabase(Path(folder) / "costs.db")
        for name in options.models:
            for row in rows(name, everything[name], database, options, Path(folder)):
                table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
