"""How the searches scale: synthetic graphs up to 10,000 nodes and 100,000 options, each case in a process of its own.

usage: search.py [--nodes N ...] [--families NAME ...] [--algorithms NAME ...] [--seconds S] [--devices K]
                 [--json FILE] [--plot FILE]

Times are those of the processor, on one core; memory is the peak of the process, with the problem in it. Every answer
goes through the independent checker of certificates.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from search_graphs import FAMILIES, on_devices, problem

from unity_collage.search.auto import solve
from unity_collage.search.certificate import certificate_of, why_not

NODES = (100, 300, 1000, 3000, 10_000)
ALGORITHMS = ("exact", "milp", "auto", "greedy")

Row = dict[str, Any]


def main() -> None:
    options = _options()
    cases = [
        (family, nodes, algorithm, options.seconds, options.devices)
        for family in options.families
        for nodes in options.nodes
        for algorithm in options.algorithms
    ]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rows = list(pool.imap(_case, cases))
    Console(width=120).print(_table(rows))
    if options.json:
        options.json.write_text(
            json.dumps({"budget_seconds": options.seconds, "cases": rows}, indent=1) + "\n"
        )
    if options.plot:
        plot(rows, options.plot)


def _case(case: tuple[str, int, str, float, int]) -> Row:
    family, nodes, algorithm, seconds, devices = case
    asked = problem(family, nodes)
    if devices > 1:
        asked = on_devices(asked, devices)
    begin = time.process_time()
    found = solve(asked, algorithm, seconds=seconds)
    spent = time.process_time() - begin
    wrong = why_not(asked, certificate_of(asked, found))
    if wrong is not None:
        raise AssertionError(f"{algorithm} on {family} with {nodes} nodes: {wrong}")
    return {
        "family": family,
        "nodes": nodes,
        "options": len(asked.options),
        "algorithm": algorithm,
        "found_by": found.algorithm,
        "seconds": round(spent, 4),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "visited": found.visited,
        "plan_ms": found.seconds * 1e3,
        "gap": found.gap,
        "proved": found.is_closed,
    }


def _table(rows: list[Row]) -> Table:
    table = Table("graph", "nodes", "options", "algorithm", "seconds", "MiB", "visited", "gap")
    for row in rows:
        gap = "proved" if row["proved"] else f"{row['gap']:.2%}"
        numbers = (f"{row['seconds']:.2f}", f"{row['peak_mib']:.0f}", f"{row['visited']:,}", gap)
        table.add_row(row["family"], f"{row['nodes']:,}", f"{row['options']:,}", row["algorithm"], *numbers)
    return table


def plot(rows: list[Row], path: Path) -> None:
    """Time and memory of ``exact`` and ``auto`` over nodes; hollow where optimality was not proved."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "search", "font.size": 9})
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    algorithms = [name for name in ("exact", "auto") if any(row["algorithm"] == name for row in rows)]
    panels = [(name, key) for key in ("seconds", "peak_mib") for name in algorithms]
    figure, axes = pyplot.subplots(
        2, len(algorithms), figsize=(9, 6), sharex=True, sharey="row", squeeze=False
    )
    labels = {"seconds": "processor seconds", "peak_mib": "peak memory (MiB)"}
    for axis, (name, key) in zip(axes.flat, panels, strict=True):
        for number, family in enumerate(dict.fromkeys(row["family"] for row in rows)):
            shown = [row for row in rows if (row["family"], row["algorithm"]) == (family, name)]
            colour = f"C{number}"
            axis.plot([r["nodes"] for r in shown], [r[key] for r in shown], color=colour, label=family)
            for row in shown:
                fill = colour if row["proved"] else "white"
                axis.plot(row["nodes"], row[key], "o", color=colour, markerfacecolor=fill, markersize=4)
        axis.set(xscale="log", yscale="log", title=f"{name}: {labels[key]}")
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("nodes")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--families", nargs="+", default=tuple(FAMILIES), choices=tuple(FAMILIES))
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    parser.add_argument("--seconds", type=float, default=60.0, help="budget of each search")
    parser.add_argument("--devices", type=int, default=1, help="devices that each option may run on")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="needs matplotlib: pip install '.[bench]'")
    return parser.parse_args()


if __name__ == "__main__":
    main()
