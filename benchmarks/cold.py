"""How long compiles take: cold, warm, with known costs, and cold without a limit; and how fast their programs are.

usage: cold.py MODEL.onnx [MODEL.onnx ...] [--json FILE] [--rounds N] [--without-unbounded]

Cold is a new database, without even the facts of this machine. Warm is the same compile again, whose program is kept.
Recompiled is that with ``--recompile``: all passes run, with the costs that are known. The programs of the limited and
the unbounded compile are timed in turns, in a process each; the figure is the median of their paired ratios. The aims:
at most 60 s cold and 2 s warm, and a program within 2 % of the unbounded one. Each compile is a command of its own, so
that the time includes loading TVM where it is needed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path

from model_files import Figures, compile_seconds, measure, parser, programs_in_turns
from rich.table import Table

from unity_collage.scratch import Scratch


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--without-unbounded", action="store_true", help="leave out the compile without a limit"
    )
    measure(options.parse_args(), measured, table)


def measured(model: Path, options: argparse.Namespace) -> Figures:
    """The figures of one model."""
    with Scratch("cold") as name:
        folder = Path(name)
        limited, unbounded = folder / "limited.sqlite", folder / "unbounded.sqlite"
        row: Figures = {
            "cold": compile_seconds(model, limited, folder / "limited.so", "--no-packs"),
            "warm": compile_seconds(model, limited, folder / "warm.so", "--no-packs"),
            "recompiled": compile_seconds(model, limited, folder / "again.so", "--no-packs", "--recompile"),
        }
        if options.without_unbounded:
            return row
        output = folder / "unbounded.so"
        row["unbounded"] = compile_seconds(model, unbounded, output, "--no-packs", "--budget", "none")
        files = {name: folder / f"{name}.so" for name in ("limited", "unbounded")}
        seconds = programs_in_turns(model, files, options.rounds)
    row["seconds"] = {name: statistics.median(rounds) for name, rounds in seconds.items()}
    pairs = zip(seconds["limited"], seconds["unbounded"], strict=True)
    row["limited / unbounded"] = statistics.median(one / other for one, other in pairs)
    return row


def table(found: Mapping[str, Figures]) -> Table:
    """A row for each model."""
    shown = Table("model", "cold", "warm", "recompiled", "without a limit", "limited / unbounded")
    for name, row in found.items():
        unbounded = f"{row['unbounded']:.1f} s" if "unbounded" in row else ""
        ratio = f"{row['limited / unbounded']:.3f}" if "unbounded" in row else ""
        seconds = (f"{row[kind]:.1f} s" if kind in row else "" for kind in ("cold", "warm", "recompiled"))
        shown.add_row(name, *seconds, unbounded, ratio)
    return shown


if __name__ == "__main__":
    main()
