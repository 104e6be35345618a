"""``unity-collage bisect``: find the kernels that make the results of a model wrong, or its program slow."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CollageError
from . import progress
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .files import check_written
from .options import add_memory_limit, add_no_measure, add_options, sizes_of
from .verify import RANDOM, error_share, tolerance_of

if TYPE_CHECKING:
    from ..inspection.bisection import Bisection
    from ..program import Program

_AGAINST = ("onnxruntime", "eager", "tvm")


def add_command(commands: Any) -> None:
    """Add ``bisect`` to ``commands``."""
    text = "find the kernels that make the results of a model wrong, or its program slow"
    command = commands.add_parser(
        "bisect",
        help=text,
        description=f"{text.capitalize()}. Programs are built in which TVM makes some of the kernels, until only "
        "kernels that are the cause are left.",
    )
    add_options(command)
    add_no_measure(command)
    add_memory_limit(command)
    command.add_argument(
        "--inputs",
        metavar=f"INPUTS.npz|{RANDOM}",
        default=RANDOM,
        help=f"the inputs, by name (default: {RANDOM}, which draws them, with 2 for each symbolic size)",
    )
    command.add_argument(
        "--against",
        choices=_AGAINST,
        help="what has the right results: onnxruntime for .onnx, eager for files of PyTorch (the default where "
        "installed), or tvm, the program without offloaded kernels",
    )
    command.add_argument(
        "--slow",
        action="store_true",
        help="find kernels that are slower than TVM's in their place, instead of wrong ones",
    )
    command.add_argument(
        "--tolerance",
        type=error_share,
        metavar="ERROR",
        help="the largest error as a part of a result's range (default: that of compile --verify, 1e-3 for float32)",
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE.onnx",
        help="write the operators of the kernel as a model, or as a .py script where ONNX lacks one of them, and the "
        "inputs of the kernel beside it as .npz",
    )
    add_json(command)
    command.set_defaults(run=_bisect)


def _bisect(options: argparse.Namespace) -> None:
    """Compile, bisect and show. What can be wrong with the options is found before."""
    from ..report.bisection import bisection_summary
    from .compiling import compiled
    from .console import Output

    _check(options)
    found = _found(options, compiled(options))
    if options.json:
        print_json(found)
    else:
        Output().say(bisection_summary(Path(options.model).name, found))


def _found(options: argparse.Namespace, program: Program) -> Bisection:
    from ..inspection.bisection import bisect
    from ..profile.agreement import read_inputs
    from .settings import pipeline_of

    drawn = options.inputs == RANDOM
    with progress(options, "bisecting") as report:
        return bisect(
            options.model,
            program,
            pipeline_of(options),
            inputs=None if drawn else read_inputs(options.inputs, program.input_names),
            against=options.against,
            slow=options.slow,
            tolerance=tolerance_of(options),
            output=options.output,
            target=options.target,
            **sizes_of(options),
            tell=lambda what: report(0, 0, what),
        )


def _check(options: argparse.Namespace) -> None:
    """Raises CollageError, before anything is measured, for options that contradict each other and for files."""
    from ..inspection.bisection.reproducer import SUFFIX
    from ..profile.agreement import read_inputs, reference_of
    from .settings import check_runs_here

    if options.slow and (options.against or options.tolerance is not None):
        name = "--against" if options.against else "--tolerance"
        raise UsageError(f"{name} is for wrong results, and --slow times programs: leave one of the two out")
    if options.inputs != RANDOM:
        read_inputs(options.inputs, ())
    check_runs_here(options)
    if options.against in ("onnxruntime", "eager") and reference_of(options.model) != options.against:
        known = reference_of(options.model)
        raise CollageError(f"--against {options.against}: {options.model} is compared with {known} or tvm")
    check_written("--output", options.output, (SUFFIX,))
    if options.output and (read := _also_read(options)):
        raise UsageError(f"--output {options.output} would overwrite {read}: choose another name")


def _also_read(options: argparse.Namespace) -> str | None:
    """The model or the inputs, where a file that ``--output`` writes has the path of one of them."""
    wanted = Path(options.output)
    written = [os.path.realpath(wanted.with_suffix(each)) for each in (wanted.suffix, ".npz", ".py")]
    return next((each for each in (options.model, options.inputs) if os.path.realpath(each) in written), None)
