"""``unity-collage explain``: why this kernel, why not that one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console

from ..compiler import Elsewhere
from ..cost.model import Progress
from ..frontend.models import read_onnx
from ..frontend.onnx_names import meanings
from ..passes import SearchPartition
from ..passes.annotate_candidates import WINOGRAD
from ..pipeline import annotating, pricing
from ..plan.explanation import Explanation
from ..report.answer import answer
from ..report.kinds import explanation_summary
from ..report.writing import explain_with
from . import options as cli_model
from .costs import prices


def add_command(commands: Any, progress: Callable[[], AbstractContextManager[Progress]]) -> None:
    """Add ``explain`` to ``commands``; ``progress`` shows what is being measured."""
    text = "say why each kernel was chosen, by how much, and what would change the choice"
    command = commands.add_parser("explain", help=text, description=f"{text.capitalize()}.")
    cli_model.add_options(command)
    command.add_argument(
        "--node",
        metavar="NAME",
        help="why this one: a binding, a node or value of the model, a kernel, or an operator that occurs once "
        "(default: the dearest kernels and their runners-up)",
    )
    command.set_defaults(run=lambda options: _explain(options, progress))


def _explain(options: argparse.Namespace, progress: Callable[[], AbstractContextManager[Progress]]) -> None:
    console, model = Console(), read_onnx(Path(options.model))
    with progress() as report:
        costs = prices(options, report)
        without = WINOGRAD if options.no_winograd else ()
        annotated = annotating(options.backends, (), without, options.precision, options.search_layouts)
        passes = tvm.transform.Sequential(
            [
                *annotated,
                *pricing(costs, options.tune or 0),
                SearchPartition(explain=True),
            ]
        )
        target = costs.target() if isinstance(costs, Elsewhere) else None
        found: dict[str, Explanation] = explain_with(passes, model, target)
    if options.node is None:
        for name, explanation in found.items():
            console.print(explanation_summary(name, explanation), "")
        return
    for line in answer(found, options.node, meanings(model, options.node)):
        console.print(line, markup=False, highlight=False)
