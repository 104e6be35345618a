"""``unity-collage info``: show what a saved program is."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from ..lowering.library_file import opened
from ..lowering.seal import facts_in
from ..program.facts import Facts, plans_in, why_not_here
from ..report import plan_summary, program_table


def add_command(commands: Any) -> None:
    """Add ``info`` to ``commands``."""
    text = "show what a saved program takes and returns, what it needs, how it was made, and its plan"
    command = commands.add_parser(
        "info", help=text, description=f"{text.capitalize()}. Nothing of it is run."
    )
    command.add_argument(
        "program", metavar="FILE.so", help="a program that compile -o or Program.save has written"
    )
    command.set_defaults(run=_info)


def _info(options: argparse.Namespace) -> None:
    console = Console()
    with opened(options.program) as file:
        facts: Facts = facts_in(file)
    console.print(program_table(facts, why_not_here(facts)), "")
    for name, plan in plans_in(facts).items():
        console.print(plan_summary(name, plan), "")
