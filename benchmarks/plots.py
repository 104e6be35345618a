"""Plots of results, as SVG: speed-ups by model and peer, and rates under the roofs of the machine."""

from __future__ import annotations

import statistics
from typing import Any

import league
import numpy as np
from league import STOCK

from unity_collage.profile.peers.runtimes import OURS


def speedups(known: dict[str, Any], path: str) -> None:
    """How many times faster ours is than each peer, a group of bars for each model; a faster peer points down."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("svg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    rows = {name: league.ratios_of(row, known["precision"]) for name, row in sorted(known["models"].items())}
    peers = [
        peer for peer in dict.fromkeys(p for r in rows.values() for p in r) if peer not in ("best", STOCK)
    ]
    figure, axes = pyplot.subplots(figsize=(10, 4))
    width = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        heights = [statistics.median(found[peer]) if peer in found else 1.0 for found in rows.values()]
        places = [i + number * width for i in range(len(rows))]
        axes.bar(places, [height - 1.0 for height in heights], width, bottom=1.0, label=league.title(peer))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)  # one network may be ten times as far ahead as the others
    axes.yaxis.set_major_formatter("{x:g}x")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(rows))], list(rows), rotation=30, ha="right")
    axes.set_ylabel("their time / ours")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


def roofs(known: dict[str, Any], path: str) -> None:
    """The roofs of the machine, and each network's rate: ours, and that of the fastest peer of its league."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("svg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    figure, axes = pyplot.subplots(figsize=(10, 5))
    rows = sorted(known["models"].items(), key=lambda item: item[1]["flops"] / item[1]["bytes"])
    at = {name: row["flops"] / row["bytes"] for name, row in rows}
    reach = np.geomspace(min(at.values()) / 2, max(at.values()) * 2, 200)
    peak = known["peak_flops"]
    for place, rate in known["peak_bandwidth"].items():
        axes.plot(reach, np.minimum(reach * rate, peak) / 1e9, label=f"roof, weights in {place}", linewidth=1)
    for number, (name, row) in enumerate(rows):
        rates = {who: row["flops"] / statistics.median(found) / 1e9 for who, found in row["seconds"].items()}
        best = max((rates[peer] for peer in league.PEERS[known["precision"]] if peer in rates), default=None)
        label = "ours" if number == 0 else None
        axes.plot(at[name], rates[OURS], "o", color="black", label=label)
        if best is not None:
            label = "fastest peer" if number == 0 else None
            axes.plot(at[name], best, "x", color="tab:red", label=label)
        axes.annotate(
            str(number + 1), (at[name], rates[OURS]), (4, 4), textcoords="offset points", fontsize=8
        )
    names = "\n".join(f"{number}  {name}" for number, name in enumerate(at, start=1))
    axes.text(1.02, 0.98, names, transform=axes.transAxes, va="top", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations of the direct algorithm per byte of weights, inputs and outputs")
    axes.set_ylabel("GFLOP/s")
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
