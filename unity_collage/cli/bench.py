"""``unity-collage bench``: compile a model, and compare its time with other runtimes."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import CollageError
from ..profile.agreement import drawn_inputs
from ..profile.peers.bench import timed_in_turns
from ..profile.peers.runtimes import OURS, PEERS
from ..profile.rounds import speedup
from ..report import bench_table, cost_remark
from ..target import is_cuda
from .compiling import compiled, tell_accuracy
from .options import add_no_measure, add_options, positive


def add_command(commands: Any) -> None:
    """Add ``bench`` to ``commands``."""
    command = commands.add_parser("bench", help="compile a model and time it, against other runtimes too")
    add_options(command)
    add_no_measure(command)
    command.add_argument(
        "--against",
        nargs="+",
        metavar="RUNTIME",
        default=[],
        help=f"other runtimes to time: {', '.join(PEERS)}",
    )
    command.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        default=5,
        help="how many rounds they run in turns (default: 5)",
    )
    command.set_defaults(run=_bench)


def _bench_on_device(options: argparse.Namespace) -> None:
    """Show the time of the program on a GPU: that of a call whose end is awaited."""
    if options.against:
        raise CollageError(
            f"--against {options.against[0]}: it would run on the CPU, and the program on a GPU"
        )
    program, console = compiled(options), Console()
    timed = program.benchmark(drawn_inputs(program))
    console.print(bench_table({OURS: [timed["median"]]}, OURS, {}))
    tell_accuracy(options, program, console)


def _bench(options: argparse.Namespace) -> None:
    if options.target is not None and is_cuda(options.target):
        _bench_on_device(options)
        return
    unknown = [name for name in options.against if name not in PEERS]
    if unknown:
        raise CollageError(f"--against {unknown[0]}: there is no such runtime; there are {', '.join(PEERS)}")
    program, console = compiled(options), Console()
    found = timed_in_turns(Path(options.model), program, dict.fromkeys(options.against), options.rounds)
    medians = found.medians
    ratios = {name: speedup(medians[OURS], medians[name]) for name in medians if name != OURS}
    console.print(bench_table(medians, OURS, ratios))
    for reason in found.missing.values():
        console.print(f"not timed: {reason}", soft_wrap=True, markup=False, highlight=False)
    plan = (program.plan or {}).get("main")
    remark = None if plan is None else cost_remark(plan, statistics.median(medians[OURS]))
    if remark is not None:
        console.print(remark, soft_wrap=True)
    tell_accuracy(options, program, console)
