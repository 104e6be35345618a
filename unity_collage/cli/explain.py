"""``unity-collage explain``: show why kernels were chosen or not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import progress
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .options import add_options, sizes_of

if TYPE_CHECKING:
    from ..plan.explanation import Explanation
    from ..plan.plan import Plan


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
    add_json(command)
    command.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> None:
    if options.refine or options.breed:
        raise UsageError("explain shows the plan of the search, and --refine compares programs: leave it out")
    from ..compiler import explain
    from ..frontend.models import read_model
    from ..frontend.onnx.names import meanings, own_names
    from ..frontend.onnx.reading import OnnxFile
    from ..inspection.nodes import check_node
    from .settings import cost_model_of, pipeline_of

    model, node = read_model(Path(options.model)), options.node
    graph = model.model if isinstance(model, OnnxFile) else None
    names = [] if node is None or graph is None else list(meanings(graph, node))
    others = [] if graph is None else own_names(graph)
    with progress(options) as report:
        pipeline = pipeline_of(options, model=cost_model_of(options, report), tune_trials=options.tune or 0)
        ranges: list[Plan] = []
        found = explain(
            model,
            pipeline,
            target=options.target,
            **sizes_of(options),
            check=lambda mod: None if node is None else check_node(mod, node, names, others),
            ranges=ranges.append,
        )
    _show(options, found, names, others, ranges)


def _show(
    options: argparse.Namespace,
    found: Mapping[str, Explanation],
    names: Sequence[str],
    others: Sequence[str],
    ranges: Sequence[Plan],
) -> None:
    """Print the answer for one node, or the whole; ``names`` and ``others`` as :func:`check_node` has them.

    ``ranges``: the plan of ``main``, if it chooses between plans by sizes.
    """
    from ..plan.encoding import encode
    from ..report.answer import answer
    from ..report.kinds import explanation_summary
    from ..report.plans import plan_summary
    from .console import Output

    console = Output()
    if options.node is not None:
        lines = answer(found, options.node, names, others)
        if options.json:
            print_json({"node": options.node, "answer": lines})
        for line in [] if options.json else lines:
            console.say(line)
    elif options.json:
        data = {name: encode(explanation) for name, explanation in found.items()}
        print_json({**({"main": {"range": encode(ranges[0].range)}} if ranges else {}), **data})
    else:
        for plan in ranges:
            console.print(plan_summary("main", plan), "")
        for name, explanation in found.items():
            console.print(explanation_summary(name, explanation), "")
