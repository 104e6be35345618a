"""``unity-collage backends``: list the backends, with the reason if one cannot be used."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from ..backends.registry import statuses
from ..report import backend_table


def add_command(commands: Any) -> None:
    """Add ``backends`` to ``commands``."""
    command = commands.add_parser("backends", help="list the backends, with the reason if one cannot be used")
    command.set_defaults(run=_backends)


def _backends(_options: argparse.Namespace) -> None:
    Console().print(backend_table(statuses()))
