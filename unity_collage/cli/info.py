"""``unity-collage info``: show what a saved program is."""

from __future__ import annotations

import argparse
from typing import Any

from .as_json import add_json, print_json


def add_command(commands: Any) -> None:
    """Add ``info`` to ``commands``."""
    text = "show what a saved program takes and returns, what it needs, how it was made, and its plan"
    command = commands.add_parser(
        "info", help=text, description=f"{text.capitalize()}. The program is not run."
    )
    command.add_argument(
        "program", metavar="FILE.so", help="a program that compile -o or Program.save has written"
    )
    add_json(command)
    command.set_defaults(run=_info)


def _info(options: argparse.Namespace) -> None:
    from ..lowering.library_file import opened
    from ..lowering.seal import facts_in
    from ..program.facts import Facts, plans_in, why_not_here
    from ..report import plan_summary, program_table
    from ..report.writing import encoded
    from .console import Output

    console = Output()
    with opened(options.program) as file:
        facts: Facts = facts_in(file)
    reason, plans = why_not_here(facts), plans_in(facts)
    if options.json:
        told = {name: value for name, value in facts.items() if name != "plan"}
        print_json({**told, "why_not_here": reason, "plans": encoded(plans)})
        return
    console.print(program_table(facts, reason), "")
    for name, plan in (plans or {}).items():
        console.print(plan_summary(name, plan), "")
