"""One model that several threads of a process call at once: throughput and latency, ours against other runtimes.

usage: serving.py [--models NAME ...] [--callers N ...] [--rounds N] [--seconds S] [--threads N] [--database FILE]
                  [--json FILE]

Every runtime runs in a process of its own, with the same number of threads for its kernels. In each round each runtime
serves each number of callers in turn. A caller is a Python thread that calls as fast as it can, with an input of its
own. Its results are compared, bit for bit, with those of a call alone. The table has medians over the rounds of calls a
second, and of the median and the 99th percentile of a call's seconds.

OpenVINO's hint for latency has one stream of work, that for throughput one for each few threads. Models that the file
of ``--json`` has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

Run = Callable[[np.ndarray], np.ndarray]

MODELS = ("squeezenet", "mobilenetv2_100")
OURS = "unity_collage"


def ours(file: str, threads: int) -> Callable[[], Run]:
    """A saved program, shared by all callers."""
    import unity_collage as uc

    uc.set_num_threads(threads)
    program = uc.load(file)
    return lambda: lambda x: np.asarray(program(x))


def onnxruntime(file: str, threads: int) -> Callable[[], Run]:
    """A session, shared by all callers."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: lambda x: np.asarray(session.run(None, {name: x})[0])


def openvino(file: str, threads: int, hint: str = "LATENCY") -> Callable[[], Run]:
    """A compiled model, with a request for each caller."""
    import openvino as runtime  # pyright: ignore[reportMissingImports]

    core = runtime.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": hint}
    compiled = core.compile_model(core.read_model(file), "CPU", settings)

    def caller() -> Run:
        request = compiled.create_infer_request()

        def run(x: np.ndarray) -> np.ndarray:
            request.infer([x])
            return np.array(request.get_output_tensor(0).data)

        return run

    return caller


def openvino_throughput(file: str, threads: int) -> Callable[[], Run]:
    """The same, with the hint for throughput."""
    return openvino(file, threads, "THROUGHPUT")


RUNTIMES = {
    OURS: ours,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "openvino, throughput": openvino_throughput,
}
"""The function of each runtime that makes the callable of a caller."""


class Server:
    """A runtime with a model, in a process of its own."""

    def __init__(self, runtime: str, file: Path, shape: Sequence[int], threads: int):
        self._runtime = runtime
        arguments = [runtime, str(file), json.dumps(list(shape)), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def serve(self, callers: int, seconds: float) -> dict[str, Any]:
        """Serve some callers for a while; the result is that of :func:`served`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([callers, seconds]) + "\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"the process of {self._runtime} ended with code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def worker(runtime: str, file: str, shape: str, threads: str) -> None:
    """The main loop of a runtime's process."""
    caller = RUNTIMES[runtime](file, int(threads))
    rng = np.random.default_rng(0)
    for line in sys.stdin:
        callers, seconds = json.loads(line)
        inputs = [rng.standard_normal(json.loads(shape), dtype=np.float32) for _ in range(callers)]
        print(json.dumps(served([caller() for _ in inputs], inputs, seconds)), flush=True)


def served(runs: Sequence[Run], inputs: Sequence[np.ndarray], seconds: float) -> dict[str, Any]:
    """Calls a second, the median and 99th percentile of their seconds, and how many results differ from those of a
    single caller.
    """
    right = [run(x).copy() for run, x in zip(runs, inputs, strict=True)]
    found: list[list[float]] = [[] for _ in runs]
    wrong = [0] * len(runs)
    start = threading.Barrier(len(runs) + 1)

    def call(number: int) -> None:
        run, x, expected, times = runs[number], inputs[number], right[number], found[number]
        start.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            result = run(x)
            times.append(time.perf_counter() - begin)
            wrong[number] += not np.array_equal(result, expected)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(len(runs))]
    for thread in callers:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in callers:
        thread.join()
    times = np.array(sorted(value for times in found for value in times))
    return {
        "throughput": len(times) / (time.perf_counter() - begin),
        "median": float(np.median(times)),
        "p99": float(np.quantile(times, 0.99)),
        "wrong": sum(wrong),
    }


def measured(name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All runtimes on one model."""
    import networks
    import onnx

    import unity_collage as uc

    model = networks.load(name)
    source, program = folder / f"{name}.onnx", folder / f"{name}.so"
    onnx.save(model, source)
    compiled = uc.compile(model, database=options.database, threads=options.threads)
    compiled.save(program)
    assert compiled.signature is not None
    shape = [int(size) for size in getattr(compiled.signature.inputs[0], "shape", None) or ()]
    there = [runtime for runtime in RUNTIMES if find_spec(runtime.partition(",")[0]) is not None]
    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {runtime: {} for runtime in there}
    with ExitStack() as stack:
        servers = {
            runtime: stack.enter_context(
                closing(Server(runtime, program if runtime == OURS else source, shape, options.threads))
            )
            for runtime in there
        }
        for _ in range(options.rounds):
            for callers in options.callers:
                for runtime, server in servers.items():
                    rounds[runtime].setdefault(str(callers), []).append(
                        server.serve(callers, options.seconds)
                    )
    return {
        "missing": [runtime for runtime in RUNTIMES if runtime not in there],
        "runtimes": {
            runtime: {callers: _summary(found) for callers, found in by_callers.items()}
            for runtime, by_callers in rounds.items()
        },
    }


def _summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    medians = {key: statistics.median(one[key] for one in found) for key in ("throughput", "median", "p99")}
    return {**medians, "wrong": sum(one["wrong"] for one in found)}


def main(arguments: Sequence[str]) -> None:
    from result_file import ResultFile

    options = _options(arguments)
    results = ResultFile(options.json, options)
    with TemporaryDirectory(prefix="collage-serving-") as folder:
        is_complete = results.fill(options.models, lambda name: measured(name, Path(folder), options))
    _print(results.rows)
    sys.exit(not is_complete)


def _print(rows: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from unity_collage.report import duration

    table = Table("model", "callers", "runtime", "calls a second", "median", "p99", "wrong", box=None)
    for name, row in rows.items():
        runtimes = row["runtimes"]
        for callers in next(iter(runtimes.values())):
            for runtime, by_callers in runtimes.items():
                found = by_callers[callers]
                figures = [f"{found['throughput']:.0f}", duration(found["median"]), duration(found["p99"])]
                table.add_row(name, callers, runtime, *figures, str(found["wrong"]))
    missing = dict.fromkeys(runtime for row in rows.values() for runtime in row["missing"])
    if missing:
        table.caption = f"not installed: {', '.join(missing)}"
    Console(width=120).print(table)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    import unity_collage as uc

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--callers", nargs="+", type=int, default=[1, 2, 4], metavar="N")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--threads", type=int, default=uc.num_threads())
    parser.add_argument("--database")
    parser.add_argument("--json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main(sys.argv[1:])
