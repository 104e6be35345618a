"""Compiles the model that the options name, and says how accurate its program is."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..compiler import compile as compile_model
from ..cost.model import Progress
from ..defaults import FLOAT32
from ..errors import CollageError
from ..measure.kernel_costs import KernelCosts
from ..profile.accuracy import deviations
from ..program import Program
from . import progress
from .console import Output
from .options import sizes_of
from .settings import cost_model_of, refinement_of


def compiled(options: argparse.Namespace, explain: bool = False) -> Program:
    """The program of the model that the options name."""
    return compiled_by_costs(options, explain)[0]


def compiled_by_costs(
    options: argparse.Namespace, explain: bool = False
) -> tuple[Program, KernelCosts | None]:
    """The program of the model that the options name, and the costs that it was compiled by."""
    refine = refinement_of(options)
    with progress(options) as report, _costs_of(options, report) as costs:
        program = compile_model(
            options.model,
            **sizes_of(options),
            target=options.target,
            backends=options.backends,
            estimator=costs,
            explain=explain,
            recompile=options.recompile,
            allow_winograd=not options.no_winograd,
            search_layouts=options.search_layouts,
            tune_trials=options.tune or 0,
            refine=refine,
            precision=options.precision,
            tell=lambda what: report(0, 0, what),
            measure=not options.no_measure,
            custom_op_libraries=options.custom_op_library,
            memory_limit=options.memory_limit,
            devices=getattr(options, "devices", None),
        )
    return program, costs


@contextmanager
def _costs_of(options: argparse.Namespace, report: Progress) -> Iterator[KernelCosts | None]:
    """The costs to compile by, which Ctrl-C stops; None where nothing is measured."""
    if options.no_measure:
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
    if presses > 1:  # the code that was interrupted has dropped the exception
        raise KeyboardInterrupt


def tell_accuracy(options: argparse.Namespace, program: Program, console: Output) -> list[str]:
    """Print how far a program of lower precision is from float32, a line for each result; the result are the lines."""
    if options.precision == FLOAT32:
        return []
    try:
        lines = [str(found) for found in deviations(program, options.model, **sizes_of(options))]
    except CollageError as error:
        lines = [f"not known: {error}"]
    for number, line in enumerate(lines):
        result = f"result {number} " if len(lines) > 1 else ""
        console.say(f"{options.precision} against float32, random inputs: {result}{line}")
    return lines
