"""Whether later compiles repair costs that were measured on a busy machine: programs of a noisy database against
those of a fresh one.

usage: noise.py MODEL.onnx [MODEL.onnx ...] [--json FILE] [--budget S] [--rounds N] [--load N]

For each model, in turn:

1. compile with a new database while ``--load`` processes compute in bursts of half a second,
2. compile again with the same database when they have ended, and
3. compile with another new database.

The last two programs are timed in turns, in one process each. The figure is the median of their paired ratios: the
mended program's time over the fresh one's; at most 1.03 is the aim. The doubtful costs before and after the second
compile are counted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from model_files import Figures, measure, parser, programs_in_turns
from rich.table import Table

import unity_collage as uc
from unity_collage.defaults import BUDGET_SECONDS
from unity_collage.scratch import Scratch

_BURST = """
import os, time
parent = os.getppid()
while os.getppid() == parent:  # the benchmark may be ended by a signal
    end = time.monotonic() + 0.5
    while time.monotonic() < end: pass
    time.sleep(0.5)
"""


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--budget", type=float, default=BUDGET_SECONDS, help="seconds of measuring for each compile"
    )
    options.add_argument("--load", type=int, default=2, help="how many processes compute in bursts")
    measure(options.parse_args(), measured, table)


def measured(model: Path, options: argparse.Namespace) -> Figures:
    """The figures of one model."""
    with Scratch("noise") as name:
        folder = Path(name)
        noisy, fresh = folder / "noisy.sqlite", folder / "fresh.sqlite"
        with bursts(options.load):
            busy = _compiled(model, noisy, options.budget)
        before = _doubtful(noisy)
        mended, quiet = (_compiled(model, database, options.budget) for database in (noisy, fresh))
        programs = {"busy": busy, "mended": mended, "fresh": quiet}
        files = {name: folder / f"{name}.so" for name in programs}
        for kind, program in programs.items():
            program.save(files[kind])
        seconds = programs_in_turns(model, files, options.rounds)
        after = _doubtful(noisy)
    ratios = {
        name: statistics.median(a / b for a, b in zip(seconds[name], seconds["fresh"], strict=True))
        for name in ("busy", "mended")
    }
    return {
        "seconds": {name: statistics.median(rounds) for name, rounds in seconds.items()},
        "busy / fresh": ratios["busy"],
        "mended / fresh": ratios["mended"],
        "doubtful before": before,
        "doubtful after": after,
        "doubt told": {name: (program.plan or {})["main"].doubt for name, program in programs.items()},
    }


@contextmanager
def bursts(count: int) -> Iterator[None]:
    """Other work: processes that compute for half a second, and rest for half a second."""
    processes = [subprocess.Popen([sys.executable, "-c", _BURST]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
        time.sleep(1.0)


def _compiled(model: Path, database: Path, budget: float) -> uc.Program:
    with uc.CostDatabase(database) as opened:
        return uc.compile(model, database=opened, budget_seconds=budget, packs=False)


def _doubtful(database: Path) -> int:
    with uc.CostDatabase(database, read_only=True) as opened:
        return sum(cost.doubtful for cost in opened.costs())


def table(found: Mapping[str, Figures]) -> Table:
    """A row for each model."""
    shown = Table("model", "fresh", "busy / fresh", "mended / fresh", "doubtful before", "after")
    for name, row in found.items():
        shown.add_row(
            name,
            f"{row['seconds']['fresh'] * 1e3:.2f} ms",
            f"{row['busy / fresh']:.3f}",
            f"{row['mended / fresh']:.3f}",
            str(row["doubtful before"]),
            str(row["doubtful after"]),
        )
    return shown


if __name__ == "__main__":
    main()
