"""``unity-collage doctor``: show the state of the installation, and whether a compile can work."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import CollageError
from . import progress
from .as_json import add_json, print_json


def add_command(commands: Any) -> None:
    """Add ``doctor`` to ``commands``."""
    text = "show what is installed here, what is missing and how to get it, and whether a compile can work"
    command = commands.add_parser(
        "doctor",
        help=text,
        description=f"{text.capitalize()}. The output has no user names and may go into a bug report. A small model is "
        "compiled and run; nothing is kept. The exit code is 1 where a compile cannot work.",
    )
    command.add_argument(
        "--database", metavar="FILE|URL", help="the database of costs (default: in the user's cache folder)"
    )
    add_json(command)
    command.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> None:
    from ..inspection.doctor import diagnose
    from ..report.doctor import diagnosis_text
    from .console import Output

    with progress(options, "looking at this machine, and compiling a small model"):
        found = diagnose(options.database)
    if options.json:
        print_json(found)
    else:
        Output().print(diagnosis_text(found), highlight=False)
    if found.why_not is not None:
        raise CollageError(f"a compile cannot work here: {found.why_not}")
