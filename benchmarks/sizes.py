"""The gain of plans by size: models with free sizes at samples and between, against other runtimes and fixed sizes.

    python benchmarks/sizes.py [--models NAME ...] [--rounds 5] [--budget 35] [--without-fixed] [--against NAME ...]
                               [--json FILE]

Each model is compiled once with sizes left open (*ours*), and for each size once with that size fixed (*fixed*).
All run in turns in processes of their own, on the same inputs. A ratio is how many times faster ours is; *sample*
says whether the size is one of the samples; *claimed* is the cost that the plan states there, over that of the best
plan for this size, so that 1 / *claimed* is what to expect of the ratio to *fixed*; *first* is the first call at a
size over later ones, and *without* the same less the time in which libraries compiled kernels for that size; *error*
is the largest difference from the first other runtime, over the range of its result. torch.compile gets a module for
each size, which it compiles for that size alone, so it is at least as fast as with ``dynamic=True``. The column of a
runtime that cannot run a model is empty, and the file says why. The first networks are of the folder ``sized``, as
torch exports them, with random weights; the others are of ``sized_models``. The sizes of a decoder are its new
tokens, of which there is one, and the tokens in its cache.
``--json`` adds each model to a file; models that it has are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sized_models
import zoo_models
from rich.console import Console
from rich.table import Table
from torch_peer.runtime import TORCH_COMPILE, process_of

import unity_collage as uc
from unity_collage.database.costs import CostDatabase
from unity_collage.plan.ranges import RangeClaim
from unity_collage.profile.peers.bench import interleaved, started
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import ONNX_RUNTIME, OURS
from unity_collage.profile.rounds import speedup
from unity_collage.runtime import compiled_for_sizes
from unity_collage.scratch import Scratch

AGAINST = (ONNX_RUNTIME, "openvino", TORCH_COMPILE)
FIXED = "fixed"
LATER_CALLS = 21
FIRST = ("first_call", "first_call_without_compiling")
_EXPORTED = Path(__file__).resolve().parent / "sized"

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Subject:
    """A model, its samples by dimension, and the sizes at which it runs: half of them are samples."""

    model: onnx.ModelProto
    samples: Mapping[str, Sequence[int]]
    sizes: Sequence[Sizes]

    def names(self) -> list[str]:
        """The dimensions with free sizes, in the order in which inputs have them first."""
        dims = [dim for value in self.model.graph.input for dim in value.type.tensor_type.shape.dim]
        return list(dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param))

    def inputs(self, sizes: Sizes) -> dict[str, np.ndarray]:
        """Random inputs of these sizes."""
        size_of, random = dict(zip(self.names(), sizes, strict=True)), np.random.default_rng(0)
        found: dict[str, np.ndarray] = {}
        for value in self.model.graph.input:
            ty = value.type.tensor_type
            shape = [size_of[dim.dim_param] if dim.dim_param else dim.dim_value for dim in ty.shape.dim]
            if ty.elem_type == onnx.TensorProto.INT64:
                found[value.name] = random.integers(0, 50, shape)
            else:
                found[value.name] = random.standard_normal(shape, dtype=np.float32)
        return found

    def has_variant(self, sizes: Sizes, variants: Iterable[Mapping[str, int]]) -> bool:
        """Whether one of the ``variants`` is for these sizes; it may leave some open."""
        sizes_of = dict(zip(self.names(), sizes, strict=True))
        return any(sizes_of.items() >= fixed.items() for fixed in variants)

    def claimed(self, sizes: Sizes, claim: RangeClaim | None) -> dict[str, float]:
        """What the plan claims at one of its samples: the cost there, over that of the best plan for this size."""
        sizes_of = dict(zip(self.names(), sizes, strict=True))
        found = next((each for each in claim.sizes if each.sizes == sizes_of), None) if claim else None
        if found is None or not found.best_seconds:
            return {}
        return {"claimed": found.seconds / found.best_seconds}


def subjects() -> dict[str, Callable[[], Subject]]:
    """The models by name, which are made when they are asked for."""
    texts = [(1, 16), (1, 64), (1, 128), (4, 32), (1, 20), (1, 77), (2, 100), (3, 33)]
    widths = [(n,) for n in (64, 128, 256, 512, 100, 180, 320, 400)]
    exported: dict[str, tuple[dict[str, list[int]], list[Sizes]]] = {
        "bert_base": ({"batch": [1, 4], "length": [16, 32, 64, 128]}, texts),
        "crnn": ({"4*columns": [64, 128, 256, 512]}, widths),
        "resnet50": ({"batch": [1, 4, 8]}, [(n,) for n in (1, 4, 8, 2, 3, 5)]),
        "t5_small_encoder": ({"batch": [1, 4], "length": [16, 32, 64, 128]}, texts),
        "yolov5n": ({}, [(320, 320), (256, 480), (416, 416), (640, 480)]),
    }
    steps = [(1, n) for n in (1, 16, 128, 512, 7, 60, 200, 400)]
    batches = [(n,) for n in (1, 2, 4, 5, 8, 12, 16, 24)]
    images = [(224, 224), (256, 320), (480, 640), (97, 133)]
    lengths = [(1, 16), (1, 32), (1, 64), (1, 128), (1, 20), (1, 77), (2, 32), (3, 100)]
    by_batch, by_length = {"batch": [1, 4, 8, 16]}, {"batch": [1], "length": [16, 32, 64, 128]}
    return {name: partial(_exported, name, *rest) for name, rest in exported.items()} | {
        "convolutions": lambda: Subject(sized_models.convolutions(64, 16, 4), by_batch, batches),
        "speech": lambda: Subject(sized_models.speech(300, 120), by_batch, batches),
        "encoder": lambda: Subject(sized_models.transformer(256, 4, 128, 2), by_length, lengths),
        "gpt2": lambda: Subject(sized_models.decoder(768, 12, 12, 50257, 1024), {}, steps),
        "llama": lambda: Subject(sized_models.llama(768, 12, 4, 12, 2048, 32000), {}, steps),
        "detector": lambda: Subject(sized_models.detector(), {}, [(1, *edges) for edges in images]),
    }


def _exported(name: str, samples: Mapping[str, Sequence[int]], sizes: Sequence[Sizes]) -> Subject:
    return Subject(zoo_models.load(name, _EXPORTED), samples, sizes)


def measured(
    name: str, subject: Subject, database: CostDatabase, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """All about one model: seconds of the compile, bytes of the program, a row for each size."""
    source, ours = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(subject.model, source)
    start = time.perf_counter()
    program = uc.compile(
        subject.model, shapes=subject.samples, database=database, budget_seconds=options.budget
    )
    seconds = time.perf_counter() - start
    program.save(ours)
    size = ours.stat().st_size
    print(f"{name}: compiled in {seconds:.0f} s, {size >> 10} KiB", flush=True)
    plan = (program.plan or {})["main"]
    rows = [
        _row(name, subject, sizes, database, options, folder)
        | {"is_sample": subject.has_variant(sizes, plan.variants.values())}
        | subject.claimed(sizes, plan.range)
        for sizes in subject.sizes
    ]
    inputs = [subject.inputs(sizes) for sizes in subject.sizes]
    pairs = [(ours, before, given) for before, given in zip([*inputs[1:], inputs[0]], inputs, strict=True)]
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        firsts = processes.starmap(first_call, pairs, chunksize=1)
    rows = [row | first for row, first in zip(rows, firsts, strict=True)]
    return {"compile_seconds": seconds, "bytes": size, "rows": rows}


def _row(
    name: str,
    subject: Subject,
    sizes: Sizes,
    database: CostDatabase,
    options: argparse.Namespace,
    folder: Path,
) -> dict[str, Any]:
    """Ours, the program of a fixed size and the peers, in turns at one size."""
    inputs, threads = subject.inputs(sizes), uc.num_threads()
    programs = {OURS: folder / f"{name}.so"}
    if not options.without_fixed:
        dims: dict[str, int] = dict(zip(subject.names(), sizes, strict=True))
        programs[FIXED] = folder / f"{name}_{'_'.join(map(str, sizes))}.so"
        fixed = uc.compile(
            subject.model, dims=dims, database=database, budget_seconds=options.budget, recompile=True
        )
        fixed.save(programs[FIXED])
    with ExitStack() as stack:
        running = {
            label: stack.enter_context(RuntimeProcess(OURS, path, inputs, threads))
            for label, path in programs.items()
        }
        source = folder / f"{name}.onnx"
        makers = {peer: partial(process_of, peer, source, inputs, threads) for peer in options.against}
        found, missing = started(makers, source, inputs, stack)
        error = _error(running[OURS].outputs(), next(iter(found.values())).outputs()) if found else None
        times = interleaved(running | found, options.rounds, options.seconds)
    return {
        "sizes": list(sizes),
        "seconds": {label: statistics.median(rounds) for label, rounds in times.items()},
        "ratios": {label: speedup(times[OURS], rounds) for label, rounds in times.items() if label != OURS},
        "error": error,
        "missing": missing,
    }


def first_call(
    path: Path, before: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """The time of the first call with ``given`` over the median of later ones, with and without compiling.

    ``before`` has another size.
    """
    program = uc.load(path)
    program(before)
    times: list[float] = []
    compiled = [compiled_for_sizes().seconds]
    for _ in range(1 + LATER_CALLS):
        begin = time.perf_counter()
        program(given)
        times.append(time.perf_counter() - begin)
        compiled.append(compiled_for_sizes().seconds)
    later = statistics.median(times[1:])
    compiling = compiled[1] - compiled[0]
    return {"first_call": times[0] / later, "first_call_without_compiling": (times[0] - compiling) / later}


def _error(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference over the range of the expected tensor."""
    return max(float(np.abs(a - b).max() / (np.ptp(b) or 1)) for a, b in zip(got, expected, strict=True))


def table_of(models: Mapping[str, Any]) -> Table:
    columns = (FIXED, *AGAINST)
    table = Table(
        "model",
        "size",
        "sample",
        "us",
        *(f"/ {label}" for label in columns),
        "claimed",
        "first",
        "without",
        "error",
    )
    for name, found in models.items():
        for row in found["rows"]:
            ratios = [f"{row['ratios'][label]:.2f}" if label in row["ratios"] else "" for label in columns]
            size, sample = " x ".join(map(str, row["sizes"])), "yes" if row["is_sample"] else "no"
            claimed = f"{row['claimed']:.2f}" if "claimed" in row else ""
            firsts = [f"{row[key]:.1f}" if key in row else "" for key in FIRST]
            ours = f"{row['seconds'][OURS] * 1e6:.1f}"
            error = "" if row["error"] is None else f"{row['error']:.1e}"
            table.add_row(name, size, sample, ours, *ratios, claimed, *firsts, error)
    return table


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
    parser.add_argument(
        "--against", nargs="*", choices=AGAINST, default=list(AGAINST), metavar="NAME", help="other runtimes"
    )
    parser.add_argument("--without-fixed", action="store_true", help="no compile for each size")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    known: dict[str, Any] = {"models": {}}
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())
    known |= {"threads": uc.num_threads(), "target": str(uc.host_target())}
    with Scratch("sizes") as folder:
        database = CostDatabase(Path(folder) / "costs.db")
        for name in options.models:
            if name in known["models"]:
                continue
            known["models"][name] = measured(name, everything[name](), database, options, Path(folder))
            if options.json:
                options.json.write_text(json.dumps(known, indent=1) + "\n")
    Console(width=120).print(table_of(known["models"]))


if __name__ == "__main__":
    main()
