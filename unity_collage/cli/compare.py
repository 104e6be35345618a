"""``unity-collage compare``: what a given plan costs beside ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import progress
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .options import add_options, sizes_of

if TYPE_CHECKING:
    from ..inspection.given_plan import PlanCosts


def add_command(commands: Any) -> None:
    """Add ``compare`` to ``commands``."""
    text = "compare the cost of a plan of yours with ours, kernel by kernel"
    command = commands.add_parser("compare", help=text, description=f"{text.capitalize()}.")
    add_options(command)
    command.add_argument(
        "--plan",
        metavar="FILE",
        required=True,
        help="the plan: a report of compile --report plan.json, such a file written by hand, or a partitioned "
        "module as TVMScript (.py)",
    )
    add_json(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    if options.refine or options.breed or options.tune:
        raise UsageError("compare uses the costs of kernels only: leave --refine, --breed and --tune out")
    from ..frontend.models import read_model
    from ..inspection.given_plan import compare_plan
    from ..report.given_plan import plan_costs_summary
    from .console import Output
    from .settings import cost_model_of, pipeline_of

    model = read_model(Path(options.model))
    with progress(options) as report, cost_model_of(options, report) as costs:
        pipeline = pipeline_of(options, model=costs)
        found = compare_plan(model, options.plan, pipeline, target=options.target, **sizes_of(options))
    if options.json:
        print_json({name: as_data(each) for name, each in found.items()})
        return
    console = Output()
    for name, each in found.items():
        console.print(plan_costs_summary(name, each), "", highlight=False)


def as_data(found: PlanCosts) -> dict[str, Any]:
    """The comparison as data, with what follows from it."""
    from ..plan.encoding import encode

    data = encode(found)
    for difference, item in zip(found.differences, data.get("differences", ()), strict=True):
        item["loss"] = difference.seconds
    return {**data, "loss": found.loss, "is_tie": found.is_tie}
