"""All models against all peers: interleaved rounds, every runtime in a process of its own, same threads and precision.

usage: zoo.py [--unseen] [--precision bf16] [--rounds N] [--seconds S] [--against NAME ...] [--forced BACKEND ...]
              [--models NAME ...] [--database FILE] [--refine] [--kernels-only] [--json FILE] [--plot FILE.svg]
              [--roofline FILE.svg]

``--unseen`` runs the networks of ``unseen/`` in place of the zoo: nothing was tuned for them. ``--precision bf16``
compares programs in bfloat16: ours compiled for it, against OpenVINO with its default precision.

The row of a model: median of each runtime, how many times faster ours is than the best of them (the median of the
ratios within a round, with the spread of the middle half), the floor at the machine's measured peaks (its direct
arithmetic, or each weight, input and output moved once), the largest difference to ONNX Runtime's outputs over their
range, and how fast a core read what another wrote, before each round and after the last (``exchange.py``). *Measured*
is what the plan's kernels cost together, each measured by itself. The programs that ``compile`` compared, those of
other runtimes for the whole model among them, are in the JSON file; ``--kernels-only`` leaves runtimes out. Results
are added to the JSON file model by model: what is there already is not run again unless it is named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import exchange
import league
import networks
import numpy as np
import onnx
import plots
import roofline
import zoo_models as models
from league import STOCK
from rich.console import Console
from rich.table import Table
from torch_peer.runtime import TORCH_COMPILE, process_of

import unity_collage as uc
from unity_collage.backends import select
from unity_collage.feedback import Refinement
from unity_collage.profile.peers.bench import interleaved, started
from unity_collage.profile.peers.runtimes import OURS, PEERS
from unity_collage.report import duration
from unity_collage.scratch import Scratch

REFERENCE = "onnxruntime"
"""The runtime with the reference outputs; in float32 for any precision."""
AGAINST = {"f32": ("onnxruntime", "openvino"), "bf16": (REFERENCE, "openvino-default")}


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    database = uc.CostDatabase(options.database)
    known: dict[str, Any] = {"models": {}}
    if options.json and Path(options.json).exists():
        known = json.loads(Path(options.json).read_text())
    if known.setdefault("precision", options.precision) != options.precision:
        raise SystemExit(f"{options.json} holds results in {known['precision']}: name another file")
    known |= {
        "threads": uc.num_threads(),
        "target": str(uc.host_target()),
        **roofline.limits_of(database),
    }
    every = networks.names(options.unseen)
    for name in options.models or [name for name in every if name not in known["models"]]:
        known["models"][name] = _row(name, options, database)
        if options.json:
            Path(options.json).write_text(json.dumps(known, indent=1) + "\n")
    Console(width=180).print(table_of(known))
    if options.plot:
        plots.speedups(known, options.plot)
    if options.roofline:
        plots.roofs(known, options.roofline)


def _row(name: str, options: argparse.Namespace, database: uc.CostDatabase) -> dict[str, Any]:
    """Everything about one model."""
    model = networks.load(name)
    feeds = models.inputs(model)
    print(f"{name}: compiling", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    refine = Refinement() if options.refine else None
    program = uc.compile(
        model,
        database=database,
        backends=kernel_backends() if options.kernels_only else None,
        refine=refine,
        precision=options.precision,
        packs=False,
        recompile=True,
    )
    row: dict[str, Any] = {"compile_seconds": time.perf_counter() - begin}
    plans = list((program.plan or {}).values())
    row["predicted_seconds"] = sum(plan.seconds for plan in plans)
    kernels = [kernel.backend for plan in plans for kernel in plan.kernels]
    row["kernels"] = {backend: kernels.count(backend) for backend in dict.fromkeys(kernels)}
    if plans and (compared := plans[0].comparison) is not None:
        row["winner"] = compared.winner
        row["programs"] = {each.name: each.seconds or each.reason for each in compared.programs}
    row |= {"flops": roofline.flops_of(model), "bytes": roofline.bytes_of(model)}
    with Scratch("zoo") as folder, ExitStack() as stack:
        source, ours = Path(folder) / "model.onnx", Path(folder) / "model.so"
        onnx.save(model, source)
        program.save(ours)
        del program
        entries = {OURS: (OURS, ours)} | {peer: (peer, source) for peer in options.against}
        for backend in options.forced:
            entries[f"{backend} forced"] = (OURS, Path(folder) / f"{backend}.so")
            forced = uc.compile(
                model, backends=[backend], database=database, precision=options.precision, packs=False
            )
            forced.save(entries[f"{backend} forced"][1])
        makers = {
            entry: partial(process_of, *found, feeds, uc.num_threads()) for entry, found in entries.items()
        }
        processes, row["missing"] = started(makers, source, feeds, stack)
        print(f"{name}: timing", file=sys.stderr, flush=True)
        exchanged: list[float | None] = []
        row["seconds"] = interleaved(
            {peer: c for peer, c in processes.items() if peer != STOCK},
            options.rounds,
            options.seconds,
            before_round=lambda: exchanged.append(exchange.bandwidth()),
        )
        row["exchange_bandwidth"] = [*exchanged, exchange.bandwidth()]
        if STOCK in processes:
            row["seconds"][STOCK] = [statistics.median(processes[STOCK](0.0))]
        outputs = {peer: process.outputs() for peer, process in processes.items()}
    if REFERENCE in outputs:
        pairs = zip(outputs[OURS], outputs[REFERENCE], strict=True)
        row["error"] = float(np.max([_error(got, expected) for got, expected in pairs]))  # NaN stays one
    return row


def kernel_backends() -> list[str]:
    """The backends that make kernels on this machine, without runtimes for whole models."""
    return [backend.name for backend in select(None, uc.host_target())]


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / max(float(np.ptp(expected)), 1e-30))


def table_of(known: dict[str, Any]) -> Table:
    """One row a model, and the geometric mean."""
    peers = league.peers_in(known)
    columns = ("compile", "kernels", "measured", "ours", "floor", *peers)
    table = Table("model", *columns, "best peer / ours", "error", "exchange", box=None)
    for name, row in sorted(known["models"].items()):
        table.add_row(name, *_durations(row, known, peers), *league.verdict(row, known["precision"]))
    if medians := league.medians_of(known):
        mean = league.geometric_mean(list(medians.values()))
        table.add_row("geometric mean", *[""] * len(columns), f"{mean:.2f}x", "", "")
    return table


def _durations(row: dict[str, Any], known: dict[str, Any], peers: list[str]) -> list[str]:
    timed = [statistics.median(row["seconds"][who]) if row["seconds"].get(who) else None for who in peers]
    seconds = [
        row["predicted_seconds"],
        statistics.median(row["seconds"][OURS]),
        roofline.floor_of(row, known),
        *timed,
    ]
    kernels = " ".join(f"{backend} {count}" for backend, count in row["kernels"].items())
    return [f"{row['compile_seconds']:.0f} s", kernels, *("" if s is None else duration(s) for s in seconds)]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--unseen", action="store_true", help="the networks of unseen/ in place of the zoo")
    everything = [*networks.names(False), *networks.names(True)]
    parser.add_argument("--models", nargs="+", choices=everything, metavar="NAME")
    parser.add_argument("--against", nargs="*", choices=sorted([*PEERS, TORCH_COMPILE]))
    parser.add_argument("--precision", choices=sorted(league.PEERS), default="f32")
    parser.add_argument("--forced", nargs="*", default=[], help="our plans with one backend forced, too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each runtime in each round")
    parser.add_argument("--database")
    parser.add_argument(
        "--kernels-only", action="store_true", help="without other runtimes' programs for the whole model"
    )
    parser.add_argument(
        "--refine", action="store_true", help="let whole programs compete before ours is saved"
    )
    parser.add_argument("--json")
    parser.add_argument("--plot", metavar="FILE.svg", help="how many times faster, by model and peer")
    parser.add_argument("--roofline", metavar="FILE.svg", help="rates under the roofs of the machine")
    options = parser.parse_args(arguments)
    if options.against is None:
        options.against = list(AGAINST[options.precision])
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
