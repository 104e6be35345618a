"""``unity-collage check``: examine whether a backend keeps its promises, or whether plans are what they claim to be."""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from ..errors import CollageError, UnknownBackend
from . import progress
from .as_json import add_json, print_json
from .exit_codes import UsageError
from .option_types import duration

if TYPE_CHECKING:
    from ..testing.conformance import Case


TIMEOUT_SECONDS = 60.0


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
    elif options.annotated is not None:
        raise UsageError(f"--annotated is for plans, and {options.what} is not a file with plans")
    else:
        _check_backend(options)


def _check_plans(options: argparse.Namespace) -> None:
    """Print a line for each plan; raises CollageError if one does not hold."""
    from .check_plan import findings
    from .console import Output

    path = options.what
    found = list(findings(path, options.annotated))
    if options.json:
        print_json({"plans": {name: {"holds": each.holds, "text": each.text} for name, each in found}})
    for name, finding in [] if options.json else found:
        Output().say(f"{name}: {finding.text}")
    failed = sum(not finding.holds for _, finding in found)
    if failed:
        raise CollageError(f"{failed} of {len(found)} plans in {path} do not hold")


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
