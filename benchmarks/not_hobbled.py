"""Single kernels of oneDNN and OpenBLAS in our programs, against the same libraries by themselves.

    python benchmarks/not_hobbled.py [--rounds 5] [--only product] [--json FILE]

The kernels are the convolutions and products of ``kernels.py``. A library by itself has its best settings: oneDNN those
of its own benchmark (``plain_onednn.cc``: it chooses every layout, and its weights are reordered beforehand), OpenBLAS
its own threads. Each is in a process of its own, with as many threads as ours. All are timed warm, as often as fits, in
interleaved rounds; a ratio is the median of those within a round.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import kernels
import numpy as np
from kernels import Row, timed_kernels
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.report import duration
from unity_collage.runtime.vendors import VENDORS
from unity_collage.scratch import Scratch

FOLDER = Path(__file__).resolve().parent
ALLOWED = 0.97
"""Our use of a library is hobbled if the library by itself needs less than this part of our time."""
_ROW_MAJOR, _NOT_TRANSPOSED = 101, 111
_WARMUP = 0.2

Times = Callable[[Row, float], float]
"""The median seconds of a run of a kernel; the number says for how many seconds it runs."""


class OneDNN:
    """oneDNN in a process of its own, with the OpenMP runtime of the system."""

    def __init__(self, rows: list[Row], threads: int, folder: Path):
        program = _compiled(folder)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._indexes = {row.name: index for index, row in enumerate(rows)}
        for row in rows:
            self._ask(_request(row))

    def seconds(self, row: Row, seconds: float) -> float:
        return float(self._ask(f"time {self._indexes[row.name]} {seconds}"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, request: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"oneDNN's process has ended at: {request}")
        return answer


def _compiled(folder: Path) -> Path:
    """The program of ``plain_onednn.cc``."""
    library = VENDORS["onednn"]
    path = library.path() if library is not None else None
    folders = [parent / "include" for parent in path.parents] if path else []
    headers = [folder for folder in folders if (folder / "dnnl.hpp").exists()]
    if path is None or not headers:
        raise SystemExit("oneDNN's headers are missing: pip install onednn-devel-cpu-gomp==2023.2.0")
    program = folder / "plain_onednn"
    source = FOLDER / "plain_onednn.cc"
    subprocess.run(
        ["g++", "-O2", "-std=c++17", "-fopenmp", str(source), f"-I{headers[0]}", str(path), f"-Wl,-rpath,{path.parent}",
         "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def _request(row: Row) -> str:
    """The line that makes the kernel of a row."""
    if row.name.startswith("product"):
        return " ".join(map(str, ("product", *row.inputs[0], row.constants[0][1])))
    (_, size, _, channels), (kernel, _, of_group, outputs) = row.inputs[0], row.constants[0]
    stride = int(row.name.rpartition(" / ")[2]) if " / " in row.name else 1
    return " ".join(map(str, ("convolution", size, channels, outputs, kernel, channels // of_group, stride)))


class OpenBLAS:
    """OpenBLAS in a process of its own, with its own threads."""

    def __init__(self, threads: int):
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve_openblas, args=(theirs, threads), daemon=True)
        self._process.start()
        theirs.close()

    def seconds(self, row: Row, seconds: float) -> float:
        self._pipe.send((*row.inputs[0], row.constants[0][1], seconds))
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


def _serve_openblas(pipe: Connection, threads: int) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    library = VENDORS["openblas"]
    path = library.path() if library is not None else None
    assert path is not None, "OpenBLAS is missing"
    call = ctypes.CDLL(str(path)).scipy_cblas_sgemm
    rng = np.random.default_rng(0)
    while (asked := pipe.recv()) is not None:
        rows, inner, columns, seconds = asked
        left, right = (
            rng.standard_normal(shape, dtype="float32") for shape in ((rows, inner), (inner, columns))
        )
        result = np.zeros((rows, columns), "float32")
        product = partial(
            call, _ROW_MAJOR, _NOT_TRANSPOSED, _NOT_TRANSPOSED, rows, columns, inner, ctypes.c_float(1),
            _pointer(left), inner, _pointer(right), columns, ctypes.c_float(0), _pointer(result), columns,
        )  # fmt: skip
        product()
        np.testing.assert_allclose(result, left @ right, rtol=1e-3, atol=1e-3)
        pipe.send(_median(product, seconds))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _median(run: Callable[[], Any], seconds: float) -> float:
    end = time.perf_counter() + _WARMUP * seconds
    while time.perf_counter() < end:
        run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def raced(
    row: Row, ours: Callable[[float], float], theirs: Times, rounds: int, seconds: float
) -> dict[str, float]:
    """Seconds of both, and the ratio of theirs to ours."""
    pairs = [(ours(seconds), theirs(row, seconds)) for _ in range(rounds)]
    own, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"ours": own, "alone": other, "ratio": statistics.median(b / a for a, b in pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each in each round")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    kinds = ("product", "convolution", "depthwise", "grouped")
    rows = [row for row in kernels.ROWS if row.name.startswith(kinds) and options.only in row.name]
    found: dict[str, dict[str, dict[str, float]]] = {}
    with Scratch("not-hobbled") as folder, ExitStack() as stack:
        onednn = OneDNN(rows, uc.num_threads(), Path(folder))
        stack.callback(onednn.close)
        openblas = OpenBLAS(uc.num_threads())
        stack.callback(openblas.close)
        alone: dict[str, Times] = {"onednn": onednn.seconds, "openblas": openblas.seconds}
        for row in rows:
            ours = timed_kernels(row, tuple(alone))
            found[row.name] = {
                name: raced(row, ours[name], alone[name], options.rounds, options.seconds)
                for name in alone
                if name in ours
            }
            print(
                row.name,
                {name: round(value["ratio"], 3) for name, value in found[row.name].items()},
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    Console(width=120).print(table(found))


def table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    """A row for each kernel and library."""
    made = Table("kernel", "library", "by itself", "ours", "by itself / ours", "", box=None)
    for name, libraries in found.items():
        for library, value in libraries.items():
            hobbled = "hobbled" if value["ratio"] < ALLOWED else ""
            made.add_row(
                name,
                library,
                duration(value["alone"]),
                duration(value["ours"]),
                f"{value['ratio']:.2f}x",
                hobbled,
            )
    return made


if __name__ == "__main__":
    main()
