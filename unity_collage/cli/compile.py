"""``unity-collage compile``: compile a model and show its plan."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from ..defaults import FLOAT32
from ..errors import CollageError
from ..lowering.library_file import why_no_library
from ..program import Program
from ..report import comparison_line, comparison_table, plan_summary
from ..report.writing import why_no_report, write_report
from . import STARTED, load_tvm
from .dry_run import add_dry_run, tell_dry_run
from .kept import kept
from .options import add_no_measure, add_options
from .verify import add_verify, check_verify, verify


def add_command(commands: Any) -> None:
    """Add ``compile`` to ``commands``."""
    command = commands.add_parser("compile", help="compile a model and show its plan")
    add_options(command)
    add_no_measure(command)
    add_dry_run(command)
    command.add_argument("-o", "--output", metavar="FILE.so", help="write the program as a shared library")
    command.add_argument(
        "--report",
        metavar="FILE",
        help="write the plan and its explanation: .html is a page, .onnx for Netron, .dot for Graphviz, .json data",
    )
    add_verify(command)
    command.set_defaults(run=_compile)


def _compile(options: argparse.Namespace) -> None:
    """Compile, show, save and report. Paths are checked first, before anything is measured."""
    if options.dry_run:
        load_tvm()
        tell_dry_run(options)
        return
    _check("--output", options.output, why_no_library(options.output) if options.output else None)
    _check("--report", options.report, why_no_report(options.report) if options.report else None)
    if options.report and options.no_measure:
        raise CollageError("--report explains costs, and --no-measure has none: leave one of the two out")
    if options.verify is not None:
        load_tvm()
    check_verify(options)
    program = _program(options)
    console = Console()
    for name, plan in (program.plan or {}).items():
        console.print(plan_summary(name, plan), "")
        if plan.comparison is not None:
            in_words = comparison_table if options.refine else comparison_line
            console.print(in_words(plan.comparison), "")
    if options.output:  # before the program runs, after which it would have to be linked again
        program.save(options.output)
    if options.precision != FLOAT32:
        from .compiling import tell_accuracy

        tell_accuracy(options, program, console)
    if options.report:
        write_report(options.report, Path(options.model).name, program.plan or {}, program.explanation or {})
        console.print(f"wrote {options.report}", soft_wrap=True, highlight=False)
    if options.output:
        console.print(f"wrote {options.output}", soft_wrap=True, highlight=False)
    verify(options, program, console)


def _program(options: argparse.Namespace) -> Program:
    """The program that an earlier compile has kept, for which TVM need not be loaded, or a new one."""
    explain = options.report is not None
    program = kept(options, explain)
    if program is None:
        load_tvm()
        from .compiling import compiled

        program = compiled(options, explain)
    if program.kept_since is not None:
        when = f"{datetime.fromtimestamp(program.kept_since):%Y-%m-%d %H:%M}"
        text = f"it was compiled on {when} and is kept: --recompile compiles it again"
        print(f"[{time.monotonic() - STARTED:3.0f} s] {text}", file=sys.stderr, flush=True)
    return program


def _check(option: str, path: str | None, reason: str | None) -> None:
    if reason is not None:
        raise CollageError(f"{option} {path} cannot be written: {reason}")
