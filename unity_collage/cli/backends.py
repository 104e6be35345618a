"""``unity-collage backends``: list the backends, with the reason if one cannot be used."""

from __future__ import annotations

import argparse
from typing import Any

from .as_json import add_json, print_json


def add_command(commands: Any) -> None:
    """Add ``backends`` to ``commands``."""
    text = "list the backends, with the reason if one cannot be used"
    command = commands.add_parser("backends", help=text, description=f"{text.capitalize()}.")
    add_json(command)
    command.set_defaults(run=_backends)


def _backends(options: argparse.Namespace) -> None:
    from ..backends.newest import library_text
    from ..backends.registry import statuses
    from ..report import backend_table
    from .console import Output

    found = statuses()
    if options.json:
        rows = [{"name": each.name, "available": each.is_available, "state": each.state,
                 "library": library_text(each.name)} for each in found]  # fmt: skip
        print_json({"backends": rows})
    else:
        Output().print(backend_table(found))
