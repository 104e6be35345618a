"""Latency over the model zoo: our mixed plan, our single-backend plans, ONNX Runtime, stock TVM; one interleaved run.

usage: models.py [--rounds N] [--seconds S] [--database FILE] [--json FILE] [MODEL ...]

Every contestant has the same threads and float32. Medians of rounds; ratios are medians of the ratios within a round.
Stock TVM (``relax.build`` alone) is timed for one round, as it is so slow.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

import unity_collage as uc
from unity_collage import bench, runtime
from unity_collage.frontend import import_model
from unity_collage.report.text import duration
from unity_collage.testing import models

SINGLE = ("onednn", "openblas", "tvm")
"""Backends whose forced plan (rest TVM) takes part."""


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    database = uc.CostDatabase(options.database)
    rows = [_row(name, options, database) for name in options.models or models.names()]
    Console(width=200).print(_table(rows))
    if options.json:
        header = {"threads": uc.num_threads(), "target": str(uc.host_target()), "rounds": options.rounds}
        Path(options.json).write_text(json.dumps({**header, "models": rows}, indent=2) + "\n")


def _row(name: str, options: argparse.Namespace, database: uc.CostDatabase) -> dict[str, object]:
    """Everything about one model: seconds to compile, medians by contestant, largest error."""
    model = models.load(name)
    feeds = models.inputs(model)
    print(f"{name}: compiling", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    mixed = uc.compile(model, database=database)
    compile_seconds = time.perf_counter() - begin
    programs = {"mixed": mixed}
    programs |= {backend: uc.compile(model, backends=[backend], database=database) for backend in SINGLE}
    contestants = {key: bench.our_contestant(program, feeds) for key, program in programs.items()}
    contestants["onnxruntime"] = bench.onnxruntime_contestant(model, feeds)
    print(f"{name}: timing", file=sys.stderr, flush=True)
    medians = bench.interleaved(contestants, options.rounds, options.seconds)
    if not options.no_stock:
        medians["stock"] = [statistics.median(_stock(model, feeds)(options.seconds))]
    errors = {key: _error(program, model, feeds) for key, program in programs.items()}
    kernels = [kernel for plan in (mixed.plan or {}).values() for kernel in plan["kernels"]]
    counts = {backend: sum(kernel["backend"] == backend for kernel in kernels) for backend in SINGLE}
    predicted = sum(plan["seconds"] for plan in (mixed.plan or {}).values())
    return {
        "model": name,
        "compile_seconds": compile_seconds,
        "predicted_seconds": predicted,
        "kernels": counts,
        "seconds": medians,
        "errors": errors,
    }


def _error(program: uc.Program, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """Largest error of the first output against ONNX Runtime's, over the range of the latter."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, feeds)[0])
    outputs = program(**feeds)
    got = (outputs if isinstance(outputs, tvm.runtime.Tensor) else outputs[0]).numpy()
    return float(np.abs(got - expected).max() / (expected.max() - expected.min()))


def _stock(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bench.Timed:
    """``relax.build`` alone, for the host, on our pool."""
    mod, names = import_model(model)
    machine = relax.VirtualMachine(relax.build(mod, uc.host_target()), tvm.cpu())
    tensors = [tvm.runtime.tensor(feeds[name]) for name in names or ()]
    machine.save_function("main", "stock_main", *tensors)
    run = machine.module["stock_main"]
    return lambda seconds: runtime.measure(run, [], warmup_seconds=0.0, min_runs=1, min_seconds=seconds)


def _table(rows: list[dict[str, object]]) -> Table:
    table = Table("model", "compile", "kernels", "mixed", "predicted", box=None)
    for column in ("onednn", "openblas", "tvm", "onnxruntime", "stock"):
        table.add_column(f"{column} / mixed", justify="right")
    table.add_column("error")
    for row in rows:
        seconds = row["seconds"]
        assert isinstance(seconds, dict)
        mixed = seconds["mixed"]
        cells = [
            row["model"],
            f"{row['compile_seconds']:.1f} s",
            " ".join(str(n) for n in row["kernels"].values()),
        ]
        cells += [duration(statistics.median(mixed)), duration(row["predicted_seconds"])]
        for other in ("onednn", "openblas", "tvm", "onnxruntime"):
            cells.append(f"{bench.speedup(mixed, seconds[other]):.2f}x")
        stock = seconds.get("stock")
        cells.append("" if stock is None else f"{stock[0] / statistics.median(mixed):.0f}x")
        table.add_row(*cells, f"{max(row['errors'].values()):.0e}")
    return table


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each contestant in each round")
    parser.add_argument("--database", help="prices (default: the user's own)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--no-stock", action="store_true", help="leave out stock TVM")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
