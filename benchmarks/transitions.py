"""The additional cost of a value that one backend writes and another reads: two chains of the same kernels in turns.

    python benchmarks/transitions.py --seconds 2 --json transitions.json

*Kernel* is the mean time of the kernels in ``a a b b``. *Transition* is what one more change of the backend adds in
``a b a b``: the median of all rounds, and their middle half. *Control* is the difference between two chains that are
both ``a a b b``: what the method takes for a transition where there is none. *Undisturbed* is the difference between
the 10th percentiles of both chains: on a busy machine most runs of long kernels are disturbed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import unity_collage as uc
from unity_collage.backends.registry import select
from unity_collage.measure.transition_chains import SIZES, chains, probes

US = 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each pair and size")
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, help="bytes; all by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    target = uc.host_target()
    kernels, unknown = probes(target, select(None, target))
    for name, reason in unknown.items():
        print(f"{name}: {reason}")
    pairs = list(combinations(kernels, 2))
    timers = chains(kernels, pairs, target)
    rows = [
        {"pair": f"{one} {other}", "bytes": size, **measured(timers[one, other, size], options.seconds)}
        for size in options.sizes or SIZES
        for one, other in pairs
    ]
    Console().print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def measured(timer: Callable[[], tuple[float, float]], seconds: float) -> dict[str, Any]:
    """Microseconds of one pair at one size; a chain has four kernels, and two transitions more or fewer."""
    rounds: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while len(rounds) < 20 or time.monotonic() < end:
        rounds.append(timer())
    more = [(mixed - apart) / 2 * US for mixed, apart in rounds]
    control = [(late[1] - early[1]) / 2 * US for early, late in pairwise(rounds)]
    return {
        "kernel": statistics.median(apart for _, apart in rounds) / 4 * US,
        "transition": [float(value) for value in np.quantile(more, (0.25, 0.5, 0.75))],
        "control": [float(value) for value in np.quantile(control, (0.25, 0.5, 0.75))],
        "undisturbed": (_fast(mixed for mixed, _ in rounds) - _fast(apart for _, apart in rounds)) / 2 * US,
        "rounds": len(rounds),
    }


def _fast(seconds: Iterable[float]) -> float:
    return float(np.quantile(list(seconds), 0.1))


def table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table("bytes", "pair", "kernel", "transition", "control", "undisturbed", box=None)
    for row in rows:
        spans = (
            f"{mid:+.3f} ({low:+.3f} to {high:+.3f})"
            for low, mid, high in (row["transition"], row["control"])
        )
        shown.add_row(
            f"{row['bytes'] >> 10} KiB",
            row["pair"],
            f"{row['kernel']:.2f} us",
            *spans,
            f"{row['undisturbed']:+.3f}",
        )
    return shown


if __name__ == "__main__":
    main()
