"""``--json``: what a command has found, as data for other programs. docs/command_line.md lists the keys."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any, cast


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


def plain(value: Any) -> Any:
    """Dataclasses and enumerations as JSON has them; numbers that it lacks, NaN and infinity, are null."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
