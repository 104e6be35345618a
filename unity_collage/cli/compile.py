"""``unity-collage compile``: compile a model and show its plan."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ..compiler import compile as compile_model
from ..cost.method import MEDIAN
from ..cost.model import Progress
from ..errors import CollageError
from ..lowering.library_file import why_no_library
from ..measure.kernel_costs import KernelCosts
from ..pipeline import FLOAT32
from ..profile.accuracy import deviations
from ..program import Program
from ..progress import shown
from ..report import comparison_line, comparison_table, plan_summary
from ..report.writing import why_no_report, write_report
from . import STARTED
from .dry_run import add_dry_run, tell_dry_run
from .options import add_no_measure, add_options, cost_model_of, refinement_of, sizes_of
from .verify import add_verify, check_verify, verify


def add_command(commands: Any) -> None:
    """Add ``compile`` to ``commands``."""
    command = commands.add_parser("compile", help="compile a model and show its plan")
    add_options(command)
    add_no_measure(command)
    add_dry_run(command)
    command.add_argument("-o", "--output", metavar="FILE.so", help="write the program as a shared library")
    command.add_argument(
        "--report", metavar="FILE", help="write the plan and its explanation, as .json or .html"
    )
    add_verify(command)
    command.set_defaults(run=_compile)


def _compile(options: argparse.Namespace) -> None:
    """Compile, show, save and report. Paths are checked first, before anything is measured."""
    if options.dry_run:
        tell_dry_run(options)
        return
    _check("--output", options.output, why_no_library(options.output) if options.output else None)
    _check("--report", options.report, why_no_report(options.report) if options.report else None)
    if options.report and options.no_measure:
        raise CollageError("--report explains costs, and --no-measure has none: leave one of the two out")
    check_verify(options)
    program = compiled(options, explain=options.report is not None)
    console = Console()
    for name, plan in (program.plan or {}).items():
        console.print(plan_summary(name, plan), "")
        if plan.comparison is not None:
            in_words = comparison_table if options.refine else comparison_line
            console.print(in_words(plan.comparison), "")
    if options.output:  # before the program runs, after which it would have to be linked again
        program.save(options.output)
    tell_accuracy(options, program, console)
    if options.report:
        write_report(options.report, Path(options.model).name, program.plan or {}, program.explanation or {})
        console.print(f"wrote {options.report}", soft_wrap=True, highlight=False)
    if options.output:
        console.print(f"wrote {options.output}", soft_wrap=True, highlight=False)
    verify(options, program, console)


def compiled(options: argparse.Namespace, explain: bool = False) -> Program:
    """The program of the model that the options name."""
    refine = refinement_of(options)
    with shown(since=STARTED) as report, _costs_of(options, report) as costs:
        return compile_model(
            options.model,
            **sizes_of(options),
            target=options.target,
            backends=options.backends,
            estimator=costs,
            explain=explain,
            allow_winograd=not options.no_winograd,
            search_layouts=options.search_layouts,
            tune_trials=options.tune or 0,
            refine=refine,
            precision=options.precision,
            tell=lambda what: report(0, 0, what),
            measure=not options.no_measure,
        )


@contextmanager
def _costs_of(options: argparse.Namespace, report: Progress) -> Iterator[KernelCosts | None]:
    """The costs to compile by, which Ctrl-C stops; None where nothing is measured."""
    if options.no_measure:
        if options.percentile != MEDIAN:
            raise CollageError(
                "--percentile needs costs, and --no-measure has none: leave one of the two out"
            )
        yield None
        return
    with _stopped_by_ctrl_c(cost_model_of(options, report)) as costs:
        yield costs


@contextmanager
def _stopped_by_ctrl_c(costs: KernelCosts) -> Iterator[KernelCosts]:
    """The first Ctrl-C ends the measuring: the result is the best program so far. The second one ends the command."""
    presses = 0

    def stop(*_: object) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt
        costs.stop()
        print(
            "unity-collage: nothing more is measured, the best program so far follows; Ctrl-C again ends the command",
            file=sys.stderr,
        )

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield costs
    finally:
        signal.signal(signal.SIGINT, before)
    if presses > 1:  # whatever ran has dropped the exception
        raise KeyboardInterrupt


def tell_accuracy(options: argparse.Namespace, program: Program, console: Console) -> None:
    """Print how far a program of lower precision is from float32, a line for each result."""
    if options.precision == FLOAT32:
        return
    try:
        lines = [str(found) for found in deviations(program, options.model, **sizes_of(options))]
    except CollageError as error:
        lines = [f"not known: {error}"]
    for number, line in enumerate(lines):
        result = f"result {number} " if len(lines) > 1 else ""
        console.print(f"{options.precision} against float32, random inputs: {result}{line}", soft_wrap=True)


def _check(option: str, path: str | None, reason: str | None) -> None:
    if reason is not None:
        raise CollageError(f"{option} {path} cannot be written: {reason}")
