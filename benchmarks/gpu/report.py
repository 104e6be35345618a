"""The results of a run: a file that grows row by row, a table, a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .jobs import COMPILED, EAGER, OURS

PEERS = (EAGER, COMPILED)


class Results:
    """All that a run has found, written to a file after each row."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._path = path
        self.data: dict[str, Any] = {**facts, "rows": []}
        self.write()

    def add(self, row: dict[str, Any]) -> None:
        self.data["rows"].append(row)
        self.write()

    def finish(self, **facts: Any) -> None:
        """Facts that are known at the end."""
        self.data |= facts
        self.write()

    def write(self) -> None:
        """The file is whole at any time."""
        beside = self._path.with_name(self._path.name + ".part")
        beside.write_text(json.dumps(self.data, indent=1) + "\n")
        beside.replace(self._path)


def ratio(row: dict[str, Any]) -> float | None:
    """How many times as long the fastest peer takes as ours; None where one of them has no time."""
    ours, peer = _seconds(row, (OURS,)).get(OURS), min(_seconds(row, PEERS).values(), default=None)
    return None if ours is None or peer is None else peer / ours


def _seconds(row: dict[str, Any], names: Sequence[str]) -> dict[str, float]:
    results = row["results"]
    return {name: results[name]["seconds"] for name in names if "seconds" in results.get(name, {})}


def lines_of(row: dict[str, Any]) -> list[str]:
    """A row as lines of text."""
    title = f"{row['model']} batch {row['batch']} {row['precision']}"
    if "reason" in row:
        return [f"{title}: {row['reason']}"]
    found = ratio(row)
    head = title if found is None else f"{title}: fastest peer / ours {found:.2f}x"
    return [head, *(f"  {name:24s} {_told(result)}" for name, result in row["results"].items())]


def _told(result: dict[str, Any]) -> str:
    if "seconds" not in result:
        return result.get("reason", "no result")
    told = [f"{1e3 * result['seconds']:9.4f} ms"]
    if "error" in result:
        told.append(f"error {result['error']:.1e}")
    if result["measured_by"] == "host":
        told.append("by the host's clock")
    if "compile_seconds" in result:
        told.append(f"compile {result['compile_seconds']:.0f} s")
    if result.get("kernels"):
        told.append(" ".join(f"{backend} {count}" for backend, count in result["kernels"].items()))
    if "additive_error" in result:
        told.append(f"plan {1e3 * result['plan_seconds']:.4f} ms ({100 * result['additive_error']:+.0f} %)")
    return ", ".join(told)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> str | None:
    """An SVG of how many times faster ours is than each peer; why there is none, or None."""
    try:
        import matplotlib  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return "matplotlib is not installed"
    matplotlib.use("svg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    timed = [row for row in rows if ratio(row) is not None]
    if not timed:
        return "no row has times of ours and of a peer"
    figure, axes = pyplot.subplots(figsize=(10, 4))
    width = 0.8 / len(PEERS)
    for number, peer in enumerate(PEERS):
        found = [_seconds(row, (peer,)).get(peer) for row in timed]
        heights = [
            1.0 if s is None else s / row["results"][OURS]["seconds"]
            for s, row in zip(found, timed, strict=True)
        ]
        places = [i + number * width for i in range(len(timed))]
        axes.bar(places, [height - 1.0 for height in heights], width, bottom=1.0, label=peer)
    labels = [f"{row['model']}\n{row['batch']}, {row['precision']}" for row in timed]
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(
        [i + 0.4 - width / 2 for i in range(len(timed))], labels, rotation=45, ha="right", fontsize=7
    )
    axes.set_ylabel("their time / ours")
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    return None
