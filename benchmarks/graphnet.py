"""Graphs of published PyTorch models (GraphNet) through ``uc.compile``, compared with eager, and timed against it.

usage: graphnet.py SAMPLES RESULTS.json [--graphs NAME ...] [--list FILE] [--onnx] [--time] [--rounds N] [--seconds S]
                   [--budget S] [--timeout S] [--database FILE]

SAMPLES is the folder ``samples`` of a checkout of the data set. ``--list`` is a file with a graph a line; without it
and ``--graphs`` every graph of the folder is tried. Each is compiled in a process of its own. It ends as one class:

* load: the sample's own code fails, or its results are not finite
* export: ``torch.export`` fails
* import, compile, run: ours fails, and where
* unstable: wrong, and so is eager without oneDNN
* wrong: a result has another shape or dtype, or is off by more than 2e-3 of the largest
* crash, timeout: the process ended, or was ended
* ok

``--onnx`` takes the graph through torch's own exporter to ONNX first. ``--time`` times ours, eager, torch.compile with
frozen weights and ONNX Runtime in turns, each in a process of its own; the floor of a graph is its direct arithmetic,
or each weight, input and output moved once, at the machine's measured peaks. Results are added to the JSON file graph
by graph: what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import roofline
from rich.console import Console
from rich.table import Table

from unity_collage import CostDatabase, num_threads
from unity_collage.errors import first_line
from unity_collage.profile.peers.bench import interleaved
from unity_collage.profile.peers.runtime_process import RuntimeMissing, RuntimeProcess
from unity_collage.profile.peers.runtimes import ONNX_RUNTIME, OURS
from unity_collage.scratch import Scratch

FOLDER = Path(__file__).resolve().parent
TORCHS_FAULT = ("load", "export", "unstable")
"""Classes of graphs that say nothing of ours."""
NEAR = 1.1
"""A graph that takes at most this many times its floor cannot get much faster."""
PEERS = {"eager": "graphnet_samples:eager", "torch-compile": "graphnet_samples:inductor"}


def main() -> None:
    options = _options()
    found = json.loads(options.results.read_text()) if options.results.exists() else {}
    for name in names_of(options):
        if name in found:
            continue
        with Scratch("graphnet") as folder:
            result = checked(options, name, Path(folder))
            if options.time and result["class"] == "ok":
                result |= timed(options, name, Path(folder))
        found[name] = result
        options.results.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{name}: {result['class']} {result.get('why', '')}", flush=True)
    Console().print(table(found), summary(found), sep="\n", soft_wrap=True, highlight=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("samples", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--graphs", nargs="+", metavar="NAME")
    parser.add_argument("--list", type=Path, metavar="FILE")
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a round")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of measuring")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for a graph")
    parser.add_argument("--database", type=Path, metavar="FILE")
    return parser.parse_args()


def names_of(options: argparse.Namespace) -> list[str]:
    """The graphs to try, by their folders."""
    if options.graphs:
        return options.graphs
    if options.list:
        lines = (line.partition("#")[0].strip() for line in options.list.read_text().splitlines())
        return [line for line in lines if line]
    return sorted(str(path.parent.relative_to(options.samples)) for path in options.samples.rglob("model.py"))


def checked(options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The class of a graph, with the reason, from a process of its own; what is timed is in ``folder`` then."""
    command = [
        sys.executable, str(FOLDER / "graphnet_check.py"), str(options.samples / name), str(folder),
        "--budget", str(options.budget),
        *(["--onnx"] if options.onnx else []),
        *(["--database", str(options.database)] if options.database else []),
        *(["--save"] if options.time else []),
    ]  # fmt: skip
    with (folder / "log").open("w") as log_file:
        try:
            code = subprocess.run(
                command, stdout=log_file, stderr=log_file, timeout=options.timeout
            ).returncode
        except subprocess.TimeoutExpired:
            return {"class": "timeout"}
    result = folder / "result.json"
    return (
        json.loads(result.read_text()) if result.exists() else {"class": "crash", "why": f"exit code {code}"}
    )


def timed(options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The median seconds of each runtime, and why another one is missing."""
    with np.load(folder / "inputs.npz") as stored:
        inputs = {key: stored[key] for key in stored.files}
    missing: dict[str, str] = {}
    threads = num_threads()
    with ExitStack() as stack:

        def opened(peer: str, path: Path, runner: str | None, feeds: Mapping[str, np.ndarray]) -> None:
            try:
                runtimes[peer] = stack.enter_context(
                    RuntimeProcess(peer, path, feeds, threads, runner, [FOLDER])
                )
            except RuntimeMissing as error:
                missing[peer] = first_line(error)

        runtimes: dict[str, RuntimeProcess] = {}
        opened(OURS, folder / "model.so", None, inputs)
        for peer, runner in PEERS.items():
            opened(peer, options.samples / name, runner, inputs)
        if (folder / "model.onnx").exists():
            opened(ONNX_RUNTIME, folder / "model.onnx", None, _by_onnx_name(folder / "model.onnx", inputs))
        seconds = interleaved(runtimes, options.rounds, options.seconds)
    result = {
        "seconds": {peer: statistics.median(rounds) for peer, rounds in seconds.items()},
        "missing": missing,
    }
    if (folder / "model.onnx").exists():
        model = onnx.load(folder / "model.onnx", load_external_data=False)
        needed = {"flops": roofline.flops_of(model), "bytes": roofline.bytes_of(model)}
        limits = roofline.limits_of(CostDatabase(options.database))
        result |= {**needed, "floor_seconds": roofline.floor_of(needed, limits)}
    return result


def _by_onnx_name(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs by the names that torch's exporter gave them."""
    graph = onnx.load(path, load_external_data=False).graph
    return {value.name: array for value, array in zip(graph.input, inputs.values(), strict=True)}


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each graph."""
    shown = Table("graph", "class", "error", "ours", "best of the others / ours", "why")
    for name, result in sorted(found.items()):
        seconds = result.get("seconds", {})
        ours = f"{seconds[OURS] * 1e3:.3f} ms" if OURS in seconds else ""
        ratio = f"{_ratio(seconds):.2f}" if len(seconds) > 1 else ""
        error = f"{result['error']:.0e}" if "error" in result else ""
        shown.add_row(name, result["class"], error, ours, ratio, result.get("why", ""))
    return shown


def _ratio(seconds: Mapping[str, float]) -> float:
    """How many times our time the fastest of the others takes."""
    return min(value for peer, value in seconds.items() if peer != OURS) / seconds[OURS]


def summary(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The number of graphs of each class, and of those that torch exports how many are right."""
    classes = Counter(result["class"] for result in found.values())
    ours = sum(count for name, count in classes.items() if name not in TORCHS_FAULT)
    lines = [
        ", ".join(f"{name} {count}" for name, count in classes.most_common()),
        f"of {ours} graphs that torch exports {classes['ok']} compile and are right",
    ]
    timed = {name: result for name, result in sorted(found.items()) if len(result.get("seconds", {})) > 1}
    if timed:
        lines.append("best of the others / ours:")
        lines += [
            _comparison(kind, [timed[name] for name in names])
            for kind, names in groupby(timed, lambda name: name.partition("/")[0])
        ]
        lines.append(_comparison("all", list(timed.values())))
    return "\n".join(lines)


def _comparison(kind: str, results: Sequence[Mapping[str, Any]]) -> str:
    """How much faster graphs of one kind are, and how many of them are as fast as they can be."""
    ratios = [_ratio(result["seconds"]) for result in results]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    near = sum(result["seconds"][OURS] <= NEAR * result.get("floor_seconds", 0.0) for result in results)
    return (
        f"  {kind}: geometric mean {mean:.2f}, least {min(ratios):.2f}, of {len(ratios)} graphs, "
        f"{near} within 10 % of their floor"
    )


if __name__ == "__main__":
    main()
