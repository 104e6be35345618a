"""``unity-collage profile``: compile a model, and time every kernel in the running program."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ..errors import CollageError
from .as_json import add_json, print_json
from .options import add_memory_limit, add_no_measure, add_options, duration, positive
from .verify import RANDOM

_MODELS = (".onnx", ".pt2")

ROWS = 30
"""How many kernels are shown."""


def add_command(commands: Any) -> None:
    """Add ``profile`` to ``commands``."""
    text = "compile a model, run it, and time every kernel where it runs"
    description = (
        f"{text.capitalize()}. Beside its time are its cost in the plan and the part of the machine's limit."
    )
    command = commands.add_parser("profile", help=text, description=description)
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
        "--seconds",
        type=duration,
        default=1.0,
        metavar="TIME",
        help="how long the program runs, such as 500 (seconds), 10s or 1m (default: 1s)",
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
    command.set_defaults(run=_profile)


def _profile(options: argparse.Namespace) -> None:
    """Compile, profile, show and write. Files are checked first, before anything is measured."""
    from rich.console import Console

    from ..profile.agreement import drawn_inputs, read_inputs
    from ..profile.trace import trace_of
    from ..report.profiles import profile_data, profile_summary
    from .compiling import compiled
    from .files import write

    _check(options)
    options.recompile = True  # timing points are put into the module, which a kept program does not have
    program = compiled(options)
    inputs = (
        drawn_inputs(program)
        if options.inputs == RANDOM
        else read_inputs(options.inputs, program.input_names)
    )
    profile = program.profile(inputs, seconds=options.seconds)
    title, console = Path(options.model).name, Console()
    if options.trace:
        write(Path(options.trace), (json.dumps(trace_of(profile, title), indent=1) + "\n").encode())
    if options.json:
        print_json(profile_data(title, profile))
        return
    console.print(profile_summary(title, profile, options.rows, console.width))
    if options.trace:
        console.print(f"wrote {options.trace}", soft_wrap=True, highlight=False)


def _check(options: argparse.Namespace) -> None:
    """Raises CollageError for files that cannot be read or written, and for saved programs."""
    from ..lowering.library_file import why_no_file
    from ..profile.agreement import read_inputs

    path = Path(options.model)
    if not path.is_file():
        raise CollageError(f"{path} is not a file")
    if path.suffix not in _MODELS:
        raise CollageError(
            f"{path} is not a model ({' or '.join(_MODELS)}): a saved program is compiled code without timing points; "
            "profile the model that it was compiled from, whose costs are kept"
        )
    if options.inputs != RANDOM:
        read_inputs(options.inputs, ())
    if options.trace == "-":
        raise CollageError("--trace - is not possible: write the trace into a file")
    if options.trace and (reason := why_no_file(Path(options.trace))):
        raise CollageError(f"--trace {options.trace} cannot be written: {reason}")
