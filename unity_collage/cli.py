"""The command line: ``unity-collage compile | bench | backends``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import bench, runtime
from .backends.registry import known
from .compiler import compile as compile_model
from .cost.database import CostDatabase
from .cost.workload import Progress as Report
from .errors import CollageError
from .frontend import read_onnx
from .program import Program
from .report import backend_table, kernel_table
from .report.text import duration

console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what the user can mend is one line on standard error and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        if options.threads is not None:
            runtime.set_num_threads(options.threads)
        options.run(options)
    except CollageError as error:
        print(f"unity-collage: {error}", file=sys.stderr)
        return 1
    return 0


def _compile(options: argparse.Namespace) -> None:
    program = _program(options)
    for name, plan in (program.plan or {}).items():
        console.print(f"\n[bold]{name}[/bold]: predicted {duration(plan['seconds'])}")
        console.print(kernel_table(plan))
    if options.report:
        Path(options.report).write_text(json.dumps(program.plan, indent=2) + "\n")
    if options.output:
        program.save(options.output)
        console.print(f"\nwrote {options.output}")


def _bench(options: argparse.Namespace) -> None:
    model = read_onnx(Path(options.model))
    feeds = bench.random_feeds(model)
    contestants = {"unity_collage": bench.our_contestant(_program(options), feeds)}
    for name in options.against:
        contestants[name] = bench.CONTESTANTS[name](model, feeds)
    medians = bench.interleaved(contestants, rounds=options.rounds)
    table = Table("runtime", "median", "fastest round", "slowest round", "ours is faster by", box=None)
    for name, found in medians.items():
        ratio = "" if name == "unity_collage" else f"{bench.speedup(medians['unity_collage'], found):.2f}x"
        table.add_row(
            name, duration(statistics.median(found)), duration(min(found)), duration(max(found)), ratio
        )
    console.print(table)


def _backends(_options: argparse.Namespace) -> None:
    console.print(backend_table(known().values()))


def _program(options: argparse.Namespace) -> Program:
    database = CostDatabase(options.database)
    with _progress() as report:
        return compile_model(options.model, backends=options.backends, database=database, progress=report)


@contextmanager
def _progress() -> Iterator[Report]:
    """A bar while kernels are measured."""
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.description}"))  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, label: str) -> None:
            progress.update(task, completed=done, total=total, description=label)

        yield report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="unity-collage", description=__doc__)
    parser.add_argument(
        "--threads", type=_positive, help="threads of every kernel (default: the usable cores)"
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    command = commands.add_parser("compile", help="compile a model and show what became of it")
    _add_model(command)
    command.add_argument("-o", "--output", metavar="FILE.so", help="write the program as a shared library")
    command.add_argument("--report", metavar="FILE.json", help="write the plan as JSON")
    command.set_defaults(run=_compile)

    command = commands.add_parser("bench", help="compile a model and time it, against others if asked")
    _add_model(command)
    command.add_argument("--against", nargs="+", choices=sorted(bench.CONTESTANTS), default=[])
    command.add_argument("--rounds", type=_positive, default=5, help="interleaved rounds (default: 5)")
    command.set_defaults(run=_bench)

    command = commands.add_parser("backends", help="list the backends, and why one cannot be used")
    command.set_defaults(run=_backends)
    return parser


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL.onnx")
    command.add_argument(
        "--backends",
        nargs="+",
        metavar="NAME",
        help="what may make kernels, in preference order (default: all)",
    )
    command.add_argument(
        "--database", metavar="FILE", help="where prices are kept (default: the user's cache)"
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
