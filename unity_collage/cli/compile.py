"""``unity-collage compile``: compile a model and show its plan."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..defaults import FLOAT32
from ..errors import CollageError
from . import load_tvm, tell
from .as_json import add_json, print_json
from .dry_run import add_dry_run, tell_dry_run
from .exit_codes import UsageError
from .files import check_written
from .loading import load_for
from .options import add_devices, add_memory_limit, add_no_measure, add_options
from .verify import add_verify, check_agreement, check_verify, compared

if TYPE_CHECKING:
    from ..measure.kernel_costs import KernelCosts
    from ..program import Program
    from .console import Output


def add_command(commands: Any) -> None:
    """Add ``compile`` to ``commands``."""
    text = "compile a model and show its plan"
    command = commands.add_parser(
        "compile",
        help=text,
        description=f"{text.capitalize()}: which backend makes each kernel, and at what cost. The first compile "
        "measures kernels, within --budget. The program is kept for the next compile with the same options.",
    )
    add_options(command)
    add_no_measure(command)
    add_memory_limit(command)
    add_devices(command)
    add_dry_run(command)
    command.add_argument("-o", "--output", metavar="FILE.so", help="write the program as a shared library")
    command.add_argument(
        "--bundle",
        metavar="FOLDER",
        help="write the program and all libraries that it needs, for C and C++, into a new folder (docs/deploy.md)",
    )
    command.add_argument(
        "--report",
        metavar="FILE",
        help="write the plan and its explanation: .html is a page, .onnx for Netron, .dot for Graphviz, .json data",
    )
    add_verify(command)
    add_json(command)
    command.set_defaults(run=_compile)


def _compile(options: argparse.Namespace) -> None:
    """Compile, show, save and report. Paths are checked first, before anything is measured."""
    if options.dry_run:
        load_for(options)
        tell_dry_run(options)
        return
    if options.report and options.no_measure:
        raise UsageError("--report explains costs, and --no-measure has none: leave one of the two out")
    _check_options(options)
    program, costs = _program(options)
    from .console import Output

    console = Output(quiet=options.json)  # the data has the same
    wrote = _written(options, program, costs)
    _show_plans(options, program, console)
    told = _told(options, program, console)
    for path in wrote:
        console.say(f"wrote {path}")
    agreements = compared(options, program, console)
    if options.json:
        print_json({**told, "wrote": wrote, "agreements": agreements})
    check_agreement(options, agreements)


def _written(options: argparse.Namespace, program: Program, costs: KernelCosts | None) -> list[str]:
    """Write the files that are asked for, before anything is printed: a reader may go. The result are their paths."""
    if options.output:  # before the program runs, after which it would have to be linked again
        program.save(options.output)
    if options.bundle:
        program.save(options.bundle, bundle=True)
    if options.report:
        from ..report.writing import write_report
        from .in_place import add_times

        add_times(options, program, costs)
        write_report(options.report, Path(options.model).name, program.plan or {}, program.explanation or {})
    return [path for path in (options.report, options.output, options.bundle) if path]


def _check_options(options: argparse.Namespace) -> None:
    """Raises CollageError for what cannot be written or compared."""
    from ..program.bundle import why_no_bundle
    from ..report.writing import FORMATS

    check_written("--output", options.output, (".so",))
    check_written("--report", options.report, FORMATS)
    if options.bundle and (reason := why_no_bundle(options.bundle)) is not None:
        raise CollageError(f"--bundle {options.bundle} cannot be written: {reason}")
    if options.verify is not None:
        load_tvm()
        if options.target is not None or options.rpc is not None:
            from .settings import check_runs_here

            check_runs_here(options)
    check_verify(options)


def _show_plans(options: argparse.Namespace, program: Program, console: Output) -> None:
    from ..report import comparison_line, comparison_table, plan_summary

    for name, plan in (program.plan or {}).items():
        console.print(plan_summary(name, plan), "")
        if plan.comparison is not None:
            in_words = comparison_table if options.refine else comparison_line
            console.print(in_words(plan.comparison), "")


def _told(options: argparse.Namespace, program: Program, console: Output) -> dict[str, Any]:
    """The plans as data, and how accurate the program is, which is printed too."""
    from ..report.writing import encoded

    accuracy: list[str] = []
    if options.precision != FLOAT32:
        from .compiling import tell_accuracy

        accuracy = tell_accuracy(options, program, console)
    return {"plans": encoded(program.plan or {}), "kept_since": program.kept_since, "accuracy": accuracy}


def _program(options: argparse.Namespace) -> tuple[Program, KernelCosts | None]:
    """The program that an earlier compile has kept, for which TVM need not be loaded, or a new one with its costs."""
    from .kept import kept

    explain, costs = options.report is not None, None
    program = kept(options, explain)
    if program is None:
        load_for(options)
        from .compiling import compiled_by_costs

        program, costs = compiled_by_costs(options, explain)
    if program.kept_since is not None:
        when = f"{datetime.fromtimestamp(program.kept_since):%Y-%m-%d %H:%M}"
        if not options.quiet:
            tell(f"the program was compiled on {when} and is kept: --recompile compiles it again")
    return program, costs
