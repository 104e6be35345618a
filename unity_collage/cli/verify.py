"""``--verify``: compare the results of a program with those of the runtime that its file was made for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..defaults import TF32
from ..errors import CollageError

if TYPE_CHECKING:
    from ..profile.agreement import Agreement
    from ..program import Program
    from .console import Output

RANDOM = "random"
"""Stands for random inputs in place of a file."""

_TOLERANCES = {"bf16": 5e-2, "f16": 1e-2, TF32: 1e-2}
"""The largest error over the range of a result, for programs that compute with 8 and with 11 bits of precision."""


def add_verify(command: argparse.ArgumentParser) -> None:
    """Add the options of the comparison to a command."""
    command.add_argument(
        "--verify",
        metavar=f"INPUTS.npz|{RANDOM}",
        help="compare each result with ONNX Runtime's (for files of PyTorch: PyTorch's) on these inputs, by name; the "
        f"exit code is 1 where one does not agree; {RANDOM} draws them, with 2 for each symbolic size",
    )
    command.add_argument(
        "--tolerance",
        type=error_share,
        metavar="ERROR",
        help="with --verify: the largest error as a part of a result's range "
        "(default: 1e-3; 1e-2 for float16 and --precision f16 or tf32; 5e-2 for bfloat16 and --precision bf16)",
    )


def check_verify(options: argparse.Namespace) -> None:
    """Raises CollageError, before anything is measured, where nothing could be compared."""
    if options.verify is None:
        return
    from ..profile.agreement import read_inputs, reference_of

    reference_of(options.model)
    if options.verify != RANDOM:
        read_inputs(options.verify, ())


def compared(options: argparse.Namespace, program: Program, console: Output) -> list[Agreement]:
    """Each result beside the reference's, printed with its error; empty where that was not asked for."""
    if options.verify is None:
        return []
    from ..profile.agreement import agreements, drawn_inputs, read_inputs, reference_of

    inputs = (
        drawn_inputs(program)
        if options.verify == RANDOM
        else read_inputs(options.verify, program.input_names)
    )
    found = agreements(program, options.model, inputs, tolerance_of(options), options.custom_op_library)
    reference = reference_of(options.model)
    for agreement in found:
        console.say(f"against {reference}: {agreement}")
    return found


def tolerance_of(options: argparse.Namespace) -> float | None:
    """The largest error over the range of a result that is asked for, or that the precision allows."""
    return _TOLERANCES.get(options.precision) if options.tolerance is None else options.tolerance


def check_agreement(options: argparse.Namespace, found: Sequence[Agreement]) -> None:
    """Raises CollageError where a result does not agree."""
    wrong = [agreement for agreement in found if agreement.reason is not None]
    if wrong:
        from ..profile.agreement import reference_of

        raise CollageError(
            f"{len(wrong)} of {len(found)} results differ from {reference_of(options.model)}'s"
        )


def error_share(text: str) -> float:
    """An error as a part of a range."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an error such as 1e-3")
    return value
