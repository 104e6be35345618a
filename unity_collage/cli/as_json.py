"""``--json``: what a command has found, as data for other programs. docs/command_line.md lists the keys."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..showing import plain


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the option to a command."""
    command.add_argument(
        "--json",
        action="store_true",
        help="print JSON in place of tables; docs/command_line.md lists the keys",
    )


def print_json(data: Any) -> None:
    """Print ``data``, whose dataclasses become objects with all of their fields."""
    sys.stdout.write(json.dumps(plain(data), indent=1, allow_nan=False) + "\n")
