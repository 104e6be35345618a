"""``unity-collage explain``: show why kernels were chosen or not."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from ..compiler import explain
from ..frontend.models import read_model
from ..frontend.onnx.names import meanings
from ..frontend.onnx.reading import OnnxFile
from ..pipeline import Pipeline
from ..progress import shown
from ..report.answer import answer
from ..report.kinds import explanation_summary
from . import STARTED
from .options import add_options, sizes_of
from .settings import cost_model_of, rules_left_out


def add_command(commands: Any) -> None:
    """Add ``explain`` to ``commands``."""
    text = "say why each kernel was chosen, by how much, and what would change the choice"
    command = commands.add_parser("explain", help=text, description=f"{text.capitalize()}.")
    add_options(command)
    command.add_argument(
        "--node",
        metavar="NAME",
        help="explain this one: a binding, a node or value of the model, a kernel, or an operator that occurs once "
        "(default: the most expensive kernels and their runners-up)",
    )
    command.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> None:
    console, model = Console(), read_model(Path(options.model))
    with shown(since=STARTED) as report:
        costs = cost_model_of(options, report)
        pipeline = Pipeline(
            backends=None if options.backends is None else tuple(options.backends),
            model=costs,
            without=rules_left_out(options),
            precision=options.precision,
            layouts=options.search_layouts,
            tune_trials=options.tune or 0,
        )
        found = explain(model, pipeline, target=options.target, **sizes_of(options))
    if options.node is None:
        for name, explanation in found.items():
            console.print(explanation_summary(name, explanation), "")
        return
    names = meanings(model.model, options.node) if isinstance(model, OnnxFile) else (options.node,)
    for line in answer(found, options.node, names):
        console.print(line, markup=False, highlight=False)
