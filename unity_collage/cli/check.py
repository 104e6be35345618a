"""``unity-collage check``: examine whether a backend keeps its promises, or whether plans are what they claim to be."""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cost.method import MEDIAN
from ..defaults import FLOAT32
from ..errors import CollageError, UnknownBackend
from . import progress
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .option_types import duration
from .options import add_model_options, sizes_of

if TYPE_CHECKING:
    from ..inspection.statement import Statement
    from ..testing.conformance import Case


TIMEOUT_SECONDS = 60.0

_OF_MODELS = (
    *("database", "shape", "dim", "backends", "custom_op_library", "target", "no_winograd", "search_layouts"),
)
"""Options that do nothing without ``--model``, by their names here; ``precision`` is one more, with a default."""


def add_command(commands: Any) -> None:
    """Add ``check`` to ``commands``."""
    text = "check the plans in a file, or whether a backend keeps its promises: value, rule, kernels and their numbers"
    command = commands.add_parser("check", help=text, description=f"{text.capitalize()}.")
    command.add_argument(
        "what",
        metavar="FILE|NAME",
        help="a program that compile -o has saved, a report in JSON, or a module as text with collage.plan; or a "
        "backend: a name that `unity-collage backends` lists, or package.module:VALUE",
    )
    command.add_argument(
        "--annotated",
        metavar="FILE",
        help="the module as text before SearchPartition: the problem of each plan is built again from its "
        "collage.candidates and collage.costs",
    )
    command.add_argument(
        "--model",
        dest="compiled_from",
        metavar="MODEL",
        help="the model that was compiled: the candidates of each plan are compared with those of the model; give the "
        "options of that compile too",
    )
    command.add_argument(
        "--database",
        metavar="FILE|URL",
        help="with --model: the database of costs of that compile, from which the problem of each plan is built again",
    )
    add_model_options(command)
    command.add_argument(
        "--cases",
        metavar="package.module:VALUE",
        help="a sequence of Case to check in addition to the kit's own",
    )
    command.add_argument(
        "--timeout",
        type=duration,
        metavar="TIME",
        help=f"the limit for one step of one kernel (default: {TIMEOUT_SECONDS:g}s)",
    )
    command.add_argument("--all", action="store_true", help="show all findings instead of the first few")
    add_json(command)
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> None:
    from .check_plan import is_file_of_plans

    if is_file_of_plans(options.what):
        for name in ("cases", "timeout"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} is for backends, and {options.what} is a file with plans")
        _check_plans(options)
        return
    for option, name in (("--annotated", "annotated"), ("--model", "compiled_from")):
        if getattr(options, name) is not None:
            raise UsageError(f"{option} is for plans, and {options.what} is not a file with plans")
    _check_model_options(options)
    _check_backend(options)


def _check_model_options(options: argparse.Namespace) -> None:
    """Raises UsageError for options of a model that is not given."""
    if options.compiled_from is not None:
        if options.annotated is not None:
            raise UsageError("--annotated and --model both say what was searched: leave one of the two out")
        return
    given = [name for name in _OF_MODELS if getattr(options, name) not in (None, False, [])]
    given += ["precision"] if options.precision != FLOAT32 else []
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} is for a model: name the model with --model")


def _check_plans(options: argparse.Namespace) -> None:
    """Print a line for each plan; raises CollageError if one does not hold."""
    from .check_plan import findings
    from .console import Output

    _check_model_options(options)
    path = options.what
    found = list(findings(path, _stated(options)))
    if options.json:
        print_json({"plans": {name: {"holds": each.holds, "text": each.text} for name, each in found}})
    for name, finding in [] if options.json else found:
        Output().say(f"{name}: {finding.text}")
    failed = sum(not finding.holds for _, finding in found)
    if failed:
        raise CollageError(f"{failed} of {len(found)} plans in {path} do not hold")


def _stated(options: argparse.Namespace) -> Statement | None:
    """What the plans are compared with: a module as text, or a model; None without either."""
    from ..inspection.statement import of_text

    if options.compiled_from is not None:
        return _of_model(options)
    return None if options.annotated is None else of_text(options.annotated)


def _of_model(options: argparse.Namespace) -> Statement:
    """What the model states, with costs where a database is named."""
    from ..frontend.models import read_model
    from ..inspection.plan_files import plans_of
    from ..inspection.stated_model import of_model
    from ..measure.here import cost_model
    from .settings import pipeline_of

    plans, _ = plans_of(options.what)
    model, has_costs = read_model(Path(options.compiled_from)), options.database is not None
    arguments = {"target": options.target, **sizes_of(options), "has_costs": has_costs}
    if not has_costs:
        return of_model(model, options.compiled_from, pipeline_of(options), plans, **arguments)
    percentile = next((plan.percentile for plan in plans.values()), MEDIAN)
    with (
        progress(options) as report,
        cost_model(
            options.database, report, locked=True, target=options.target, percentile=percentile
        ) as costs,
    ):
        pipeline = pipeline_of(options, model=costs)
        return of_model(model, options.compiled_from, pipeline, plans, **arguments)


def _check_backend(options: argparse.Namespace) -> None:
    from ..testing.conformance import CASES, CHECKS, CUDA_CASES, examine
    from .console import Output

    more = _more(options.cases)
    with progress(options) as tell:
        try:
            report = examine(
                options.what,
                (*CASES, *CUDA_CASES, *more),
                options.timeout or TIMEOUT_SECONDS,
                tell=lambda what: tell(0, 0, what),
            )
        except UnknownBackend as error:
            raise UsageError(f"not a file with plans, and {error}") from None
    console = Output()
    if options.json:
        print_json({"backend": report.backend, "unavailable": report.unavailable, "checks": report.verdicts})
    for line in [] if options.json else report.lines(findings=1_000_000 if options.all else 4):
        console.say(line)
    if report.failed:
        raise CollageError(f"{report.backend} fails {len(report.failed)} of {len(CHECKS)} checks")


def _more(where: str | None) -> tuple[Case, ...]:
    if where is None:
        return ()
    try:
        return tuple(EntryPoint(where, where, "").load())
    except (ImportError, AttributeError) as error:
        raise CollageError(f"--cases {where} cannot be imported: {error}") from error
