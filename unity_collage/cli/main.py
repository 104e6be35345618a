"""Compile an ONNX model into a program that mixes kernel libraries by measured price."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .. import __version__, runtime
from ..backends.registry import known
from ..compiler import compile as compile_model
from ..cost.model import Progress as Report
from ..errors import CollageError
from ..feedback import Refinement
from ..frontend.models import read_onnx
from ..lowering.library_file import why_no_library
from ..pipeline import FLOAT32
from ..profile import peers as bench
from ..profile.accuracy import deviations
from ..profile.peers import OURS
from ..program import Program
from ..report import backend_table, bench_table, plan_summary, price_remark, refinement_table
from ..report.writing import why_no_report, write_report
from . import check as cli_check
from . import costs as cli_prices
from . import db as cli_db
from . import explain as cli_explain
from . import options as cli_model

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what the user can mend is one line on standard error and exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        if options.threads is not None:
            runtime.set_num_threads(options.threads)
        options.run(options)
    except (CollageError, OSError) as error:
        print(f"unity-collage: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("unity-collage: interrupted; every price measured so far is kept", file=sys.stderr)
        return INTERRUPTED
    return 0


def _compile(options: argparse.Namespace) -> None:
    """What is slow comes last: a path that cannot be written is told before anything is measured."""
    _check("--output", options.output, why_no_library(options.output) if options.output else None)
    _check("--report", options.report, why_no_report(options.report) if options.report else None)
    program = _program(options)
    console = Console()
    for name, plan in (program.plan or {}).items():
        console.print(plan_summary(name, plan), "")
        if "refinement" in plan:
            console.print(refinement_table(plan["refinement"]), "")
    _tell_accuracy(options, program, console)
    if options.report:
        write_report(options.report, Path(options.model).name, program.plan or {}, program.explanation or {})
        console.print(f"wrote {options.report}", soft_wrap=True, highlight=False)
    if options.output:
        program.save(options.output)
        console.print(f"wrote {options.output}", soft_wrap=True, highlight=False)


def _tell_accuracy(options: argparse.Namespace, program: Program, console: Console) -> None:
    """How far the numbers of a program in less than float32 are from those in float32, a line a result."""
    if options.precision == FLOAT32:
        return
    try:
        lines = [str(found) for found in deviations(program, options.model)]
    except CollageError as error:
        lines = [f"not known: {error}"]
    for number, line in enumerate(lines):
        result = f"result {number} " if len(lines) > 1 else ""
        console.print(f"{options.precision} against float32, random inputs: {result}{line}", soft_wrap=True)


def _check(option: str, path: str | None, reason: str | None) -> None:
    if reason is not None:
        raise CollageError(f"{option} {path} cannot be written: {reason}")


def _bench(options: argparse.Namespace) -> None:
    model = read_onnx(Path(options.model))
    program, console = _program(options), Console()
    medians = bench.race(model, program, dict.fromkeys(options.against), options.rounds)
    ratios = {name: bench.speedup(medians[OURS], medians[name]) for name in medians if name != OURS}
    console.print(bench_table(medians, OURS, ratios))
    plan = (program.plan or {}).get("main")
    remark = None if plan is None else price_remark(plan, statistics.median(medians[OURS]))
    if remark is not None:
        console.print(remark, soft_wrap=True)
    _tell_accuracy(options, program, console)


def _backends(_options: argparse.Namespace) -> None:
    Console().print(backend_table(known().values()))


def _program(options: argparse.Namespace) -> Program:
    with _progress() as report:
        return compile_model(
            options.model,
            backends=options.backends,
            estimator=cli_prices.prices(options, report),
            explain=getattr(options, "report", None) is not None,
            allow_winograd=not options.no_winograd,
            search_layouts=options.search_layouts,
            tune_trials=options.tune or 0,
            refine=Refinement() if options.refine else None,
            precision=options.precision,
            tell=lambda what: report(0, 0, what),
        )


@contextmanager
def _progress() -> Iterator[Report]:
    """A bar on standard error while kernels are measured, where somebody is there to see it."""
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
               TextColumn("{task.description}"))  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None, visible=False)

        def report(done: int, total: int, label: str) -> None:
            progress.update(task, completed=done, total=total or None, description=label, visible=bool(label))

        yield report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="unity-collage", description=__doc__)
    parser.add_argument("--version", action="version", version=f"unity-collage {__version__}")
    parser.add_argument(
        "--threads",
        type=cli_model.positive,
        metavar="N",
        help="threads of every kernel (default: the usable cores)",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("compile", help="compile a model and show what became of it")
    cli_model.add_options(command)
    command.add_argument("-o", "--output", metavar="FILE.so", help="write the program as a shared library")
    command.add_argument(
        "--report", metavar="FILE", help="write the plan and why it is so, as .json or .html"
    )
    command.set_defaults(run=_compile)

    command = commands.add_parser("bench", help="compile a model and time it, against others if asked")
    cli_model.add_options(command)
    command.add_argument(
        "--against", nargs="+", choices=sorted(bench.PEERS), default=[], help="time these runtimes too"
    )
    command.add_argument(
        "--rounds", type=cli_model.positive, metavar="N", default=5, help="interleaved rounds (default: 5)"
    )
    command.set_defaults(run=_bench)

    command = commands.add_parser("backends", help="list the backends, and why one cannot be used")
    command.set_defaults(run=_backends)

    cli_explain.add_command(commands, _progress)
    cli_check.add_command(commands, _progress)
    cli_db.add_command(commands, _progress)
    return parser


if __name__ == "__main__":
    sys.exit(main())
