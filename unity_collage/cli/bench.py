"""``unity-collage bench``: compile a model, and compare its time with other runtimes."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CollageError, with_names
from ..profile.peers.runtimes import OURS, PEERS, why_no_peer
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .option_types import NamesAction, positive
from .options import add_memory_limit, add_no_measure, add_options

if TYPE_CHECKING:
    from ..profile.peers.bench import PeerTimes
    from ..program import Program


ROUNDS = 5
"""How many rounds the runtimes run."""


def add_command(commands: Any) -> None:
    """Add ``bench`` to ``commands``."""
    text = "compile a model and time it, against other runtimes too"
    command = commands.add_parser(
        "bench",
        help=text,
        description=f"{text.capitalize()}. Each runtime has a process of its own, and they run in turns.",
    )
    add_options(command)
    add_no_measure(command)
    add_memory_limit(command)
    command.add_argument(
        "--against",
        nargs="+",
        action=NamesAction,
        metavar="RUNTIME",
        default=[],
        help=f"other runtimes to time: {', '.join(PEERS)}",
    )
    command.add_argument(
        "--rounds",
        type=positive,
        metavar="N",
        help=f"how many rounds the program and these runtimes run in turns (default: {ROUNDS})",
    )
    add_json(command)
    command.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    from ..profile.agreement import open_sizes
    from ..profile.peers.bench import EXTENT
    from .compiling import compiled
    from .in_place import costliest_sizes
    from .settings import check_runs_here

    on_device = options.target is not None and options.target.kind.name == "cuda"
    _check_peers(options, on_device)
    check_runs_here(options)
    program = compiled(options)
    sizes = open_sizes(program, costliest_sizes(program.plan or {}), EXTENT)
    found = _on_device(program, sizes) if on_device else _in_turns(options, program, sizes)
    _show(options, program, found, sizes)


def _check_peers(options: argparse.Namespace, on_device: bool) -> None:
    """Raises CollageError, before anything is compiled, for a runtime that cannot be timed here."""
    if on_device and options.rounds is not None:
        raise UsageError(
            "--rounds is for runtimes in turns, and on a GPU the program runs alone: leave it out"
        )
    for name in options.against:
        if name not in PEERS:
            raise UsageError(with_names(f"--against {name}: there is no such runtime", name, list(PEERS)))
        if on_device:
            raise UsageError(
                f"--against {name}: it would run on the CPU, and the program on a GPU: leave it out"
            )
        if (reason := why_no_peer(name, Path(options.model))) is not None:
            raise CollageError(f"--against {name}: {reason}")


def _on_device(program: Program, sizes: Mapping[str, int]) -> PeerTimes:
    """The time of a program on a GPU: that of a call whose end is awaited."""
    from ..profile.peers.bench import PeerTimes, feeds_of

    return PeerTimes({OURS: [program.benchmark(feeds_of(program, sizes=sizes))["median"]]}, {})


def _in_turns(options: argparse.Namespace, program: Program, sizes: Mapping[str, int]) -> PeerTimes:
    from ..profile.peers.bench import timed_in_turns

    against = dict.fromkeys(options.against)
    rounds, libraries = options.rounds or ROUNDS, options.custom_op_library
    return timed_in_turns(Path(options.model), program, against, rounds, sizes=sizes, libraries=libraries)


def _show(options: argparse.Namespace, program: Program, found: PeerTimes, sizes: Mapping[str, int]) -> None:
    """Print the times, and at which ``sizes`` of open dimensions they were taken."""
    from ..plan.ranges import named
    from ..profile.rounds import speedup
    from ..report import bench_table, cost_remark
    from .compiling import tell_accuracy
    from .console import Output

    medians, console = found.medians, Output(quiet=options.json)  # the data has the same
    ratios = {name: speedup(medians[OURS], medians[name]) for name in medians if name != OURS}
    console.print(bench_table(medians, OURS, ratios))
    if sizes:
        console.say(f"all at {named(sizes)}: --shape {next(iter(sizes))}=SIZE chooses another size")
    for reason in found.missing.values():
        console.say(f"not timed: {reason}")
    plan = (program.plan or {}).get("main")
    remark = None if plan is None else cost_remark(plan, statistics.median(medians[OURS]))
    if remark is not None:
        console.say(remark)
    told = tell_accuracy(options, program, console)
    if options.json:
        print_json({"seconds": medians, "ratios": ratios, "missing": found.missing, "remark": remark,
                    "accuracy": told, "sizes": sizes})  # fmt: skip
