"""``unity-collage profile``: compile a model, and time every kernel in the running program."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..defaults import FILES_OF_TORCH
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .files import STANDARD, check_written
from .option_types import duration, positive
from .options import add_memory_limit, add_no_measure, add_options, sizes_of
from .verify import RANDOM

if TYPE_CHECKING:
    from ..profile.result import Profile

_MODELS = (".onnx", *FILES_OF_TORCH)
_REPORTS = (".html", ".json")

ROWS = 30
"""How many kernels are shown."""


def add_command(commands: Any) -> None:
    """Add ``profile`` to ``commands``."""
    text = "run a model or a saved program, and time every kernel in the running program"
    description = (
        f"{text.capitalize()}. A model is compiled first; for a saved program, --model names its model. The table has "
        "the time of each kernel, its cost in the plan, and the part of the machine's limit that it reaches."
    )
    command = commands.add_parser("profile", help=text, description=description)
    add_options(command, what="the model, an .onnx, .pt2 or .pt file, or a saved program with --model")
    add_no_measure(command)
    add_memory_limit(command)
    command.add_argument(
        "--model",
        dest="compiled_from",
        metavar="MODEL",
        help="where MODEL is a saved program: the model that it was compiled from; give the options of that compile "
        "too. The kernels of its plan are built once more, with timing points",
    )
    command.add_argument(
        "--inputs",
        metavar=f"INPUTS.npz|{RANDOM}",
        default=RANDOM,
        help=f"the inputs, by name (default: {RANDOM}, which draws them, with 2 for each symbolic size)",
    )
    command.add_argument(
        "--seconds",
        type=duration,
        default=1.0,
        metavar="TIME",
        help="how long the program runs, such as 10s or 1m (default: 1s)",
    )
    command.add_argument(
        "--rows",
        type=positive,
        default=ROWS,
        metavar="N",
        help=f"how many kernels are shown, the slowest first (default: {ROWS})",
    )
    add_json(command)
    command.add_argument(
        "--trace",
        metavar="FILE",
        help="write a few runs as a trace that ui.perfetto.dev and chrome://tracing open",
    )
    command.add_argument(
        "--report",
        metavar="FILE",
        help="write the report of compile, with the time of each kernel in the running program beside its cost: .html "
        "or .json",
    )
    command.set_defaults(run=_profile)


def _profile(options: argparse.Namespace) -> None:
    """Compile, profile, show and write. Files are checked first, before anything is measured."""
    from ..lowering.library_file import write
    from ..profile.trace import trace_of
    from ..report.profiles import profile_data, profile_summary
    from .console import Output

    _check(options)
    title, console = Path(options.model).name, Output()
    profile = _of_saved(options) if options.compiled_from else _of_model(options, title)
    if options.trace:
        write(Path(options.trace), (json.dumps(trace_of(profile, title), indent=1) + "\n").encode())
    if options.json:
        print_json(profile_data(title, profile))
        return
    console.print(profile_summary(title, profile, options.rows, console.width))
    for path in filter(None, (options.trace, options.report)):
        console.say(f"wrote {path}")


def _of_model(options: argparse.Namespace, title: str) -> Profile:
    """The profile of the program that the options compile; the report of its plans is written, if one is asked for."""
    from ..profile.agreement import drawn_inputs, read_inputs
    from ..profile.planned_times import with_times
    from ..report.writing import write_report
    from .compiling import compiled
    from .settings import check_runs_here

    check_runs_here(options)
    options.recompile = True  # timing points are put into the module, which a kept program does not have
    program = compiled(options, explain=options.report is not None)
    drawn = options.inputs == RANDOM
    inputs = drawn_inputs(program) if drawn else read_inputs(options.inputs, program.input_names)
    profile = program.profile(inputs, seconds=options.seconds)
    if options.report:
        write_report(
            options.report, title, with_times(program.plan or {}, profile), program.explanation or {}
        )
    return profile


def _of_saved(options: argparse.Namespace) -> Profile:
    """The profile of a saved program, in which the kernels of its plan are timed."""
    from ..database.costs import CostDatabase
    from ..errors import DatabaseError
    from ..inspection.saved_profile import profile_saved
    from ..profile.agreement import read_inputs
    from ..program.loading import load
    from . import progress
    from .settings import pipeline_of

    names = load(options.model).input_names
    try:
        database = CostDatabase(options.database, read_only=True, create=False)
    except DatabaseError:  # there is none yet: the peaks of the machine are not known
        database = None
    with progress(options, "building the kernels of the plan with timing points"):
        return profile_saved(
            options.model,
            options.compiled_from,
            pipeline_of(options),
            inputs=None if options.inputs == RANDOM else read_inputs(options.inputs, names),
            seconds=options.seconds,
            target=options.target,
            database=database,
            **sizes_of(options),
        )


def _check(options: argparse.Namespace) -> None:
    """Raises CollageError for files that cannot be used, and UsageError for a saved program without its model."""
    from ..profile.agreement import read_inputs

    is_model = Path(options.model).suffix in _MODELS
    if is_model and options.compiled_from:
        raise UsageError(
            f"--model is for saved programs, and {options.model} is a model: leave one of the two out"
        )
    if not is_model and not options.compiled_from:
        raise UsageError(
            f"{options.model} is not a model (.onnx, .pt2 or .pt): the code of a saved program has no timing "
            "points; name the model that it was compiled from with --model, and its plan is timed"
        )
    if options.inputs != RANDOM:
        read_inputs(options.inputs, ())
    if options.trace == STANDARD:
        raise UsageError("--trace - is not possible: name a file")
    check_written("--trace", options.trace)
    if options.report:
        _check_report(options)


def _check_report(options: argparse.Namespace) -> None:
    check_written("--report", options.report, _REPORTS)
    if options.compiled_from:
        raise UsageError(
            f"--report explains costs, and a saved program has only its plan: unity-collage profile "
            f"{options.compiled_from} --report {options.report} compiles the model and writes the report"
        )
    if options.no_measure:
        raise UsageError("--report explains costs, and --no-measure has none: leave one of the two out")
