"""``unity-collage check``: examine whether a backend keeps the promises of backends."""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint
from typing import Any

from rich.console import Console

from ..errors import CollageError
from ..progress import shown
from ..testing.conformance import CASES, CHECKS, CUDA_CASES, Case, examine
from . import STARTED


def add_command(commands: Any) -> None:
    """Add ``check`` to ``commands``."""
    text = "check whether a backend keeps its promises: value, rule, kernels and their numbers"
    command = commands.add_parser("check", help=text, description=f"{text.capitalize()}.")
    command.add_argument(
        "backend",
        metavar="NAME",
        help="a backend that `unity-collage backends` lists, or package.module:VALUE",
    )
    command.add_argument(
        "--cases",
        metavar="package.module:VALUE",
        help="a sequence of Case to examine in addition to the kit's own",
    )
    command.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        default=60.0,
        help="the limit for one step of one kernel (default: 60)",
    )
    command.add_argument("--all", action="store_true", help="show all findings instead of the first few")
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> None:
    with shown(since=STARTED) as tell:
        report = examine(
            options.backend,
            (*CASES, *CUDA_CASES, *_more(options.cases)),
            options.timeout,
            tell=lambda what: tell(0, 0, what),
        )
    console = Console()
    for line in report.lines(findings=1_000_000 if options.all else 4):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if report.failed:
        raise CollageError(f"{report.backend} fails {len(report.failed)} of {len(CHECKS)} checks")


def _more(where: str | None) -> tuple[Case, ...]:
    if where is None:
        return ()
    try:
        return tuple(EntryPoint(where, where, "").load())
    except (ImportError, AttributeError) as error:
        raise CollageError(f"--cases {where} cannot be imported: {error}") from error
