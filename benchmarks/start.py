"""How long a new process takes to its first result, and how much memory it needs at most: ours against other runtimes.

usage: start.py [--models NAME ...] [--rounds N] [--threads N] [--database FILE] [--json FILE]

Each run is a process of its own, from the call of ``exec`` until the result is there, in interleaved rounds; the table
has medians. Ours runs a saved program from Python and, where there is a C++ compiler, from C++
(``examples/cpp/run.cc``). ONNX Runtime also reads the file that it has optimized itself, and OpenVINO its cache: then
neither compiles anything, like ours. Runtimes that are not installed are listed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networks
import onnx
import tvm_ffi
import tvm_ffi.libinfo
from rich.console import Console
from rich.table import Table
from start_scripts import CONVERT_ONNXRUNTIME, SCRIPTS

import unity_collage as uc
from unity_collage.converting import to_mnn
from unity_collage.report import duration
from unity_collage.runtime.libraries import needed_by
from unity_collage.runtime.virtual_machine import runtimes_in

MODELS = ("squeezenet", "mobilenetv2_100")
OURS, OURS_CPP = "unity_collage", "unity_collage, C++"
MODULES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "MNN": "MNN"}
"""The module of a runtime, by the first word of its name."""
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "cpp" / "run.cc"
TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Start:
    """One way to start."""

    command: Sequence[str]
    read: Callable[[str], dict[str, Any]]
    """The output of the process: its clock, peak and first value."""

    def run(self) -> dict[str, Any]:
        """Run it once; raises CalledProcessError with what it wrote."""
        begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        done = subprocess.run(
            self.command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS, cwd="/"
        )
        said = self.read(done.stdout)
        return said | {"seconds": said["clock"] - begin}


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    uc.set_num_threads(options.threads)
    known: dict[str, Any] = {
        "threads": options.threads,
        "target": str(uc.host_target()),
        "missing": [name for name, module in MODULES.items() if find_spec(module) is None],
        "models": {},
    }
    with TemporaryDirectory(prefix="collage-start-") as folder:
        starts = {name: _starts(name, Path(folder), options) for name in options.models}
        for ways in starts.values():
            for start in ways.values():
                start.run()  # files come into the caches of the system, and OpenVINO's cache is filled
        found: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in starts}
        for _ in range(options.rounds):
            for name, ways in starts.items():
                for way, start in ways.items():
                    found[name].setdefault(way, []).append(start.run())
    known["models"] = {
        name: {way: _summary(runs) for way, runs in ways.items()} for name, ways in found.items()
    }
    if options.json:
        Path(options.json).write_text(json.dumps(known, indent=1) + "\n")
    Console(width=120).print(table_of(known))


def _starts(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Start]:
    """The ways to start one model, with the file that each reads."""
    model = networks.load(name)
    source, ours = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(model, source)
    program = uc.compile(model, database=options.database, recompile=True)
    program.save(ours)
    signature = program.signature
    assert signature is not None
    shape = "x".join(str(size) for size in getattr(signature.inputs[0], "shape", None) or ())
    files = {OURS: ours, "import numpy": source}
    files |= {way: path for way in MODULES if (path := _converted(way, source)) is not None}
    files |= {
        f"onnxruntime, {what}": path
        for what, path in [("optimized file", source.with_suffix(".optimized.onnx"))]
        if path.exists()
    }
    if "openvino" in files:
        files["openvino, cached"] = source
    scripts = {way: script for way, script in SCRIPTS.items() if way in files}
    starts = {
        way: Start([sys.executable, "-c", script, str(files[way]), shape, str(options.threads)], _last_line)
        for way, script in scripts.items()
    }
    if (native := _native(folder)) is not None:
        needed = needed_by(runtimes_in(program._executable))
        starts[OURS_CPP] = Start([str(native), str(ours), shape, *map(str, needed)], _lines)
    return starts


def _converted(way: str, source: Path) -> Path | None:
    """The file that a runtime reads, or None if it is not installed."""
    if find_spec(MODULES[way]) is None:
        return None
    if way == "onnxruntime":
        target = source.with_suffix(".optimized.onnx")
        _quietly([sys.executable, "-c", CONVERT_ONNXRUNTIME, str(source), str(target)])
    if way == "MNN":
        target = source.with_suffix(".mnn")
        to_mnn(source, target, TIMEOUT_SECONDS)
        return target
    return source


def _native(folder: Path) -> Path | None:
    """The example of C++, built; None without a compiler."""
    compiler, program = shutil.which("g++"), folder / "run"
    if compiler is None:
        return None
    if not program.exists():
        library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
        headers = [f"-isystem{path}" for path in tvm_ffi.libinfo.include_paths()]
        link = [f"-L{library.parent}", "-ltvm_ffi", "-ldl", f"-Wl,-rpath,{library.parent}"]
        _quietly([compiler, "-std=c++17", "-O2", str(EXAMPLE), "-o", str(program), *headers, *link])
    return program


def _quietly(command: Sequence[str]) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_SECONDS)


def _last_line(text: str) -> dict[str, Any]:
    """The last line of a script; MNN prints lines of its own before."""
    return json.loads(text.splitlines()[-1])


def _lines(text: str) -> dict[str, Any]:
    words = dict(line.split(maxsplit=1) for line in text.splitlines())
    return {
        "clock": float(words["clock"]),
        "peak": int(words["peak"]),
        "first": float(words["first"].split()[0]),
    }


def _summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "seconds": [round(run["seconds"], 5) for run in runs],
        "peak_kilobytes": int(statistics.median(run["peak"] for run in runs)),
        "first": runs[0]["first"],
        "libraries": runs[0].get("libraries", []),
    }


def table_of(known: Mapping[str, Any]) -> Table:
    """A row for each model and way to start."""
    table = Table("model", "runtime", "first result", "beyond import numpy", "peak memory", box=None)
    for name, ways in known["models"].items():
        numpy = statistics.median(ways["import numpy"]["seconds"])
        for way, row in ways.items():
            seconds = statistics.median(row["seconds"])
            beyond = "" if way in ("import numpy", OURS_CPP) else duration(seconds - numpy)
            table.add_row(name, way, duration(seconds), beyond, f"{row['peak_kilobytes'] / 1024:.0f} MB")
    if known["missing"]:
        table.caption = f"not installed: {', '.join(known['missing'])}"
    return table


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", nargs="+", default=list(MODELS), choices=networks.names(False), metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=uc.num_threads())
    parser.add_argument("--database")
    parser.add_argument("--json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
